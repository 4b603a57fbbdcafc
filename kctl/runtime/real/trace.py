"""LineTrace: one line per message to a stream, with the time and the severity in front."""

import time
from typing import IO


class LineTrace:
    """Writes whole lines; a stream that cannot be written to any more is given up silently,
    because a log must never stop what it reports on."""

    def __init__(self, stream: IO[str], *, with_events: bool = False) -> None:
        self._stream: IO[str] | None = stream
        self._with_events = with_events

    def event(self, name: str, /, **fields: object) -> None:
        """A structured event; written only when events were asked for."""
        if self._with_events:
            words = " ".join(f"{key}={value}" for key, value in fields.items())
            self._write("EVENT", f"{name} {words}")

    def info(self, message: str) -> None:
        """A line for the operator."""
        self._write("INFO", message)

    def warning(self, message: str) -> None:
        """A line for the operator about something that needs an eye."""
        self._write("WARN", message)

    def _write(self, severity: str, message: str) -> None:
        if self._stream is None:
            return
        now_ms = time.time_ns() // 1_000_000
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
        try:
            self._stream.write(f"[{stamp},{now_ms % 1000:03d}] {severity} {message}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
