"""Ctrl-C, closed pipes, and what a command loads."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def start(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "kctl", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_consumer_that_is_interrupted_commits_and_leaves(
    on, address, topic, name, number, status
):
    on("produce", topic, "a", "b", "-p", 0)
    with start("consume", topic, "-g", name, "-B", "-b", address) as process:
        assert [process.stdout.readline(), process.stdout.readline()] == ["a\n", "b\n"]
        process.send_signal(number)
        rest, errors = process.communicate(timeout=20)

    assert process.returncode == status
    assert (rest, errors) == ("", "")
    [group] = on("group", "describe", name, "-o", "json").documents
    assert group["state"] == "Empty"
    assert group["total_lag"] == 0


def test_a_group_is_watched_until_it_is_interrupted(on, address, topic, name):
    on("produce", topic, "a", "b", "-p", 0)
    on("consume", topic, "-g", name, "-B", "-m", 1)
    words = ("group", "describe", name, "--watch", "--every", "50ms", "-o", "ndjson", "-b", address)
    with start(*words) as process:
        assert json.loads(process.stdout.readline())["total_lag"] == 1
        on("consume", topic, "-g", name, "-m", 1)
        lag = 1
        while lag:
            lag = json.loads(process.stdout.readline())["total_lag"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)

    assert process.returncode == 130
    assert errors == ""


def test_a_consumer_without_a_group_ends_at_once(on, address, topic):
    with start("consume", topic, "-b", address) as process:
        on("produce", topic, "not waited for")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)

    assert process.returncode == 130
    assert errors == ""


def test_new_records_arrive_while_it_waits(on, address, topic):
    with start("consume", topic, "-b", address, "-m", 1, "-B") as process:
        on("produce", topic, "fresh")
        out, _ = process.communicate(timeout=20)

    assert out == "fresh\n"
    assert process.returncode == 0


def test_a_reader_that_has_enough_is_no_error(on, address, topic, tmp_path):
    path = tmp_path / "lines"
    path.write_text("x" * 100 + "\n" * 1 + ("y" * 100 + "\n") * 5000)
    on("produce", topic, "-f", path, "-p", 0)
    with start("consume", topic, "-b", address, "-B") as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert process.returncode == 0
    assert errors == ""


def test_output_that_cannot_be_written_is_one_clear_line(on, address, topic):
    for words in (
        ["--help"],
        ["topic", "list", "-b", address],
        ["consume", topic, "-e", "-b", address],
    ):
        on("produce", topic, "v")
        with Path("/dev/full").open("wb") as full:
            ran = subprocess.run(
                [sys.executable, "-m", "kctl", *words],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip

        assert ran.returncode == 1
        assert ran.stderr.splitlines()[0] == "error: No space left on device"
        assert len(ran.stderr.splitlines()) == 2


def test_lines_typed_one_by_one_are_sent_one_by_one(on, address, topic):
    with start("produce", topic, "-b", address, "-p", 0, "-o", "ndjson",
               stdin=subprocess.PIPE) as process:  # fmt: skip
        process.stdin.write("first\n")
        process.stdin.flush()
        assert '"offset": 0' in process.stdout.readline()
        process.stdin.write("second\n")
        process.stdin.close()
        assert '"offset": 1' in process.stdout.readline()

    assert process.returncode == 0


@pytest.mark.parametrize("words", [["--help"], ["topic", "list", "-b", "127.0.0.1:1"]])
def test_a_command_loads_nothing_heavy(words):
    """Start-up is import time: none of these is needed to list topics."""
    heavy = (
        "rich",
        "pydantic",
        "asyncio",
        "kazoo",
        "zstandard",
        "lz4",
        "crc32c",
        "yaml",
        "logging",
        "numpy",
        "pyarrow",
    )
    code = (
        "import sys; from kctl.cli.app import run; run(sys.argv[1:]);"
        f"print('loaded:', *[name for name in {heavy} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )

    assert ran.stdout.splitlines()[-1] == "loaded:"


def test_no_module_of_the_broker_is_loaded_for_admin_commands():
    code = (
        "import sys; from kctl.cli.app import run; run(sys.argv[1:]);"
        "sys.exit(any(name.startswith(('kctl.broker.', 'kctl.store.')) for name in sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "topic", "list", "-b", "127.0.0.1:1"],
        capture_output=True,
        check=False,
    )

    assert ran.returncode == 0
