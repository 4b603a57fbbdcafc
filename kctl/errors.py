"""The exceptions of kctl: one type per decision that a caller makes.

The type states whether the caller can retry or continue; the message states what went wrong. Wire
error codes are numbers (`kctl.protocol.error_codes`), never exception classes.
"""

import errno
from collections.abc import Iterable

from kctl import DISTRIBUTION

# Names that a hint lists.
_NAMES_SHOWN_MAX = 8


class KctlError(Exception):
    """The base of all exceptions that kctl raises; `hint`, if set, states how to
    proceed."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint is not None:
            # Tracebacks show the hint, too.
            self.add_note(hint)


class UsageError(KctlError):
    """The command line, or a file that it names, is wrong, whatever the cluster is like. Nothing
    was changed (exit status 2)."""


class NotFoundError(KctlError):
    """The request names a topic, broker, group, ... that the cluster or the log directory does not
    have. Nothing was changed for that item (exit status 1)."""


class ImpossibleError(KctlError):
    """The cluster is such that what is asked for cannot be done: too few brokers, no such replica.
    Nothing was changed (exit status 1)."""


class UnsupportedVersionError(KctlError):
    """The brokers' version of Kafka does not support the request. Nothing was changed (exit status
    1)."""


def missing_extra(message: str, extra: str) -> UsageError:
    """Return the error of a function whose library comes with an extra that is not installed.

    `message` states what needs which library; the hint is the command that installs `extra`.
    """
    return UsageError(message, hint=f"pip install '{DISTRIBUTION}[{extra}]'")


class AuthenticationError(KctlError):
    """The broker rejects the credentials, or did not prove its own identity: another attempt with
    the same settings fails, too."""


class CorruptDataError(KctlError):
    """Bytes violate their format: those of a frame, a batch, an index, a checkpoint."""


class StorageError(KctlError):
    """The operating system failed a file operation. The log directory it names may be unusable."""


def storage_failure(path: str, error: OSError) -> StorageError:
    """Return the StorageError of an operation on `path` that the operating system refused, with a
    hint for a full disk and for missing permissions."""
    hint = None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space on this file system"
    elif error.errno == errno.EFBIG:
        hint = "raise the limit of file sizes: ulimit -f"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = "check owner and permissions"
    return StorageError(f"{path}: {error.strerror or error}", hint=hint)


class LockedError(StorageError):
    """Another process holds a lock file: the directory is in use, not damaged."""


class UnreachableError(KctlError):
    """No broker responded: the connection was rejected, the host is unknown, or no bootstrap server
    is available (exit status 3)."""


class TimedOutError(UnreachableError):
    """A broker was connected but did not answer in time (exit status 3)."""


def not_found(
    noun: str, name: object, known: Iterable[object] = (), *, hint: str | None = None
) -> NotFoundError:
    """Return the error for an unknown `noun`: `No topic ordres`.

    The hint is the name in `known` that was probably meant, else `hint`, else the first few names
    in `known`; never `name` itself, which another broker may know.
    """
    names = [it for it in map(str, known) if not it.startswith("__") and it != str(name)]
    closest = close_name(str(name), names)
    if closest is not None:
        hint = f"did you mean {closest}?"
    elif hint is None and names:
        shown = ", ".join(names[:_NAMES_SHOWN_MAX])
        hint = f"known {noun}s: {shown}" + (", ..." if len(names) > _NAMES_SHOWN_MAX else "")
    return NotFoundError(f"No {noun} {name}", hint=hint)


def close_name(name: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that was probably meant by `name`, or None. Numbers have none."""
    import difflib

    if name.lstrip("-").isdigit():
        return None
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return near[0] if near else None
