"""EventLog: the lines that the log of a broker has for events, in words, with a level and a logger.

A line states what an operator asks for afterwards: who led, who left a group and why. What happens
to each of thousands of partitions is DEBUG, unlike in Apache Kafka, where the state change log is a
file of its own. Events whose part writes a line itself have none here.

Kafka 2.7: the messages of kafka.controller, kafka.cluster.Partition, kafka.coordinator
"""

from collections.abc import Callable
from typing import Any, Final

from kctl.broker.loggers import (
    CONTROLLER,
    GROUPS,
    LOGS,
    REPLICAS,
    SERVER,
    STATE_CHANGES,
    TRANSACTIONS,
)
from kctl.lazy_dataclass import dataclass
from kctl.runtime.log_levels import ROOT, Loggers, LogLevel

# Lines in a second, 15 to 20 µs each: clients can cause events at any rate.
LINES_PER_SECOND_MAX: Final = 500

_DEBUG, _INFO, _WARN = LogLevel.DEBUG, LogLevel.INFO, LogLevel.WARN


@dataclass(frozen=True, slots=True)
class EventLine:
    """How the log shows events of one name."""

    logger: str
    level: LogLevel
    # A template of `str.format` with the event's fields.
    text: str


EVENT_LINES: Final = {
    "broker_started": EventLine(
        SERVER, _INFO, "Broker {broker_id} started: kctl {version}, cluster {cluster_id}"
    ),
    "broker_stopping": EventLine(SERVER, _INFO, "Broker {broker_id} stops"),
    "broker_stopped": EventLine(SERVER, _INFO, "Broker {broker_id} has stopped"),
    "config_changed": EventLine(SERVER, _INFO, "The configs of {entity} are now {names}"),
    # The controller
    "controller_elected": EventLine(
        CONTROLLER, _INFO, "Broker {broker_id} is elected controller, epoch {epoch}"
    ),
    "controller_resigned": EventLine(
        CONTROLLER, _INFO, "Broker {broker_id} is no longer the controller"
    ),
    "brokers_changed": EventLine(
        CONTROLLER, _INFO, "Brokers: new {new}, registered again {bounced}, gone {dead}"
    ),
    "partitions_added": EventLine(
        CONTROLLER, _INFO, "Topic {topic} has {partitions} new partitions"
    ),
    "topic_deleted": EventLine(CONTROLLER, _INFO, "Topic {topic} is deleted"),
    "leader_elected": EventLine(
        STATE_CHANGES,
        _DEBUG,
        "Partition {partition}: leader {leader}, leader epoch {leader_epoch}, ISR {isr}",
    ),
    "unclean_election": EventLine(
        STATE_CHANGES,
        _WARN,
        "Partition {partition}: unclean election of leader {leader}; records may be lost",
    ),
    # Replicas and logs
    "isr_altered": EventLine(REPLICAS, _INFO, "Partition {partition}: the ISR is now {isr}"),
    "log_cleaned": EventLine(
        LOGS,
        _DEBUG,
        "Log {partition} is cleaned from offset {first_offset} to {end_offset}: {bytes_before} "
        "bytes before, {bytes_after} after",
    ),
    # Groups
    "coordinator_loaded": EventLine(
        GROUPS, _DEBUG, "Loaded {partition} up to offset {end_offset} in {took_ms} ms"
    ),
    "group_records_skipped": EventLine(
        GROUPS, _WARN, "{count} records of an unknown version were skipped in partition {partition}"
    ),
    "group_preparing_rebalance": EventLine(
        GROUPS, _INFO, "Group {group} prepares a rebalance of generation {generation}: {reason}"
    ),
    "group_member_did_not_rejoin": EventLine(
        GROUPS, _INFO, "Group {group}: member {member} did not rejoin in time and is removed"
    ),
    "group_generation": EventLine(
        GROUPS,
        _INFO,
        "Group {group} begins generation {generation}: {members} members, leader {leader}",
    ),
    "group_stable": EventLine(GROUPS, _INFO, "Group {group} is stable in generation {generation}"),
    "group_empty": EventLine(GROUPS, _INFO, "Group {group} is empty after generation {generation}"),
    "group_member_removed": EventLine(
        GROUPS, _INFO, "Group {group}: member {member} is removed: {reason}"
    ),
    "group_static_member_replaced": EventLine(
        GROUPS, _INFO, "Group {group}: static member {instance} is now {member}"
    ),
    "group_deleted": EventLine(GROUPS, _INFO, "Group {group} is deleted"),
    # Transactions
    "transaction_records_skipped": EventLine(
        TRANSACTIONS,
        _WARN,
        "{count} records of an unknown version were skipped in partition {partition}",
    ),
    "transaction_timed_out": EventLine(
        TRANSACTIONS, _INFO, "The transaction of {transactional_id} timed out and is aborted"
    ),
    "transactional_id_expired": EventLine(
        TRANSACTIONS, _INFO, "Transactional id {transactional_id} expired"
    ),
    "markers_refused": EventLine(
        TRANSACTIONS,
        _INFO,
        "The markers of {transactional_id} were refused with {error}: another completes them",
    ),
}


class EventLog:
    """The Trace behind the loggers of a broker: it receives all events, and writes lines for those
    in EVENT_LINES, LINES_PER_SECOND_MAX at most."""

    def __init__(self, loggers: Loggers, now_ms: Callable[[], int]) -> None:
        """Write to `loggers`; `now_ms` is a monotonic clock."""
        self._loggers = loggers
        self._now_ms = now_ms
        self._second = -1
        self._lines_left = 0
        self._left_out = 0

    def event(self, name: str, /, **fields: object) -> None:
        """Write the event's line, if it has one whose level is enabled."""
        line = EVENT_LINES.get(name)
        if line is None or not self._loggers.is_enabled(line.logger, line.level):
            return
        if not self._has_room():
            self._left_out += 1
            return
        message = line.text.format_map({key: _in_text(it) for key, it in fields.items()})
        in_json = {key: _in_json(it) for key, it in fields.items()}
        self._loggers.log(line.logger, line.level, message, fields={"event": name, **in_json})

    def info(self, message: str) -> None:
        """Write a line at level INFO."""
        self._loggers.log(ROOT, LogLevel.INFO, message)

    def warning(self, message: str, detail: str = "") -> None:
        """Write a line at level WARN and the lines of `detail`."""
        self._loggers.log(ROOT, LogLevel.WARN, message, detail)

    def _has_room(self) -> bool:
        """Return whether this second has room for a line, and count it."""
        second = self._now_ms() // 1000
        if second != self._second:
            self._second, self._lines_left = second, LINES_PER_SECOND_MAX
            if self._left_out:
                self.warning(f"{self._left_out} lines about events were left out")
                self._left_out = 0
        if not self._lines_left:
            return False
        self._lines_left -= 1
        return True


def _in_text(value: Any) -> str:
    if type(value) in (tuple, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _in_json(value: Any) -> object:
    # Not TopicPartition, a tuple that has a text of its own.
    if type(value) in (tuple, list):
        return list(map(_in_json, value))
    return value if value is None or type(value) in (bool, int, str) else str(value)
