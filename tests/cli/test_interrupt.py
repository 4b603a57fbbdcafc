"""Ctrl-C, closed pipes, and the modules that a command loads."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def start(*argv, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "kctl", *map(str, argv)],
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
        rest, errors = process.communicate(timeout=120)

    assert process.returncode == status
    assert (rest, errors) == ("", "")
    [group] = on("group", "describe", name, "-o", "json").documents
    assert group["state"] == "Empty"
    assert group["total_lag"] == 0


def test_a_group_is_watched_until_it_is_interrupted(on, address, topic, name):
    on("produce", topic, "a", "b", "-p", 0)
    on("consume", topic, "-g", name, "-B", "-m", 1)
    argv = ("group", "describe", name, "--watch", "--every", "50ms", "-o", "ndjson", "-b", address)
    with start(*argv) as process:
        assert json.loads(process.stdout.readline())["total_lag"] == 1
        on("consume", topic, "-g", name, "-m", 1)
        lag = 1
        while lag:
            lag = json.loads(process.stdout.readline())["total_lag"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)

    assert process.returncode == 130
    assert errors == ""


def test_a_consumer_without_a_group_stops_at_once(on, address, topic):
    on("produce", topic, "first")
    with start("consume", topic, "-B", "-b", address) as process:
        assert process.stdout.readline() == "first\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)

    assert process.returncode == 130
    assert errors == ""


def test_new_records_are_printed_as_they_arrive(on, address, topic):
    with start("consume", topic, "-b", address, "-m", 1, "-B") as process:
        on("produce", topic, "fresh")
        out, _ = process.communicate(timeout=120)

    assert out == "fresh\n"
    assert process.returncode == 0


def test_a_closed_pipe_is_no_success_and_prints_nothing(on, address, topic, tmp_path):
    path = tmp_path / "lines"
    path.write_text("x" * 100 + "\n" * 1 + ("y" * 100 + "\n") * 5000)
    on("produce", topic, "-f", path, "-p", 0)
    with start("consume", topic, "-b", address, "-B") as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert process.returncode == 141
    assert errors == ""


def test_a_failed_write_to_stdout_is_reported_in_one_line(on, address, topic):
    for argv in (
        ["--help"],
        ["topic", "list", "-b", address],
        ["consume", topic, "-e", "-b", address],
    ):
        on("produce", topic, "v")
        with Path("/dev/full").open("wb") as full:
            ran = subprocess.run(
                [sys.executable, "-m", "kctl", *argv],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip

        assert ran.returncode == 1
        assert ran.stderr.splitlines()[0] == (
            "error: Cannot write standard output: No space left on device"
        )
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
        # The reader stays to the end: a closed pipe has an exit status of its own.
        assert process.stdout.read() == ""

    assert process.returncode == 0


@pytest.mark.parametrize("argv", [["--help"], ["topic", "list", "-b", "127.0.0.1:1"]])
def test_a_command_loads_no_expensive_module(argv):
    """Imports dominate start-up; listing topics needs none of these."""
    expensive = (
        "click",
        "asyncio",
        "kazoo",
        "backports",
        "lz4",
        "crc32c",
        "yaml",
        "logging",
        "numpy",
        "pyarrow",
    )
    code = (
        "import sys; from kctl.cli.app import run; run(sys.argv[1:]);"
        f"print('loaded:', *[name for name in {expensive} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=False
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
