"""A bar on the terminal that says how far a long job is; nothing where nobody looks."""

import sys

_WIDTH = 30
_MIB = 1024 * 1024


class ProgressBar:
    """Drawn on stderr while it is a terminal; `close` wipes it away."""

    def __init__(self, total_bytes: int, *, is_shown: bool | None = None) -> None:
        self._total = max(1, total_bytes)
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown
        self._drawn = ""

    def update(self, done_bytes: int) -> None:
        """So much is done."""
        share = min(1.0, done_bytes / self._total)
        full = round(share * _WIDTH)
        text = (
            f"{'█' * full}{'·' * (_WIDTH - full)} {share:4.0%}  {done_bytes / _MIB:,.0f} of "
            f"{self._total / _MIB:,.0f} MiB"
        )
        if self._is_shown and text != self._drawn:
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
            self._drawn = text

    def close(self) -> None:
        """The terminal's line is free again."""
        if self._drawn:
            sys.stderr.write(f"\r{' ' * len(self._drawn)}\r")
            sys.stderr.flush()
            self._drawn = ""
