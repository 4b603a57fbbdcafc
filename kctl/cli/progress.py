"""A bar on the terminal that says how far a long job is; nothing where nobody looks."""

import sys

from kctl.runtime.real.clock import RealClock

_WIDTH = 30
_MIB = 1024 * 1024
# Before that nobody knows.
_PACE_SECONDS_MIN = 1


class ProgressBar:
    """Drawn on stderr while it is a terminal, with rate and time left; `close` wipes it away."""

    def __init__(
        self, total_bytes: int, *, is_shown: bool | None = None, unit: str | None = None
    ) -> None:
        """With `unit` it counts those, and not bytes."""
        self._unit = unit
        self._total = max(1, total_bytes)
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._drawn = ""
        self._clock = RealClock()
        self._begun_ms = self._clock.monotonic_ms()

    def resize(self, total_bytes: int) -> None:
        """There is more to do than was known, or less."""
        self._total = max(1, total_bytes)

    def update(self, done_bytes: int, words: str = "") -> None:
        """So much is done; `words` follow, or how fast it goes."""
        share = min(1.0, done_bytes / self._total)
        full = round(share * _WIDTH)
        unit, each = (self._unit, 1) if self._unit else ("MiB", _MIB)
        text = (
            f"{'█' * full}{'·' * (_WIDTH - full)} {share:4.0%}  {done_bytes / each:,.0f} of "
            f"{self._total / each:,.0f} {unit}{words or self._pace(done_bytes, unit, each)}"
        ).ljust(len(self._drawn))
        if self._is_shown and text != self._drawn:
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
            self._drawn = text

    def _pace(self, done: int, unit: str, each: int) -> str:
        seconds = (self._clock.monotonic_ms() - self._begun_ms) / 1000
        if seconds < _PACE_SECONDS_MIN or done <= 0:
            return ""
        left = round(max(0, self._total - done) * seconds / done)
        return f", {done / seconds / each:,.0f} {unit}/s, {left // 60}:{left % 60:02} left"

    def close(self) -> None:
        """The terminal's line is free again."""
        if self._drawn:
            sys.stderr.write(f"\r{' ' * len(self._drawn)}\r")
            sys.stderr.flush()
            self._drawn = ""
