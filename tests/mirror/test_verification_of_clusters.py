"""Clusters are compared over fetch, with records that a real client wrote, in transactions too."""

from functools import partial

import pytest
from confluent_kafka import Producer

from kctl.mirror.places import ClusterPlace, DirectoryPlace, Loop
from kctl.mirror.verification import VerifyRequest, plan_verification, verify_partition
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker

TIME_MS = 1_700_000_000_000


@pytest.fixture
def brokers():
    settings = {"log.retention.ms": "-1"}
    with (
        KafkaBroker(topics=["orders:2"], settings=settings) as source,
        KafkaBroker(topics=["orders:2"], settings=settings) as target,
    ):
        yield source, target


def place(broker):
    host, port = broker.bootstrap_servers.split(":")
    return ClusterPlace(((host, int(port)),), 30_000)


def verified(source, target):
    with Loop(partial(make_runtime, NullTrace())) as loop:
        tasks = plan_verification(VerifyRequest(source, target, ("orders",)), loop)
    return [verify_partition(task) for task in tasks]


def write(broker, numbers, **config):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
    for number in numbers:
        producer.produce(
            "orders", b"value %d" % number, b"key %d" % number, partition=number % 2,
            timestamp=TIME_MS + number, headers=[("number", b"%d" % number)],
        )  # fmt: skip
    assert producer.flush(60) == 0


def write_transactions(broker, numbers, ends):
    """Write a transaction per range of `numbers`; those of odd `ends` are aborted."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "writer"}
    )
    producer.init_transactions(60)
    for at, end in enumerate(ends):
        producer.begin_transaction()
        for number in numbers[at * 50 : (at + 1) * 50]:
            producer.produce(
                "orders", b"value %d" % number, b"key %d" % number, partition=number % 2,
                timestamp=TIME_MS + number, headers=[("number", b"%d" % number)],
            )  # fmt: skip
        producer.flush(60)
        producer.commit_transaction(60) if end == "commit" else producer.abort_transaction(60)


def test_committed_records_are_equal_whatever_wrote_them(brokers):
    source, target = brokers
    write(source, range(1_000))
    write_transactions(source, range(1_000, 1_200), ("commit", "abort", "abort", "commit"))
    write(target, [*range(1_050), *range(1_150, 1_200)], **{"compression.type": "lz4"})
    found = verified(place(source), place(target))
    assert [it.is_equal for it in found] == [True, True]
    assert [it.result.equal for it in found] == [550, 550]
    logs = DirectoryPlace((str(target.log_directory),))
    assert [it.is_equal for it in verified(place(source), logs)] == [True, True]
    logs = DirectoryPlace((str(source.log_directory),))
    assert [it.is_equal for it in verified(logs, place(target))] == [True, True]


def test_a_record_that_the_target_lacks_is_found(brokers):
    source, target = brokers
    write(source, range(2_000))
    write(target, [number for number in range(2_000) if number != 777])
    even, odd = verified(place(source), place(target))
    assert even.is_equal
    lost = odd.result.differences.listed
    assert [(it.kind.value, it.source_offset, it.target_offset) for it in lost] == [
        ("missing", 388, 388)
    ]


def test_records_of_an_open_transaction_are_not_compared(brokers):
    source, target = brokers
    write(source, range(100))
    producer = Producer({"bootstrap.servers": source.bootstrap_servers, "transactional.id": "w"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush(60)
    write(source, range(100, 200))
    write(target, range(200))
    even, odd = verified(place(source), place(target))
    # What lies after the open transaction's first record is not committed yet.
    assert [(it.kind.value, it.source_offset) for it in even.result.differences.listed] == [
        ("extra", 50)
    ]
    assert odd.is_equal
    producer.abort_transaction(60)


@pytest.mark.parametrize("is_directory", [False, True])
def test_no_pattern_matches_an_internal_topic_or_one_of_a_mirror(brokers, is_directory):
    source, target = brokers
    for name in ("__internal", "kctl-mirror.x.map"):
        source.create_topic(name)
    where = DirectoryPlace((str(source.log_directory),)) if is_directory else place(source)

    def compared(*topics):
        with Loop(partial(make_runtime, NullTrace())) as loop:
            return {
                it.source_partition.topic
                for it in plan_verification(VerifyRequest(where, place(target), topics), loop)
            }

    assert compared("*") == compared() == {"orders"}
    assert "__internal" in compared("__internal")
