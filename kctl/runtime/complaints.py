"""Complaints: limits log lines about one subject to one per second.

A peer that continuously sends garbage must not fill the log. Suppressed lines are counted, and the
next line about the same subject has the count. A subject is a peer's host, or a partition whose
appends fail. The time is passed in.
"""

from collections.abc import Callable

INTERVAL_MS = 1_000
# Maximum number of subjects; beyond it the table is cleared.
NAMES_MAX = 1_000


class Complaints:
    """The time of the last line about each subject."""

    def __init__(self) -> None:
        # Name -> (monotonic ms of the last line, lines suppressed since).
        self._last_lines: dict[str, tuple[int, int]] = {}

    def line(self, name: str, message: Callable[[], str], now_ms: int) -> str | None:
        """Return the line to log about `name`, or None; `message` is called only if needed."""
        last_ms, held_back = self._last_lines.get(name, (now_ms - INTERVAL_MS, 0))
        if now_ms - last_ms < INTERVAL_MS:
            self._last_lines[name] = (last_ms, held_back + 1)
            return None
        if name not in self._last_lines and len(self._last_lines) >= NAMES_MAX:
            self._last_lines.clear()
        self._last_lines[name] = (now_ms, 0)
        return f"{message()} ({held_back} more like this)" if held_back else message()
