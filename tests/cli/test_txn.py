"""kctl txn, kctl produce --transactional-id, kctl consume --isolation."""

import errno
import os

import pytest

from kctl.cli.records import record_input
from kctl.protocol.error_codes import ErrorCode
from tests.support.transaction_requests import RawProducer, find_coordinators


@pytest.fixture
def begun(address, topic):
    """A producer whose transaction is open in partition 0, with one record."""
    find_coordinators(address, topic, topic)
    producer = RawProducer(address, topic)
    assert producer.init() is ErrorCode.NONE
    assert producer.add(topic, 0) == [ErrorCode.NONE]
    assert producer.produce(topic, "open") is ErrorCode.NONE
    yield producer
    producer.close()


def committed(on, topic, count):
    """Return what read_committed consumers see; markers are written after the commit's response."""
    argv = ("consume", topic, "-m", count, "--from-beginning", "--isolation", "read_committed")
    return on(*argv).lines


def test_records_of_one_command_are_one_transaction(on, topic):
    ran = on("produce", topic, "a", "b", "c", "--transactional-id", topic)
    assert (ran.status, ran.err) == (0, f"3 records written to {topic}\n")
    assert committed(on, topic, 3) == ["a", "b", "c"]
    [document] = on("txn", "list", topic, "-o", "json").documents
    assert document["state"] == "CompleteCommit"
    # The same id again, as in a nightly job.
    assert on("produce", topic, "d", "--transactional-id", topic).status == 0


def test_a_malformed_record_leaves_nothing_to_committed_readers(on, topic, tmp_path):
    path = tmp_path / "records"
    path.write_text('{"value": "a"}\n{"value": \n')
    ran = on("produce", topic, "-f", path, "-i", "ndjson", "--transactional-id", topic)
    assert ran.status == 1
    assert "the transaction was aborted" in ran.err
    assert on("consume", topic, "-e", "--read-committed").lines == []
    assert on("consume", topic, "-e", "--isolation", "read_uncommitted").lines == ["a"]


def test_an_input_that_cannot_be_read_to_its_end_aborts_the_transaction(on, topic, monkeypatch):
    def failing(descriptor):
        yield [b"a"]
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(record_input, "line_chunks", failing)
    ran = on("produce", topic, "-f", os.devnull, "--transactional-id", topic)
    assert (ran.status, "Input/output error" in ran.err) == (1, True)
    [document] = on("txn", "list", topic, "-o", "json").documents
    # The markers may still be on their way.
    assert document["state"] in ("PrepareAbort", "CompleteAbort")


def test_a_rejected_record_aborts_the_transaction(on, topic):
    ran = on("produce", topic, "a", "-p", 99, "--transactional-id", topic)
    assert ran.status == 1
    assert on("produce", topic, "b", "-p", 0, "--transactional-id", topic).status == 0
    assert committed(on, topic, 1) == ["b"]


def test_invalid_usage_is_status_2(on, topic):
    ran = on("produce", topic, "a", "--transactional-id", "x", "--acks", "1")
    assert (ran.status, "--acks all" in ran.err) == (2, True)
    ran = on("consume", topic, "-e", "--read-committed", "--isolation", "read_uncommitted")
    assert ran.status == 2
    assert on("txn", "abort").status == 2
    assert on("txn", "abort", "x", "--topic", "t").status == 2
    assert on("txn", "abort", "--topic", "t").status == 2


def test_an_open_transaction_is_described_and_not_hanging(on, topic, begun):
    [document] = on("txn", "describe", topic, "-o", "json").documents
    assert document["state"] == "Ongoing"
    assert document["partitions"] == [{"topic": topic, "partition": 0}]
    assert document["producer_id"] == begun.producer_id
    assert on("txn", "hanging", "--topic", topic, "-o", "json").documents == []


def test_an_unknown_id_is_reported_and_not_created(on, topic, begun):
    ran = on("txn", "describe", f"{topic[:-1]}")
    assert ran.status == 1
    assert f"did you mean {topic}?" in ran.err
    assert on("txn", "abort", "no-such-id", "--yes").status == 1
    assert on("txn", "list", "no-such-id", "-o", "json").documents == []


def test_abort_ends_the_transaction_and_fences_its_producer(on, topic, begun):
    assert on("txn", "abort", topic, "--dry-run").lines[-1].split()[-2:] == ["would", "abort"]
    assert on("txn", "abort", topic, "--yes").status == 0
    assert begun.end(commit=True) in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    assert on("consume", topic, "-e", "--isolation", "read_committed").lines == []


def test_a_hanging_transaction_is_found_and_aborted(on, topic, begun):
    # A record in a partition that was never registered with the coordinator.
    assert begun.produce(topic, "hanging", partition=1) is ErrorCode.NONE
    [document] = on("txn", "hanging", "--topic", topic, "-o", "json").documents
    assert (document["partition"], document["producer_id"]) == (1, begun.producer_id)
    where = ("--topic", topic, "--partition")
    refused = on("txn", "abort", *where, 0, "--yes")
    assert refused.status == 1
    assert "is not hanging" in refused.err
    assert on("txn", "abort", *where, 1, "--yes").status == 0
    assert on("txn", "hanging", "--topic", topic, "-o", "json").documents == []
    assert "no hanging transaction" in on("txn", "abort", *where, 1, "--yes").err
