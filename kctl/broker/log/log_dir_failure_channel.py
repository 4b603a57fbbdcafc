"""LogDirFailureChannel: takes a log directory, not the broker, offline after an I/O error.

Any component that meets the error reports it; listeners are called once per directory. A directory
never returns while the broker runs: after a failed fsync its content is unknown.

Kafka 2.7: kafka.server.LogDirFailureChannel; KIP-112
"""

from collections.abc import Callable

from kctl.errors import StorageError

FailureListener = Callable[[str, str], object]
FAILED_DIRECTORIES_HINT = "remove the cause and start the broker again: it recovers its logs"


class LogDirFailureChannel:
    """The log directories that failed, with reasons."""

    def __init__(self) -> None:
        # Directory -> the message of its first failure.
        self.offline: dict[str, str] = {}
        self._listeners: list[FailureListener] = []

    def on_failure(self, listener: FailureListener) -> None:
        """Call `listener(log_dir, message)` when a directory fails for the first time."""
        self._listeners.append(listener)

    def error(self, message: str) -> StorageError:
        """Return the error of a broker without a log directory left: `message`, and the reasons."""
        reasons = "; ".join(self.offline.values())
        return StorageError(f"{message}: {reasons}", hint=FAILED_DIRECTORIES_HINT)

    def report(self, log_dir: str, error: StorageError | str) -> bool:
        """Record that the directory failed; return False if this was known already."""
        if log_dir in self.offline:
            return False
        self.offline[log_dir] = str(error)
        for listener in self._listeners:
            listener(log_dir, str(error))
        return True
