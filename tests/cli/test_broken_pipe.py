"""Commands whose reader is gone: one exit status, no traceback, and the work is done."""

import pytest

from kctl.cli import app
from kctl.cli.failures import BROKEN_PIPE
from tests.support.golden_logs import unpack


def all_commands(group=None, path=()):
    group = group or app.build_app([], everything=True)
    for name in group.commands:
        yield (*path, name)
    for name, inner in group.groups.items():
        yield from all_commands(inner, (*path, name))


@pytest.mark.parametrize("command", list(all_commands()), ids=" ".join)
def test_no_command_succeeds_without_a_reader(without, command):
    ran = without("stdout", *command, "--help")
    assert (ran.status, ran.out, ran.err) == (BROKEN_PIPE, "", "")


READS = [
    ["consume", "{topic}", "--exit"],
    ["consume", "{topic}", "--exit", "-o", "ndjson"],
    ["topic", "list"],
    ["topic", "describe", "{topic}", "-o", "json"],
    ["config", "describe", "topic", "{topic}"],
    ["group", "list"],
    ["txn", "list", "-o", "yaml"],
    ["reassign", "list", "-o", "csv"],
    ["throttle", "show"],
    ["cluster", "describe"],
    ["cluster", "health"],
    ["broker", "describe"],
]


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_reads_stop_with_the_status_of_a_broken_pipe(without, words, on, topic, address):
    assert on("produce", topic, "one", "two").status == 0
    ran = without("stdout", *[it.format(topic=topic) for it in words], "-b", address)
    assert (ran.status, ran.err) == (BROKEN_PIPE, "")


def test_forensics_stops_with_the_same_status(without, tmp_path):
    log = min(unpack("clean", tmp_path).glob("*/*.log"))
    with log.open("ab") as file:
        file.write(b"\xff" * 100)
    for words in (["dump-log", log], ["verify-log", log.parent], ["repair-log", log.parent]):
        ran = without("stdout", *words)
        assert (ran.status, ran.out) == (BROKEN_PIPE, "")


def test_a_lost_message_stops_no_work(without, on, topic, address):
    """`produce` reports on stderr only; the records are written."""
    ran = without("stderr", "produce", topic, "one", "two", "-b", address)
    assert ran.status == BROKEN_PIPE
    assert len(on("consume", topic, "--exit").lines) == 2
    # An error keeps its own status.
    assert without("stderr", "topic", "describe", "no-such-topic", "-b", address).status == 1
