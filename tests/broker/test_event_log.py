"""The lines that a broker's log has for events."""

import ast
import io
import json
import string
from pathlib import Path

import pytest

import kctl
from kctl.broker.event_log import EVENT_LINES, LINES_PER_SECOND_MAX, EventLog
from kctl.broker.loggers import CONTROLLER, GROUPS, NAMES, STATE_CHANGES, broker_levels
from kctl.model import TopicPartition
from kctl.runtime.log_levels import Loggers, LogLevel
from kctl.runtime.real.trace import LineTrace, PrefixedStream
from tests.support.kctl_process import KctlBroker

HOSTILE = "g\n[2026-01-01] INFO forged\x1b[2J"


class Lines:
    """A sink that keeps what is written."""

    def __init__(self):
        self.lines = []

    def write(self, level, message, detail="", *, logger="", fields=None):
        self.lines.append((level, logger, message))


@pytest.fixture
def log():
    """An EventLog at 0 s, with its sink and levels."""
    sink, levels = Lines(), broker_levels()
    found = EventLog(Loggers(sink, levels), lambda: found.now_ms)
    found.now_ms, found.sink, found.levels = 0, sink, levels
    return found


def reported_events():
    """Each event that a broker reports: name -> the fields of each call."""
    found = {}
    for path in Path(kctl.__file__).parent.joinpath("broker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "event":
                continue
            if node.args and isinstance(node.args[0], ast.Constant):
                fields = {keyword.arg for keyword in node.keywords}
                if getattr(node.func.value, "id", "") in ("outcome", "result"):
                    # The shard's host adds it.
                    fields.add("partition")
                found.setdefault(node.args[0].value, []).append(fields)
    return found


def test_every_line_is_of_an_event_that_has_its_fields():
    reported = reported_events()
    for name, line in EVENT_LINES.items():
        wanted = {field for _, field, _, _ in string.Formatter().parse(line.text) if field}
        assert reported[name], name
        assert all(wanted <= fields for fields in reported[name]), name
        assert line.logger in NAMES


def test_an_event_has_a_line_of_the_logger_of_its_part(log):
    log.event("brokers_changed", new=[1, 2], bounced=[], dead=[3])
    log.event("isr_altered", partition=TopicPartition("orders", 0), isr=(1, 2), before=3)
    log.event("not_for_the_log", partition=7)

    assert log.sink.lines == [
        ("INFO", CONTROLLER, "Brokers: new 1, 2, registered again none, gone 3"),
        ("INFO", "kafka.server.ReplicaManager", "Partition orders-0: the ISR is now 1, 2"),
    ]


def test_what_happens_to_single_partitions_is_shown_on_request(log):
    election = {
        "partition": TopicPartition("orders", 0), "leader": 1, "leader_epoch": 2, "isr": (1,),
    }  # fmt: skip
    log.event("leader_elected", **election)
    assert log.sink.lines == []
    log.levels.change({STATE_CHANGES: LogLevel.DEBUG})
    log.event("leader_elected", **election)
    assert log.sink.lines == [
        ("DEBUG", STATE_CHANGES, "Partition orders-0: leader 1, leader epoch 2, ISR 1")
    ]
    log.levels.change({GROUPS: LogLevel.WARN})
    log.event("group_stable", group="g", generation=1)
    assert len(log.sink.lines) == 1


def test_clients_cannot_fill_the_log_with_events(log):
    for number in range(LINES_PER_SECOND_MAX + 7):
        log.event("group_deleted", group=f"g{number}")
    assert len(log.sink.lines) == LINES_PER_SECOND_MAX
    log.now_ms = 1000
    log.event("group_deleted", group="last")
    assert log.sink.lines[LINES_PER_SECOND_MAX:] == [
        ("WARN", "", "7 lines about events were left out"),
        ("INFO", GROUPS, "Group last is deleted"),
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_names_of_clients_do_not_break_lines(tmp_path, as_json):
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as stream:
        loggers = Loggers(LineTrace(stream, as_json=as_json), broker_levels())
        log = EventLog(loggers, lambda: 0)
        log.event("group_stable", group=HOSTILE, generation=1, partition=3)
    (line,) = path.read_text().splitlines()
    assert "\x1b" not in line
    if as_json:
        found = json.loads(line)
        assert (found["event"], found["group"], found["partition"]) == ("group_stable", HOSTILE, 3)


def test_a_broker_logs_what_happens_to_it_once(tmp_path):
    path = tmp_path / "broker.log"
    with KctlBroker(tmp_path, "--log-file", str(path), "--seed-topic", "orders:3"):
        pass
    lines = [line.partition(" INFO ")[2] for line in path.read_text().splitlines()]
    expected = [
        f"Broker 0 is elected controller, epoch 1 ({CONTROLLER})",
        f"Topic orders has 3 new partitions ({CONTROLLER})",
        "Broker 0 stops (kafka.server.KafkaServer)",
        "Broker 0 has stopped (kafka.server.KafkaServer)",
    ]
    assert [line for line in lines if line in expected] == expected


@pytest.mark.parametrize("as_json", [False, True])
def test_lines_of_several_processes_name_theirs(as_json):
    """In JSON as a field: a prefix would be no JSON."""
    stream = io.StringIO()
    LineTrace(PrefixedStream(stream, "broker 2"), as_json=as_json).info("hello")
    line = stream.getvalue()
    if as_json:
        found = json.loads(line)
        assert (found["process"], found["msg"]) == ("broker 2", "hello")
    else:
        assert line.startswith("broker 2: [")
