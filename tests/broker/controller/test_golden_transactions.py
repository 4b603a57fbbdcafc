"""The writes of the controller, against those of Apache Kafka 2.7.2's in a recorded cluster."""

import json
from pathlib import Path

import pytest

from kctl.broker.topic_creation import NewTopic, TopicCreator
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.store import znodes
from kctl.store.errors import NodeExistsError, StoreError
from kctl.store.interface import Check, Create, Delete, Set

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "controller" / "transactions.json").read_text()
)


@pytest.fixture
def written(cluster):
    """Transactions that succeed, in the golden file's form, as the database commits them."""
    transactions = []
    database = cluster.database
    commit, commit_multi, commit_each = (
        database.commit,
        database.commit_multi,
        database.commit_each,
    )

    def recording_commit(session_id, operation):
        result = commit(session_id, operation)
        transactions.append([described(operation)])
        return result

    def recording_multi(session_id, operations):
        result = commit_multi(session_id, operations)
        fenced = isinstance(operations[0], Check)
        done = [described(o) for o in operations if not isinstance(o, Check)]
        transactions.append(done + ([["fenced"]] if fenced else []))
        return result

    def recording_each(session_id, operations, fence):
        operations = list(operations)
        results = commit_each(session_id, operations, fence)
        for operation, result in zip(operations, results, strict=True):
            if not isinstance(result, StoreError):
                transactions.append([described(operation)] + ([["fenced"]] if fence else []))
        return results

    database.commit, database.commit_multi = recording_commit, recording_multi
    database.commit_each = recording_each
    return transactions


def described(operation):
    match operation:
        case Create(path, data):
            return ["create", path, data.decode() or None]
        case Set(path, data):
            return ["setData", path, data.decode()]
        case Delete(path):
            return ["delete", path, None]
    raise AssertionError(operation)


def restore(cluster, before):
    """Create these znodes in the empty store."""
    for path, data in sorted(before.items()):
        make = cluster.store.create_recursive(path, data.encode())
        try:
            cluster.run(make)
        except NodeExistsError:
            cluster.run(cluster.store.set_or_create(path, data.encode()))


def test_a_topic_is_created_by_the_same_writes(cluster, written):
    broker = cluster.start(1, 2, 3)
    creator = TopicCreator(broker.store, broker.cache, broker.controller._config, cluster.runtime)
    written.clear()
    configs = {"min.insync.replicas": "1", "segment.bytes": "4096", "retention.ms": "-1"}
    topic = NewTopic("ep3", assignment={0: [1, 2, 3]}, configs=configs)
    cluster.run(creator.create(topic))
    cluster.settle()
    assert written == GOLDEN["create"]


def test_partitions_are_added_by_the_same_writes(cluster, written):
    broker = cluster.start(1, 2, 3)
    creator = TopicCreator(broker.store, broker.cache, broker.controller._config, cluster.runtime)
    cluster.create_topic("multi", [1, 2], [2, 3], [3, 1], [1, 3], [2, 1], [3, 2])
    written.clear()
    cluster.run(creator.add_partitions("multi", 8, [[1, 3], [2, 1]]))
    cluster.settle()
    # Kafka takes partitions in the order of a hash map.
    assert written[0] == GOLDEN["add_partitions"][0]
    assert sorted(map(str, written[1:])) == sorted(map(str, GOLDEN["add_partitions"][1:]))


def test_a_topic_is_deleted_by_the_same_writes(cluster, written):
    restore(
        cluster,
        {
            znodes.CONTROLLER_EPOCH: "5",
            "/brokers/topics/doomed": '{"version":2,"partitions":{"0":[3],"1":[1]}}',
            "/brokers/topics/doomed/partitions/0/state": '{"controller_epoch":5,"leader":3,'
            '"version":1,"leader_epoch":4,"isr":[3]}',
            "/brokers/topics/doomed/partitions/1/state": '{"controller_epoch":5,"leader":1,'
            '"version":1,"leader_epoch":6,"isr":[1]}',
            "/config/topics/doomed": '{"version":1,"config":{}}',
        },
    )
    for broker_id in (1, 2, 3):
        cluster.register(broker_id)
    for broker in cluster.brokers.values():
        broker.controller.start()
    cluster.settle()
    written.clear()
    cluster.delete_topic("doomed")
    assert written[0] == [["create", "/admin/delete_topics/doomed", None]]
    assert written[1:] == GOLDEN["delete"]


def test_the_next_controller_writes_the_same_states(cluster, written):
    # The live brokers registered before the states were written.
    for broker_id in (1, 3):
        cluster.register(broker_id, auto_leader_rebalance_enable="false")
    restore(cluster, GOLDEN["failover"]["before"])
    for partition in (0, 2):
        failed = LeaderAndIsrRequest, TopicPartition("jbod", partition)
        cluster.brokers[1].errors[failed] = ErrorCode.KAFKA_STORAGE_ERROR
    for broker in cluster.brokers.values():
        broker.controller.start()
    cluster.settle()
    assert cluster.active.broker_id == 1
    cluster.start(2)
    states = {}
    for transaction in written:
        operation, path, data = transaction[0]
        if operation == "setData" and path.endswith("/state"):
            assert transaction[-1] == ["fenced"]
            states.setdefault(path, []).append(data)
    assert states == GOLDEN["failover"]["writes"]
