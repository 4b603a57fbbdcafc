"""Clock: wall time and monotonic time."""

from typing import Protocol


class Clock(Protocol):
    """Wall clocks may disagree between brokers and jump; the monotonic clock never goes back."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch: for timestamps in records and files."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since a fixed point: for deadlines and timeouts."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds since a fixed point: for measurements of short work."""
        ...
