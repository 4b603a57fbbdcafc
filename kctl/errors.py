"""The error families of kctl: one exception per decision that its catcher makes.

A caller asks "can I go on?", not "what went wrong?"; the words of the message carry the rest.
Wire error codes are data (`kctl.protocol.error_codes`), never exception classes.
"""


class KctlError(Exception):
    """Anything kctl raises on purpose; `hint`, if set, tells the user the way out."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            # For whoever sees a traceback: a test of somebody's, mostly.
            self.add_note(hint)


class UsageError(KctlError):
    """The caller asked for something that makes no sense; nothing was done (exit status 2)."""


class CorruptDataError(KctlError):
    """Bytes are not what their format says: a frame, a batch, an index, a checkpoint."""


class StorageError(KctlError):
    """The operating system refused a file operation; the log directory it names is suspect."""


class UnreachableError(KctlError):
    """Nobody answered: connection refused, host unknown, all bootstrap servers silent (exit 3)."""


class TimedOutError(UnreachableError):
    """Somebody was there but the answer did not come in time (exit status 3)."""
