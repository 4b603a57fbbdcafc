"""RealClock: the machine's own clocks."""

import time


class RealClock:
    """Wall time may jump; monotonic time never does."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed point."""
        return time.monotonic_ns() // 1_000_000
