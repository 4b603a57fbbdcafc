"""What KafkaBroker shows of transactions that are open, committed or aborted."""

import threading

import pytest
from confluent_kafka import Producer

from kctl.errors import UsageError

TIMEOUT_S = 120


def values(broker):
    return [record.value for record in broker.records("orders")]


def write_transactions(broker, *, leave_open=False):
    """Write "committed" in a committed transaction, "aborted" in an aborted one, and return the
    producer of an open one that wrote "open"."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop"}
    client = Producer({**settings, "log_level": 0})
    client.init_transactions(TIMEOUT_S)
    for value, end in (
        ("committed", client.commit_transaction),
        ("aborted", client.abort_transaction),
        ("open", None),
    ):
        if value == "open" and not leave_open:
            break
        client.begin_transaction()
        client.produce("orders", value, partition=0)
        client.flush(TIMEOUT_S)
        if end is not None:
            end(TIMEOUT_S)
    return client


def test_records_leaves_out_open_and_aborted_transactions(kafka_broker):
    kafka_broker.create_topic("orders", partitions=2)
    client = write_transactions(kafka_broker, leave_open=True)
    kafka_broker.produce("orders", "after", partition=0)
    kafka_broker.produce("orders", "other", partition=1)
    assert values(kafka_broker) == [b"committed", b"other"]
    assert [it.value for it in kafka_broker.records("orders", 0)] == [b"committed"]
    everything = kafka_broker.records("orders", isolation="read_uncommitted")
    assert [it.value for it in everything] == [
        b"committed",
        b"aborted",
        b"open",
        b"after",
        b"other",
    ]
    since = kafka_broker.records_since("orders", {0: 2}, isolation="read_uncommitted")
    assert [it.value for it in since] == [b"aborted", b"open", b"after", b"other"]
    assert [it.value for it in kafka_broker.records_since("orders", {0: 2})] == [b"other"]
    client.commit_transaction(TIMEOUT_S)
    assert values(kafka_broker) == [b"committed", b"open", b"after", b"other"]


def test_an_aborted_transaction_does_not_satisfy_assert_produces(kafka_broker):
    kafka_broker.create_topic("orders")
    client = write_transactions(kafka_broker)
    client.begin_transaction()

    def write_and_abort():
        client.produce("orders", "lost")
        client.flush(TIMEOUT_S)
        client.abort_transaction(TIMEOUT_S)

    with (
        pytest.raises(AssertionError, match=r"found 0; read_committed hides 1 more"),
        kafka_broker.assert_produces("orders", timeout=0.05),
    ):
        write_and_abort()


def test_an_open_transaction_does_not_satisfy_assert_produces(kafka_broker):
    kafka_broker.create_topic("orders")
    client = write_transactions(kafka_broker)
    client.begin_transaction()

    def write(value):
        client.produce("orders", value)
        client.flush(TIMEOUT_S)

    with (
        pytest.raises(AssertionError, match=r"expected 1 record .* found 0"),
        kafka_broker.assert_produces("orders", count=1, timeout=0.05),
    ):
        write("undecided")
    with kafka_broker.assert_produces("orders", count=1, isolation="read_uncommitted") as records:
        write("undecided, too")
    assert [it.value for it in records] == [b"undecided, too"]
    client.abort_transaction(TIMEOUT_S)


def test_assert_produces_counts_records_and_not_markers(kafka_broker):
    """A committed transaction of one record has two offsets."""
    kafka_broker.create_topic("orders")
    client = write_transactions(kafka_broker)

    def second_transaction():
        client.begin_transaction()
        client.produce("orders", "2")
        client.commit_transaction(TIMEOUT_S)

    with kafka_broker.assert_produces("orders", count=2) as records:
        client.begin_transaction()
        client.produce("orders", "1")
        client.commit_transaction(TIMEOUT_S)
        later = threading.Timer(0.2, second_transaction)
        later.start()
    later.join()
    assert [it.value for it in records] == [b"1", b"2"]


def test_assert_produces_counts_a_partition_beside_an_open_transaction(kafka_broker):
    kafka_broker.create_topic("orders", partitions=2)
    client = write_transactions(kafka_broker, leave_open=True)
    with kafka_broker.assert_produces("orders", count=1, timeout=TIMEOUT_S):
        kafka_broker.produce("orders", "tea", partition=1)
    client.abort_transaction(TIMEOUT_S)


def test_an_unknown_isolation_is_refused(kafka_broker):
    kafka_broker.create_topic("orders")
    for call in (kafka_broker.records, kafka_broker.assert_produces):
        with pytest.raises(UsageError, match="isolation='committed'"):
            call("orders", isolation="committed")
