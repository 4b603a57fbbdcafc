"""Coordinators that move: the broker that coordinates a group or a transaction is killed, another
one takes over, and real clients find it without help."""

import os
import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.broker_client import BrokerClient
from tests.support.local_cluster import PATIENCE_S, LocalCluster, until

pytestmark = pytest.mark.slow

GROUP, TRANSACTION = 0, 1
PARTITIONS = 6
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=500",
    "zookeeper.session.timeout.ms=3000",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
)
TOPICS = ("in", "out")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    words = [word for setting in SETTINGS for word in ("-c", setting)]
    words += [word for topic in TOPICS for word in ("-t", f"{topic}:{PARTITIONS}")]
    with LocalCluster(tmp_path_factory.mktemp("moves"), "--brokers", "3", *words) as cluster:
        yield cluster


@pytest.fixture
def whole(cluster):
    """All brokers run, and every replica is in sync: nothing is lost with any one of them."""
    stopped = [
        str(number) for number, row in cluster.brokers().items() if row["state"] != "running"
    ]
    if stopped:
        cluster.brokers("restart", *stopped)
    topics = [*TOPICS, "__consumer_offsets", "__transaction_state"]
    for kind in (GROUP, TRANSACTION):
        until(lambda kind=kind: coordinator(cluster, kind, "any") is not None)
    for topic in topics:
        until(lambda topic=topic: all(isr == {1, 2, 3} for isr in cluster.isr(topic).values()))
    return cluster


def coordinator(cluster, kind, key):
    """Return the coordinator of `key` according to any live broker, or None while there is none."""
    for row in cluster.brokers().values():
        if row["state"] == "running":
            with BrokerClient(row["address"]) as client:
                answer = client.ask(FindCoordinatorRequest(key=key, key_type=kind))
            return None if answer.error_code else answer.node_id
    return None


def kill_coordinator(cluster, kind, key):
    """kill -9; it stays down. Returns who it was."""
    victim = coordinator(cluster, kind, key)
    os.kill(cluster.brokers()[victim]["pid"], 0)
    assert cluster.brokers("kill", str(victim))[victim]["state"] == "stopped"
    return victim


def produce(cluster, topic, values):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def member(cluster, group, **settings):
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 300,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def read(consumers, wanted):
    """Poll them all until they have seen everything in `wanted`."""
    seen, deadline = [], time.monotonic() + PATIENCE_S
    while not wanted <= set(seen):
        assert time.monotonic() < deadline, f"missing: {sorted(wanted - set(seen))[:5]}"
        for consumer in consumers:
            seen += [it.value() for it in consumer.consume(100, 0.05) if it.error() is None]
    return seen


def is_at_the_end(consumer):
    """Whether a consumer has read all of its partitions."""
    try:
        return all(
            max(it.offset, 0) == consumer.get_watermark_offsets(it, PATIENCE_S)[1]
            for it in consumer.position(consumer.assignment())
        )
    except KafkaException:
        # It has yet to find a leader.
        return False


def committed(cluster, group, topic):
    """Return the committed offset of each partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, number) for number in range(PARTITIONS)]
    )
    found = admin.list_consumer_group_offsets([asked])[group].result(PATIENCE_S)
    return {it.partition: it.offset for it in found.topic_partitions}


def values(tag, count=60):
    return [f"{tag}-{number}".encode() for number in range(count)]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_another_broker_with_its_members_and_offsets(whole, strategy):
    group, before, after = f"group-{strategy}", values(f"a-{strategy}"), values(f"b-{strategy}")
    rebalances = []
    consumers = [member(whole, group, partition_assignment_strategy=strategy) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(["in"], on_assign=lambda *_: rebalances.append("again"))
    produce(whole, "in", before)
    read(consumers, set(before))
    until(
        lambda: (
            [consumer.poll(0.05) for consumer in consumers]
            and sorted(len(consumer.assignment()) for consumer in consumers) == [2, 2, 2]
            # A partition that changed hands was read again by its new owner.
            and all(map(is_at_the_end, consumers))
        )
    )
    for consumer in consumers:
        consumer.commit(asynchronous=False)
    rebalanced, held = len(rebalances), committed(whole, group, "in")
    victim = kill_coordinator(whole, GROUP, group)
    produce(whole, "in", after)
    seen = read(consumers, set(after))
    assert coordinator(whole, GROUP, group) not in (None, victim)
    # The generation moved with the log: no member had to join again, no record came twice.
    assert len(rebalances) == rebalanced
    assert sorted(seen) == sorted(after)
    assert committed(whole, group, "in") == held
    for consumer in consumers:
        consumer.commit(asynchronous=False)
        consumer.close()
    late = member(whole, group)
    late.subscribe(["in"])
    until(lambda: late.poll(0.05) is None and len(late.assignment()) == PARTITIONS)
    assert late.consume(100, 2) == []
    late.close()


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_ends_at_another_coordinator_with_markers_for_all_leaders(
    whole, commit
):
    """Its partitions are led by all brokers, so the new coordinator's markers go to others too."""
    name = f"moved-{commit}"
    producer = Producer(
        {"bootstrap.servers": whole.bootstrap, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    wanted = values(name)
    for number, value in enumerate(wanted):
        producer.produce("out", value, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    source = member(whole, name)
    producer.send_offsets_to_transaction(
        [TopicPartition("in", 0, 5)], source.consumer_group_metadata(), PATIENCE_S
    )
    victim = kill_coordinator(whole, TRANSACTION, name)
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    assert coordinator(whole, TRANSACTION, name) not in (None, victim)
    producer.begin_transaction()
    fences = [f"{name} fence {number}".encode() for number in range(PARTITIONS)]
    for number, fence in enumerate(fences):
        producer.produce("out", fence, partition=number)
    producer.commit_transaction(PATIENCE_S)
    reader = member(whole, f"{name}-reader", isolation_level="read_committed")
    reader.assign([TopicPartition("out", number, 0) for number in range(PARTITIONS)])
    mine = [value for value in read([reader], set(fences)) if value.startswith(name.encode())]
    assert sorted(mine) == sorted([*fences, *(wanted if commit else [])])
    until(lambda: committed(whole, name, "in")[0] == (5 if commit else -1001))
    reader.close()
    source.close()


def test_a_transaction_whose_producer_is_gone_is_aborted_by_the_next_coordinator(whole):
    settings = {"bootstrap.servers": whole.bootstrap, "linger.ms": 0}
    lost = Producer({**settings, "transactional.id": "hangs", "transaction.timeout.ms": 5_000})
    lost.init_transactions(PATIENCE_S)
    lost.begin_transaction()
    lost.produce("out", b"hanging", partition=0)
    assert lost.flush(PATIENCE_S) == 0
    kill_coordinator(whole, TRANSACTION, "hangs")
    produce(whole, "out", [b"behind it"])
    reader = member(whole, "behind", isolation_level="read_committed")
    reader.assign([TopicPartition("out", 0, 0)])
    assert b"hanging" not in read([reader], {b"behind it"})
    reader.close()
