"""Trace: the one stream of structured events that logs, tests and invariants read."""

from typing import Protocol


class Trace(Protocol):
    """Where events go: a log file, a test's list, a simulation's invariants."""

    def event(self, name: str, /, **fields: object) -> None:
        """Something that happened, e.g. `event("leader_change", partition=tp, leader=1)`."""
        ...

    def info(self, message: str) -> None:
        """A line for the operator."""
        ...

    def warning(self, message: str) -> None:
        """A line for the operator about something that needs an eye."""
        ...


class NullTrace:
    """Drops everything."""

    def event(self, name: str, /, **fields: object) -> None:
        """Drop it."""

    def info(self, message: str) -> None:
        """Drop it."""

    def warning(self, message: str) -> None:
        """Drop it."""
