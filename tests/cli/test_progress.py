"""The progress bar shows progress, rate and remaining time."""

import io
import re

from kctl.cli.progress import ProgressBar


def drawn(capsys, bar, monkeypatch, after_ms, *arguments):
    now = bar._begun_ms + after_ms
    monkeypatch.setattr(bar._clock, "monotonic_ms", lambda: now)
    bar.update(*arguments)
    return re.sub(r"[█·]+", "|", capsys.readouterr().err).strip()


def test_rate_and_remaining_time_are_shown(capsys, monkeypatch):
    bar = ProgressBar(100 * 2**20, is_shown=True)
    assert drawn(capsys, bar, monkeypatch, 500, 2**20) == "|   1%  1 of 100 MiB"
    text = drawn(capsys, bar, monkeypatch, 10_000, 20 * 2**20)
    assert text == "|  20%  20 of 100 MiB, 2 MiB/s, 0:40 left"
    text = drawn(capsys, bar, monkeypatch, 10_000, 2**20)
    assert text == "|   1%  1 of 100 MiB, 0 MiB/s, 16:30 left"


def test_units_and_note_can_be_replaced(capsys, monkeypatch):
    bar = ProgressBar(1, is_shown=True, unit="tasks")
    bar.resize(8)
    assert drawn(capsys, bar, monkeypatch, 2000, 4).endswith("4 of 8 tasks, 2 tasks/s, 0:02 left")
    assert drawn(capsys, bar, monkeypatch, 2000, 6, ", soon").endswith("6 of 8 tasks, soon")


def test_a_narrow_terminal_shows_a_shorter_bar(capsys, monkeypatch):
    bar = ProgressBar(100 * 2**20, is_shown=True)
    detail = ", 5,000 records, 1 of 4 tasks"
    for columns, end in ((120, "1 of 4 tasks"), (80, "1 of 4 tasks"), (40, "0:4")):
        monkeypatch.setenv("COLUMNS", str(columns))
        now = bar._begun_ms + 10_000
        monkeypatch.setattr(bar._clock, "monotonic_ms", lambda now=now: now)
        bar.update(20 * 2**20, detail=detail)
        line = capsys.readouterr().err.strip("\r").rstrip()
        assert len(line) < columns
        assert line.endswith(end), line


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def test_a_bar_on_a_terminal_begins_its_line_again_and_is_erased(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = ProgressBar(2, is_shown=True)
    bar.update(1)
    bar.close()
    drawn, erased = terminal.getvalue()[1:].split("\r", 1)
    assert "50%" in drawn
    assert "\\x0d" not in drawn
    assert erased == " " * len(drawn) + "\r"
