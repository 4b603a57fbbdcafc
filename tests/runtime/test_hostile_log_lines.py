"""T31: text of clients in a message of the log stays within its line, whatever it contains."""

import io
import logging
import re

import pytest

from kctl.runtime.real.trace import LineTrace, LoggerTrace

FORGED = "[2026-01-01 00:00:00,000] INFO The broker has stopped"
# A tab does no harm.
CONTROLS = [chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code != 9]
INVISIBLE = ["\u061c", "\u200b", "\u200f", "\u2028", "\u2029", "\u202e", "\u2066", "\ufeff"]
SEQUENCES = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r\n\r\n", "\x1b[8m", "\b" * 40, "\ud800"]
HOSTILE = [
    f"{before}{odd}{FORGED}" for odd in CONTROLS + INVISIBLE + SEQUENCES for before in ("", "alice")
]
LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARN .*")


def lines_of(message, detail="", encoding="utf-8"):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    trace = LineTrace(stream)
    trace.warning(message, detail)
    trace.info("the log goes on")
    *lines, last = raw.getvalue().decode(encoding).removesuffix("\n").split("\n")
    assert last.endswith("INFO the log goes on")
    return lines


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_message_is_one_line_without_control_characters(encoding):
    assert len(HOSTILE) >= 140
    for text in HOSTILE:
        (line,) = lines_of(f"failed authentication of {text}", encoding=encoding)
        assert LINE.fullmatch(line)
        assert not [it for it in line if it in CONTROLS + INVISIBLE]
        assert FORGED in line


def test_a_traceback_follows_its_message_indented():
    detail = f"Traceback (most recent call last):\n  File x\nValueError: {HOSTILE[0]}\n{FORGED}\n"
    message, *below = lines_of("Unexpected error", detail)
    assert message.endswith("WARN Unexpected error")
    assert len(below) == 4
    assert all(line.startswith("    ") for line in below)


def test_names_in_other_scripts_are_written_as_they_are():
    (line,) = lines_of("topic тема, user 利用者")
    assert line.endswith("topic тема, user 利用者")


def test_a_logger_gets_one_line_too(caplog):
    trace = LoggerTrace("kctl-hostile")
    with caplog.at_level(logging.INFO, "kctl-hostile"):
        for text in HOSTILE:
            trace.info(text)
            trace.warning(text, f"detail\n{text}")
    for record in caplog.records:
        first, *below = record.getMessage().split("\n")
        assert all(line.startswith("    ") for line in below)
        assert not [it for it in first if it in CONTROLS]
