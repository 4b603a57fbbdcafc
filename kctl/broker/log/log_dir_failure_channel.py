"""LogDirFailureChannel: an I/O error takes one log directory offline, not the broker.

Whoever meets the error reports it, from any place; listeners hear of each directory once. A
directory never comes back while the broker runs: after a failed fsync nobody knows what is on it.

Kafka 2.7: kafka.server.LogDirFailureChannel; KIP-112
"""

from collections.abc import Callable

from kctl.errors import StorageError

FailureListener = Callable[[str, str], object]


class LogDirFailureChannel:
    """Which log directories failed, and why."""

    def __init__(self) -> None:
        # Directory -> the message of its first failure.
        self.offline: dict[str, str] = {}
        self._listeners: list[FailureListener] = []

    def on_failure(self, listener: FailureListener) -> None:
        """Call `listener(log_dir, message)` when a directory fails for the first time."""
        self._listeners.append(listener)

    def report(self, log_dir: str, error: StorageError | str) -> bool:
        """The directory failed; whether that is news."""
        if log_dir in self.offline:
            return False
        self.offline[log_dir] = str(error)
        for listener in self._listeners:
            listener(log_dir, str(error))
        return True
