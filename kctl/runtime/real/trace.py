"""LineTrace writes a line per message to a stream, as text or JSON, with the time, the severity and
the logger; LoggerTrace logs to a logger of Python.

Messages have text of clients in them: line breaks and control characters are escaped, and lines of
detail are indented, so that no client can write a line of its own into the log (CWE-117).
"""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from kctl.runtime.terminal_text import for_log_line

DETAIL_INDENT = "    "


class PrefixedStream:
    """The standard error of several processes: each line begins with the name of its process."""

    def __init__(self, stream: IO[str], name: str) -> None:
        self.stream = stream
        self.name = name

    def write(self, text: str) -> int:
        """Write `text`, which consists of whole lines."""
        return self.stream.write(f"{self.name}: {text}")

    def flush(self) -> None:
        """Flush the stream."""
        self.stream.flush()


class LineTrace:
    """Writes whole lines; a stream that can no longer be written to is abandoned silently, because
    a log must never stop what it reports on."""

    def __init__(
        self,
        stream: "IO[str] | LogFile | None" = None,
        *,
        with_events: bool = False,
        as_json: bool = False,
    ) -> None:
        """Write to `stream`, or to standard error."""
        self._stream: IO[str] | PrefixedStream | LogFile | None = stream or sys.stderr
        # Fields of every line in JSON.
        self._fields: dict[str, object] = {}
        if as_json and isinstance(self._stream, PrefixedStream):
            self._fields["process"] = self._stream.name
            self._stream = self._stream.stream
        self._with_events = with_events
        self._line = _json_line if as_json else _text_line

    def event(self, name: str, /, **fields: object) -> None:
        """Write a structured event, if events are enabled."""
        if self._with_events:
            text = " ".join(f"{key}={value}" for key, value in fields.items())
            self.write("EVENT", f"{name} {text}")

    def info(self, message: str) -> None:
        """Write a log line."""
        self.write("INFO", message)

    def warning(self, message: str, detail: str = "") -> None:
        """Write a warning and the lines of `detail`."""
        self.write("WARN", message, detail)

    def write(
        self,
        level: str,
        message: str,
        detail: str = "",
        *,
        logger: str = "",
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Write a line of a logger; JSON has `fields` beside the message."""
        if self._stream is None:
            return
        now_ms = time.time_ns() // 1_000_000
        text = self._line(
            now_ms, level, message, detail, logger, {**self._fields, **(fields or {})}
        )
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                # A log in another encoding than UTF-8.
                self._stream.write(text.encode("ascii", "backslashreplace").decode())
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


class LogFile:
    """A stream that appends to a file, and opens it again where tools that rotate logs have moved
    it: on `reopen`, and when it has grown to `size_max` bytes, after renaming it to NAME.1."""

    def __init__(self, path: str, size_max: int | None = None) -> None:
        """Open the file; raise OSError if that fails."""
        self._path = Path(path)
        self._size_max = size_max
        self._file = self._open()

    def write(self, text: str) -> int:
        """Append `text`, whole lines."""
        size_max = self._size_max
        if size_max is not None and self._file.tell() and self._file.tell() >= size_max:
            os.replace(self._path, f"{self._path}.1")
            self.reopen()
        return self._file.write(text)

    def flush(self) -> None:
        """Pass the buffer to the operating system."""
        self._file.flush()

    def reopen(self) -> None:
        """Open the file by its name again; one that cannot be opened leaves the old one open."""
        try:
            file = self._open()
        except OSError:
            return
        self._file.close()
        self._file = file

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> IO[str]:
        return self._path.open("a", encoding="utf-8", errors="backslashreplace")


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


def _text_line(
    now_ms: int,
    level: str,
    message: str,
    detail: str,
    logger: str,
    fields: Mapping[str, object],  # noqa: ARG001
) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
    named = f"{message} ({logger})" if logger else message
    return f"[{stamp},{now_ms % 1000:03d}] {level} {_joined(named, detail)}\n"


def _json_line(
    now_ms: int,
    level: str,
    message: str,
    detail: str,
    logger: str,
    fields: Mapping[str, object],
) -> str:
    # Local: logs in JSON are rare.
    import json

    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    line = {
        "ts": f"{stamp}.{now_ms % 1000:03d}Z",
        "level": level,
        "logger": logger or "root",
        "msg": message,
        **({"exception": detail} if detail else {}),
        **fields,
    }
    # The escapes of JSON are all but that of DEL.
    return json.dumps(line).replace("\x7f", "\\u007f") + "\n"


def _joined(message: str, detail: str) -> str:
    """Return the single line of a message, with the lines of detail indented below it."""
    # `splitlines` would also break lines at characters that belong to a name.
    lines = [DETAIL_INDENT + for_log_line(it) for it in detail.split("\n") if it]
    return "\n".join([for_log_line(message), *lines])
