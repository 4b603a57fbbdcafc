"""kctl consume: --key, --grep, --header, --jq and --tail, and what it prints to a terminal."""

import io
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from kctl.cli.output import Output, OutputFormat
from kctl.client.record_filter import json_at, parse_path
from kctl.errors import UsageError
from kctl.runtime.terminal_text import bytes_for_terminal, for_json, for_terminal

RECORDS = r"""
{"key": "a", "value": "{\"user\": {\"id\": 1}}", "partition": 0, "timestamp": 100}
{"key": "b", "value": "plain error", "partition": 1, "timestamp": 300}
{"key": "c", "value": "third", "partition": 2, "timestamp": 200,
 "headers": [{"name": "trace", "value": "on"}]}
{"key": "a", "value": "{\"user\": {\"id\": \"x\"}}", "partition": 0, "timestamp": 400}
""".lstrip()


@pytest.fixture
def filled(on, topic, tmp_path):
    """A topic with a record in each of its three partitions, and a fourth one in the first."""
    path = tmp_path / "records"
    path.write_text(RECORDS.replace(",\n", ","))
    assert on("produce", topic, "-i", "ndjson", "-f", path).status == 0
    return topic


def test_records_are_selected_by_key_value_and_header(on, filled):
    topic = filled

    def values(*options):
        return on("consume", topic, "--exit", *options).lines

    assert len(values("--key", "a")) == 2
    assert values("--grep", "err.r") == ["plain error"]
    assert values("--header", "trace") == ["third"]
    assert values("--header", "trace=off") == []
    assert values("--key", "a", "--jq", ".user.id") == ["1", "x"]
    assert values("--jq", ".user.id", "-K") == ["a\t1", "a\tx"]
    assert values("--key", "a", "-m", "1", "--jq", ".user") == ['{"id": 1}']


def test_tail_prints_the_last_records_of_all_partitions_and_stops(on, filled):
    topic = filled

    ran = on("consume", topic, "--tail", 2, "-f", "{timestamp}\\n")

    assert (ran.status, ran.lines) == (0, ["300", "400"])
    assert on("consume", topic, "--tail", 1, "--key", "c", "-f", "{key}\\n").lines == ["c"]
    assert on("consume", topic, "--tail", 9, "-f", "{key}\\n").lines == ["a", "c", "b", "a"]
    assert on("consume", topic, "--tail", 2, "--offset", "5").status == 2


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", "1"),
        (".list[0]", "x"),
        (".list[-1]", '{"y": null}'),
        ('.["a b"]', "true"),
        (".missing", None),
        (".a[0]", None),
        (".list.a", None),
    ],
)
def test_paths(path, found):
    value = b'{"a": {"b": 1}, "list": ["x", {"y": null}], "a b": true}'

    assert json_at(value, parse_path(path)) == found
    assert json_at(b"no JSON", parse_path(path)) is None


@pytest.mark.parametrize("text", ["", ".", "a", ".a | .b", ".[]", ".a[", "..a"])
def test_what_is_not_a_path_is_refused(text):
    with pytest.raises(UsageError, match="Not a path"):
        parse_path(text)


def test_control_and_bidi_characters_are_escaped_for_a_terminal():
    assert for_terminal("a\x1b[2Jb\tc\n") == "a\\x1b[2Jb\tc\n"
    assert for_terminal("\u202egnp\x9b\x7f\r") == "\\u202egnp\\u009b\\u007f\\x0d"
    assert bytes_for_terminal(b"\xff\xc3\xa9") == "\\xffé"


def test_unsafe_characters_are_escaped_in_json_and_mean_the_same():
    names = ["\u202egnp", "\x9b\x7f", "é\u200d\u2028", "\udc80"]
    text = for_json(json.dumps(names, ensure_ascii=False, indent=2))
    assert json.loads(text) == names
    assert "é" in text
    assert all(it.isprintable() for line in text.splitlines() for it in line if it != "\udc80")


def test_a_pipe_gets_the_bytes_as_they_are():
    data = io.BytesIO()

    Output(data=data).write(b"\x1b[2J\xff")
    Output(OutputFormat.NDJSON, data=data, is_terminal=True).show([{"a": "\u202e"}], name="a")

    assert data.getvalue() == b'\x1b[2J\xff{"a": "\\u202e"}\n'


def test_values_are_escaped_on_a_terminal(on, topic, address):
    on("produce", topic, "\x1b]0;title\x07")
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "kctl", "consume", topic, "--exit", "-b", address]
    ran = subprocess.run(argv, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    printed = os.read(ours, 1000)
    os.close(ours)

    assert ran.returncode == 0, ran.stderr
    assert printed == b"\\x1b]0;title\\x07\r\n"


def stopped_while_its_reader_pauses(number, *argv):
    """The exit status and the errors of a command whose pager does not read."""
    # Python waits at exit for a thread that writes to a buffer, and then aborts.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", *argv],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered,
    ) as command:  # fmt: skip
        assert command.stdout.read(1)
        # The writer is blocked now, and a signal still stops the command.
        command.send_signal(number)
        try:
            status = command.wait(timeout=60)
        finally:
            command.kill()
            command.stdout.close()
        return status, command.stderr.read()


@pytest.fixture
def full_topic(on, topic, tmp_path):
    """A topic with more than a pipe holds."""
    path = tmp_path / "lines"
    path.write_text(("x" * 1000 + "\n") * 1000)
    on("produce", topic, "-f", path, "-p", 0)
    return topic


def test_a_member_of_a_group_sends_heartbeats_while_its_reader_pauses(on, full_topic, address):
    """The pipe is full, and the member stays in the group, which it leaves when it is stopped."""
    group = f"{full_topic}-g"
    argv = ("consume", full_topic, "-g", group, "-B", "-b", address)
    assert stopped_while_its_reader_pauses(signal.SIGTERM, *argv) == (143, b"")

    [group] = on("group", "describe", group, "-o", "json").documents
    assert group["members"] == []


@pytest.mark.parametrize(
    ("form", "number"),
    [("table", signal.SIGINT), ("json", signal.SIGTERM), ("ndjson", signal.SIGINT)],
)
def test_a_consumer_without_a_group_stops_while_its_reader_pauses(
    full_topic, address, form, number
):
    argv = ("consume", full_topic, "-B", "-o", form, "-b", address)
    assert stopped_while_its_reader_pauses(number, *argv) == (128 + number, b"")


def test_ctrl_c_ends_a_command_that_prints_its_result_while_its_reader_pauses(full_topic, address):
    argv = ("consume", full_topic, "--tail", "1000", "--exit", "-o", "json", "-b", address)
    assert stopped_while_its_reader_pauses(signal.SIGINT, *argv) == (130, b"")
