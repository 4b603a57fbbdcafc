"""Clock: the two ways to ask what time it is."""

from typing import Protocol


class Clock(Protocol):
    """Walls may disagree between brokers and jump; the monotonic clock never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: for timestamps in records and files."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed point: for deadlines and timeouts."""
        ...
