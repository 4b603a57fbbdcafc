"""Draws the progress of a long job on the terminal; draws nothing if stderr is no terminal."""

import sys

from kctl.cli.output import terminal_width
from kctl.cli.pipes import write_over
from kctl.runtime.real.clock import RealClock

_WIDTH, _WIDTH_MIN = 30, 5
_MIB = 1024 * 1024
# The rate is unknown before this time.
_PACE_SECONDS_MIN = 1


class ProgressBar:
    """A progress bar on stderr with rate and remaining time; `close` erases it."""

    def __init__(
        self, total_bytes: int, *, is_shown: bool | None = None, unit: str | None = None
    ) -> None:
        """Start a bar of `total_bytes`, or of as many `unit` if that is given."""
        self._unit = unit
        self._total = max(1, total_bytes)
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._drawn = ""
        self._clock = RealClock()
        self._begun_ms = self._clock.monotonic_ms()

    def resize(self, total_bytes: int) -> None:
        """Change the total."""
        self._total = max(1, total_bytes)

    def update(self, done_bytes: int, note: str = "", detail: str = "") -> None:
        """Draw the progress, followed by `note` or by the rate and the remaining time, and then
        `detail`. A narrow terminal shows a shorter bar, and of the text the beginning."""
        if not self._is_shown:
            return
        share = min(1.0, done_bytes / self._total)
        unit, each = (self._unit, 1) if self._unit else ("MiB", _MIB)
        words = (
            f" {share:4.0%}  {done_bytes / each:,.0f} of {self._total / each:,.0f} {unit}"
            f"{note or self._pace(done_bytes, unit, each)}{detail}"
        )
        # Without the last column, where some terminals begin a new line.
        columns = terminal_width(sys.stderr) - 1
        width = max(_WIDTH_MIN, min(_WIDTH, columns - len(words)))
        full = round(share * width)
        bar = "█" * full + "·" * (width - full)
        text = f"{bar}{words}"[: max(columns, 1)].ljust(len(self._drawn.rstrip()))
        if text != self._drawn:
            write_over(sys.stderr, text)
            self._drawn = text

    def _pace(self, done: int, unit: str, each: int) -> str:
        seconds = (self._clock.monotonic_ms() - self._begun_ms) / 1000
        if seconds < _PACE_SECONDS_MIN or done <= 0:
            return ""
        left = round(max(0, self._total - done) * seconds / done)
        return f", {done / seconds / each:,.0f} {unit}/s, {left // 60}:{left % 60:02} left"

    def close(self) -> None:
        """Erase the bar."""
        if self._drawn:
            write_over(sys.stderr, " " * len(self._drawn))
            write_over(sys.stderr, "")
            self._drawn = ""
