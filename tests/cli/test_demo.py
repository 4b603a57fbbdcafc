"""kctl demo: its story is made of commands that exist, and it leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.cli.app import build_app
from kctl.cli.declaration.quick import find_command, parse
from kctl.cli.demo import commands
from kctl.cli.demo.story import STORY, Line, Mode, Step
from kctl.cli.output import Output
from tests.support.waiting import wait_for

COMMANDS = [
    (line, words.split())
    for step in STORY
    for line in step.lines
    for words in re.findall(
        r"\bkctl ([^|;<>]+?)(?: 2?>|$| \||;)", line.command.replace("\\\n", " ")
    )
]


@pytest.mark.parametrize("words", [words for _, words in COMMANDS], ids=" ".join)
def test_every_command_of_the_story_exists(words):
    app = build_app(words)
    command = find_command(app, words)
    assert command is not None
    assert parse(command, words[len(command.path) :]) is not None


class FakeShell:
    """Answers every command with the same result."""

    directory = Path("/tmp/kctl-demo-x")

    def __init__(self, status, text):
        self.ran = []
        self.result = (status, text)

    def run(self, command):
        self.ran.append(command)
        return self.result


def shown(step, shell, tmp_path):
    with (tmp_path / "out").open("wb") as data:
        commands._Tour(shell, Output(data=data), 80).show(1, step)
    return (tmp_path / "out").read_text()


def test_a_table_is_skipped_with_a_hint_where_the_extra_is_missing(monkeypatch, tmp_path):
    for name in ("numpy", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    shell = FakeShell(0, "")
    text = shown(Step("Table", "", (Line("kctl export x", Mode.TABLE),)), shell, tmp_path)
    assert shell.ran == []
    assert "skipped: kctl export needs NumPy and pyarrow" in text
    assert "pip install 'kctl-kafka[export]'" in text


def test_long_output_is_shortened_to_its_end(tmp_path):
    shell = FakeShell(0, "".join(f"line {n}\n" for n in range(20)))
    text = shown(Step("Long", "", (Line("x", lines_shown=3),)), shell, tmp_path)
    assert text.endswith("... 17 lines more\n  line 17\n  line 18\n  line 19\n")


def test_a_command_that_fails_ends_the_demo(tmp_path):
    from kctl.errors import KctlError

    with pytest.raises(KctlError, match="`false` exited with 1: no such topic"):
        shown(Step("Fails", "", (Line("false"),)), FakeShell(1, "no such\ntopic\n"), tmp_path)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def processes_in(directory):
    """The processes whose working directory is below `directory`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(entry / "cwd")).is_relative_to(directory):
                found.append((entry / "cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_the_whole_story(temporary):
    ran = subprocess.run(
        [sys.executable, "-m", "kctl", "demo"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "damage    batch-crc" in ran.stdout
    assert "no damage" in ran.stdout
    assert "Broker 3 has no replicas" in ran.stdout
    assert "  200\n" in ran.stdout
    assert ".parquet" in ran.stdout
    assert list(temporary.iterdir()) == []
    wait_for(lambda: not processes_in(temporary), lambda: str(processes_in(temporary)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGINT, "broker list"), (signal.SIGTERM, "kctl serve")]
)
def test_an_interrupted_demo_leaves_nothing_behind(temporary, number, moment):
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", "demo"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        for line in process.stdout:
            if moment in line:
                break
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == ""
    assert list(temporary.iterdir()) == []
    wait_for(lambda: not processes_in(temporary), lambda: str(processes_in(temporary)))
