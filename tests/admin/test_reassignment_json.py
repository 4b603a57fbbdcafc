"""The JSON files of kafka-reassign-partitions, and balancing of log directories."""

import pytest

from kctl.admin.log_dir_plan import LogDirMove, balance_log_dirs
from kctl.admin.log_dirs import LogDirDescription, ReplicaSize
from kctl.admin.reassignment_json import (
    format_reassignment,
    parse_reassignment,
    parse_topics_to_move,
)
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
# As Apache Kafka 2.7.2 prints it.
KAFKAS = (
    '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],'
    '"log_dirs":["any","/d"]},{"topic":"t","partition":1,"replicas":[2],"log_dirs":["any"]}]}\n'
)


def test_kafkas_format_is_read_and_written_unchanged():
    found = parse_reassignment(KAFKAS, "f")
    assert found.replicas == {T0: (1, 2), T1: (2,)}
    assert found.log_dirs == {(T0, 2): "/d"}
    assert format_reassignment(found.replicas, found.log_dirs) == KAFKAS
    assert parse_topics_to_move('{"topics":[{"topic":"b"},{"topic":"a"}]}', "f") == ["b", "a"]


def one(**changes):
    import json

    item = {"topic": "t", "partition": 0, "replicas": [1]} | changes
    return json.dumps({"version": 1, "partitions": [item]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "f is not JSON"),
        ("[]", "f is not a JSON object"),
        ('{"version": 2}', "f has version 2"),
        ("{}", 'f has no list "partitions"'),
        ('{"partitions": [1]}', 'f has no list "partitions"'),
        ('{"partitions": []}', "f names no partition"),
        (one(topic=3), r"partitions\[0\]: topic is missing or of the wrong type"),
        (one(partition="0"), "partition is missing or of the wrong type"),
        (one(replicas=[]), "replicas must be a list of broker ids"),
        (one(replicas=[True]), "replicas must be a list of broker ids"),
        (one(replicas=[-1]), "replicas must be a list of broker ids"),
        (one(replicas=[1, 1]), "t-0 has a broker twice"),
        (one(log_dirs=[]), "one entry for each replica"),
        (one(log_dirs=["d"]), "an absolute path"),
        (KAFKAS.replace('"partition":1', '"partition":0'), "t-0 appears twice"),
    ],
)
def test_errors_in_a_file_are_reported_with_their_place(text, words):
    with pytest.raises(UsageError, match=words):
        parse_reassignment(text, "f")


def directory(path, *sizes, error=None, future=()):
    replicas = [
        ReplicaSize(TopicPartition(path, n), size, 0, n in future) for n, size in enumerate(sizes)
    ]
    return LogDirDescription(1, path, replicas, error)


def test_directories_of_a_broker_are_balanced_with_few_large_replicas():
    moves = balance_log_dirs([directory("/a", 100, 50, 30, 20), directory("/b")])
    assert moves == [LogDirMove(1, TopicPartition("/a", 0), 100, "/a", "/b")]


def test_an_offline_directory_is_ignored():
    broken = directory("/b", error=ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert balance_log_dirs([directory("/a", 100, 50), broken]) == []


def test_a_replica_that_is_already_moving_is_ignored():
    moves = balance_log_dirs([directory("/a", 100, 60, 40, future=[0]), directory("/b")])
    assert [it.partition.partition for it in moves] == [1, 2]
