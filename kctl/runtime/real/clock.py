"""RealClock: the machine's clocks."""

import time


class RealClock:
    """Wall time may jump; monotonic time never does."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since a fixed point."""
        return time.monotonic_ns() // 1_000_000

    # Nanoseconds since a fixed point; the function itself, as it is called for each request.
    monotonic_ns = staticmethod(time.monotonic_ns)
