"""LogLines: the last lines of a broker's log, for tests."""

from collections import deque

LINES_MAX = 1_000


class LogLines:
    """A Trace that keeps the last lines."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_MAX)

    def event(self, name: str, /, **fields: object) -> None:
        """Ignore events."""

    def info(self, message: str) -> None:
        """Keep the line."""
        self.lines.append(f"INFO {message}")

    def warning(self, message: str, detail: str = "") -> None:
        """Keep the line, and those of `detail`."""
        self.lines.append(f"WARN {message}")
        self.lines.extend(it for it in detail.split("\n") if it)
