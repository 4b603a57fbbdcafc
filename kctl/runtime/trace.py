"""Trace: the one stream of structured events, for logs, tests and invariants."""

from typing import Protocol


class Trace(Protocol):
    """The destination of events: a log file, a test's list, a simulation's invariants."""

    def event(self, name: str, /, **fields: object) -> None:
        """Record an event, e.g. `event("leader_change", partition=tp, leader=1)`."""
        ...

    def info(self, message: str) -> None:
        """Write a log line."""
        ...

    def warning(self, message: str, detail: str = "") -> None:
        """Write a warning, a single line, and below it the lines of `detail`, e.g. a traceback."""
        ...


class NullTrace:
    """Drops everything."""

    def event(self, name: str, /, **fields: object) -> None:
        """Drop the event."""

    def info(self, message: str) -> None:
        """Drop the line."""

    def warning(self, message: str, detail: str = "") -> None:
        """Drop the warning."""
