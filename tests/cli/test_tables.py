"""The tables of all commands, at 80 and at 200 columns.

`python -m tests.cli.table_snapshots` records them again after a change that is meant.
"""

import fcntl
import os
import struct
import subprocess
import sys
import termios

import pytest

from kctl.cli.table_text import text_width
from kctl.records.builder import build_batch
from kctl.records.record import Record
from tests.cli import bad_input, table_snapshots
from tests.cli.table_snapshots import CASES, WIDTHS, WITHOUT_A_TABLE

T0_MS = 1_600_000_000_000


@pytest.mark.parametrize("line", CASES)
def test_tables_are_as_recorded(line):
    recorded = table_snapshots.path_of(line, "txt").read_text()

    assert table_snapshots.lines_on_terminals(table_snapshots.recorded(line)) == recorded
    for text in recorded.splitlines():
        if text.startswith("=== "):
            width = int(text.split()[1])
        assert text_width(text) <= width


def test_there_are_no_other_recordings():
    paths = {table_snapshots.path_of(line, suffix) for line in CASES for suffix in ("json", "txt")}

    assert paths == set(table_snapshots.RECORDED.iterdir())


@pytest.fixture(scope="module")
def printed():
    """Return the tables that each command line prints."""
    return dict(table_snapshots.run_cases())


@pytest.mark.slow
@pytest.mark.parametrize("line", CASES)
def test_commands_have_the_recorded_columns(printed, line):
    columns = [list(table.columns) for table in printed[line]]

    assert columns == [table.columns for table in table_snapshots.recorded(line)]
    text = table_snapshots.lines_on_terminals(printed[line])
    assert max(map(text_width, text.splitlines())) <= max(WIDTHS)


def test_every_command_without_a_recording_exists_and_has_a_reason():
    commands = {" ".join(it.path) for it in bad_input.specs()}
    recorded = {it for it in commands if any(f"{line} ".startswith(f"{it} ") for line in CASES)}

    assert WITHOUT_A_TABLE.keys() <= commands
    assert not recorded & WITHOUT_A_TABLE.keys()
    assert len(recorded | WITHOUT_A_TABLE.keys()) >= len(commands) * 0.8


@pytest.fixture
def log(tmp_path):
    """A log with a long path; the checksum of its only batch is wrong."""
    directory = tmp_path / ("a-long-directory-" * 8) / "orders-0"
    directory.mkdir(parents=True)
    data = bytearray(build_batch([Record(0, T0_MS, b"k" * 200, b"v")], partition_leader_epoch=0))
    data[-1] ^= 1
    (directory / f"{0:020d}.log").write_bytes(data)
    return directory


def on_a_terminal(width, *words):
    """Return the lines that a command prints on a terminal of `width` columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environ = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", *map(str, words)],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
        env={**environ, "NO_COLOR": "1"},
    ):  # fmt: skip
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 65536):
                text += chunk
        except OSError:  # Linux: the command has closed the terminal
            pass
    os.close(ours)
    return text.decode().splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_commands_fit_a_real_terminal(log, width):
    for words in (["verify-log", "--explain", log], ["dump-log", "--stats", log]):
        lines = on_a_terminal(width, *words)
        assert lines, words
        assert max(map(text_width, lines)) <= width, words


def test_a_pipe_gets_whole_values(kctl, log, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    ran = kctl("verify-log", "--explain", log)

    assert len(ran.lines) > 1
    assert all(str(log) in line for line in ran.lines[1:])
