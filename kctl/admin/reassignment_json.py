"""The JSON files of kafka-reassign-partitions: where replicas are to be, and which topics to move.

    {"version": 1, "partitions": [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}]}
    {"version": 1, "topics": [{"topic": "t"}]}

Pure. Kafka 2.7: kafka.admin.ReassignPartitionsCommand (parsePartitionReassignmentData,
formatAsReassignmentJson); KIP-113.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kctl.errors import UsageError
from kctl.model import TopicPartition

ANY_LOG_DIR = "any"
_VERSION = 1
# A file beyond this many partitions is a mistake.
PARTITIONS_MAX = 1_000_000


class Reassignment(NamedTuple):
    """Target replicas, and for some of them the log directory."""

    replicas: dict[TopicPartition, tuple[int, ...]]
    log_dirs: dict[tuple[TopicPartition, int], str]


def parse_reassignment(text: str, name: str) -> Reassignment:
    """What a file asks for; UsageError that names the file and the place."""
    found = Reassignment({}, {})
    items = _list(_document(text, name), "partitions", name)
    for index, item in enumerate(items):
        place = f"{name}: partitions[{index}]"
        tp = TopicPartition(
            _typed(item, "topic", str, place), _typed(item, "partition", int, place)
        )
        replicas = _typed(item, "replicas", list, place)
        if tp in found.replicas:
            raise UsageError(f"{place}: {tp} is there twice")
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
                raise UsageError(f'{place}: a log directory is a whole path or "any", not {path}')
            found.log_dirs[tp, broker] = path


def parse_topics_to_move(text: str, name: str) -> list[str]:
    """The topics of `--topics-to-move-json-file`, in order."""
    items = _list(_document(text, name), "topics", name)
    topics = [_typed(it, "topic", str, f"{name}: topics[{i}]") for i, it in enumerate(items)]
    if not topics:
        raise UsageError(f"{name} names no topic")
    return list(dict.fromkeys(topics))


def format_reassignment(
    replicas: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[tuple[TopicPartition, int], str] | None = None,
) -> str:
    """One line of JSON as Kafka writes it, with a line end."""
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
    document = {"version": _VERSION, "partitions": partitions}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{name} holds no JSON object")
    if document.get("version", _VERSION) != _VERSION:
        raise UsageError(f"{name} is of version {document['version']}; there is only {_VERSION}")
    return document


def _list(document: dict[str, Any], key: str, name: str) -> list[dict[str, Any]]:
    items = document.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UsageError(
            f'{name} has no list "{key}"', hint="as kafka-reassign-partitions takes it"
        )
    if len(items) > PARTITIONS_MAX:
        raise UsageError(f"{name} names {len(items)} things: more than {PARTITIONS_MAX}")
    return items


def _typed(item: dict[str, Any], key: str, kind: type, place: str) -> Any:
    value = item.get(key)
    if type(value) is not kind:
        raise UsageError(f"{place}: {key} is missing or of the wrong type")
    return value
