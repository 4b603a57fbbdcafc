"""LineTrace writes a line per message to a stream, with the time and the severity; LoggerTrace logs
to a logger of Python.

Messages have text of clients in them: line breaks and control characters are escaped, and lines of
detail are indented, so that no client can write a line of its own into the log (CWE-117).
"""

import time
from typing import IO

from kctl.runtime.terminal_text import for_log_line

DETAIL_INDENT = "    "


class LineTrace:
    """Writes whole lines; a stream that can no longer be written to is abandoned silently, because
    a log must never stop what it reports on."""

    def __init__(self, stream: IO[str], *, with_events: bool = False) -> None:
        self._stream: IO[str] | None = stream
        self._with_events = with_events

    def event(self, name: str, /, **fields: object) -> None:
        """Write a structured event, if events are enabled."""
        if self._with_events:
            text = " ".join(f"{key}={value}" for key, value in fields.items())
            self._write("EVENT", f"{name} {text}")

    def info(self, message: str) -> None:
        """Write a log line."""
        self._write("INFO", message)

    def warning(self, message: str, detail: str = "") -> None:
        """Write a warning and the lines of `detail`."""
        self._write("WARN", message, detail)

    def _write(self, severity: str, message: str, detail: str = "") -> None:
        if self._stream is None:
            return
        now_ms = time.time_ns() // 1_000_000
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
        text = f"[{stamp},{now_ms % 1000:03d}] {severity} {_joined(message, detail)}\n"
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                # A log in another encoding than UTF-8.
                self._stream.write(text.encode("ascii", "backslashreplace").decode())
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


class LoggerTrace:
    """Logs to a logger of the standard library, for libraries; events are for tests and dropped."""

    def __init__(self, name: str) -> None:
        # Local: a broker has no use for it.
        import logging

        self._logger = logging.getLogger(name)

    def event(self, name: str, /, **fields: object) -> None:
        """Drop the event."""

    def info(self, message: str) -> None:
        """Log at level INFO."""
        self._logger.info(for_log_line(message))

    def warning(self, message: str, detail: str = "") -> None:
        """Log at level WARNING."""
        self._logger.warning(_joined(message, detail))


def _joined(message: str, detail: str) -> str:
    """Return the single line of a message, with the lines of detail indented below it."""
    # `splitlines` would also break lines at characters that belong to a name.
    lines = [DETAIL_INDENT + for_log_line(it) for it in detail.split("\n") if it]
    return "\n".join([for_log_line(message), *lines])
