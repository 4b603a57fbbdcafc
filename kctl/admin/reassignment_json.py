"""Parses and writes the JSON files of kafka-reassign-partitions: target replicas, and topics to
move.

    {"version": 1, "partitions": [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}]}
    {"version": 1, "topics": [{"topic": "t"}]}

Pure. Kafka 2.7: kafka.admin.ReassignPartitionsCommand (parsePartitionReassignmentData,
formatAsReassignmentJson); KIP-113.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kctl.admin.json_file import VERSION, parse_items, typed
from kctl.errors import UsageError
from kctl.model import TopicPartition

ANY_LOG_DIR = "any"
_HINT = "the format is that of kafka-reassign-partitions"


class Reassignment(NamedTuple):
    """Target replicas, and the log directories of some of them."""

    replicas: dict[TopicPartition, tuple[int, ...]]
    log_dirs: dict[tuple[TopicPartition, int], str]


def parse_reassignment(text: str, name: str) -> Reassignment:
    """Return the reassignment in a file; raise UsageError that names the file and the place."""
    found = Reassignment({}, {})
    items = parse_items(text, "partitions", name, _HINT)
    for index, item in enumerate(items):
        place = f"{name}: partitions[{index}]"
        tp = TopicPartition(typed(item, "topic", str, place), typed(item, "partition", int, place))
        replicas = typed(item, "replicas", list, place)
        if tp in found.replicas:
            raise UsageError(f"{place}: {tp} appears twice")
        if not replicas or not all(type(broker) is int and broker >= 0 for broker in replicas):
            raise UsageError(f"{place}: replicas must be a list of broker ids, not {replicas}")
        if len(set(replicas)) < len(replicas):
            raise UsageError(f"{place}: {tp} has a broker twice: {replicas}")
        found.replicas[tp] = tuple(replicas)
        _read_log_dirs(found, tp, item.get("log_dirs"), place)
    if not found.replicas:
        raise UsageError(f"{name} names no partition")
    return found


def _read_log_dirs(found: Reassignment, tp: TopicPartition, paths: Any, place: str) -> None:
    if paths is None:
        return
    replicas = found.replicas[tp]
    if not isinstance(paths, list) or len(paths) != len(replicas):
        raise UsageError(f"{place}: log_dirs must have one entry for each replica")
    for broker, path in zip(replicas, paths, strict=True):
        if path != ANY_LOG_DIR:
            if not isinstance(path, str) or not path.startswith("/"):
                raise UsageError(
                    f'{place}: a log directory is an absolute path or "any", not {path}'
                )
            found.log_dirs[tp, broker] = path


def parse_topics_to_move(text: str, name: str) -> list[str]:
    """Return the topics in a `--topics-to-move-json-file`, in order; raise UsageError."""
    items = parse_items(text, "topics", name, _HINT)
    topics = [typed(it, "topic", str, f"{name}: topics[{i}]") for i, it in enumerate(items)]
    if not topics:
        raise UsageError(f"{name} names no topic")
    return list(dict.fromkeys(topics))


def format_reassignment(
    replicas: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[tuple[TopicPartition, int], str] | None = None,
) -> str:
    """Return one line of JSON as Kafka writes it, with a line end."""
    paths = log_dirs or {}
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(brokers),
            "log_dirs": [paths.get((tp, broker), ANY_LOG_DIR) for broker in brokers],
        }
        for tp, brokers in sorted(replicas.items())
    ]
    document = {"version": VERSION, "partitions": partitions}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"
