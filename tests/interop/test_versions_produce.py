"""Produce and InitProducerId in every version, on kctl and on Apache Kafka 2.7.2."""

from functools import partial

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import init_producer_id
from kctl.records.memory_records import batches
from tests.support.broker_client import assert_same, plain
from tests.support.twin_requests import (
    CODECS,
    GZIP,
    HIGHEST,
    ZSTD,
    ask_produce,
    comparable_produce,
    error_of,
    fetch_request,
    list_offsets_request,
    partition_answers,
    produce_request,
    read,
    read_down_converted,
    records,
)


@pytest.fixture
def new_topic(new_topic):
    """Topics that keep records with old timestamps, which Apache Kafka deletes 30 seconds after its
    start."""
    return partial(new_topic, retention_ms="-1")


@pytest.mark.parametrize("version", HIGHEST[ApiKey.PRODUCE])
def test_produce_in_every_version_with_every_codec(twins, new_topic, version):
    topic = new_topic()
    count = 0
    for magic in (2,) if version >= 3 else (0, 1):
        for codec in CODECS + ([ZSTD] if version >= 7 else []):
            answer = ask_produce(twins, version, topic, records(magic, codec=codec))
            (partition,) = answer["responses"][0]["partitions"]
            assert (partition["error_code"], partition["base_offset"]) == (0, count)
            count += 3
    assert read(twins, topic, 10) == count


@pytest.mark.parametrize("format_version", ["0.9.0", "0.10.0", "2.7-IV2"])
@pytest.mark.parametrize("compression", ["producer", "gzip", "lz4", "uncompressed"])
def test_topics_of_every_format_take_record_sets_of_every_magic(
    twins, new_topic, format_version, compression
):
    topic = new_topic(message_format_version=format_version, compression_type=compression)
    count = 0
    for version, magic in ((2, 0), (2, 1), (8, 2)):
        for codec in (0, GZIP):
            data = records(magic, codec=codec)
            answer = ask_produce(twins, version, topic, data)
            error = answer["responses"][0]["partitions"][0]["error_code"]
            count += 3 if not error else 0
    assert count
    for version in range(4, 13):
        assert read(twins, topic, version) == count
    for version in range(4):
        # Both cut the answer at the size of what is stored.
        assert 0 < read_down_converted(twins, topic, version) <= count


@pytest.mark.usefixtures("group")
def test_produce_returns_the_errors_of_its_version(twins, new_topic):
    topic = new_topic()
    for version in HIGHEST[ApiKey.PRODUCE]:
        data = records(2 if version >= 3 else 1)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        internal = ErrorCode.INVALID_TOPIC_EXCEPTION
        assert error_of(twins, version, "no-such-topic", data) == unknown
        assert error_of(twins, version, topic, data, acks=2) == ErrorCode.INVALID_REQUIRED_ACKS
        assert error_of(twins, version, "__consumer_offsets", data) == internal
        first, second = partition_answers(twins, version, topic, data, data)
        assert (first["error_code"], second["error_code"]) == (0, unknown)
        damaged = bytearray(data)
        damaged[-1] ^= 1
        assert error_of(twins, version, topic, bytes(damaged)) == ErrorCode.CORRUPT_MESSAGE


def test_newer_batches_in_older_produce_requests(twins, new_topic):
    topic = new_topic()
    for version in range(3):
        assert error_of(twins, version, topic, records(2)) == 0
        assert error_of(twins, version, topic, records(2, codec=GZIP)) == 0
    for version in range(3, 9):
        assert error_of(twins, version, topic, records(1)) == ErrorCode.INVALID_RECORD
        error = error_of(twins, version, topic, records(2) + records(2))
        assert error == ErrorCode.INVALID_RECORD
        expected = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else 0
        assert error_of(twins, version, topic, records(2, codec=ZSTD)) == expected
    assert read(twins, topic) == 3 * (6 + 2)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks(twins, new_topic, acks):
    topic = new_topic()
    for version in HIGHEST[ApiKey.PRODUCE]:
        request = produce_request(topic, records(2 if version >= 3 else 1), acks=acks)
        if version >= 3:
            request.transactional_id = None
        for client in twins.clients:
            client.send(request, version, is_answered=acks != 0)
            if acks:
                client.receive()
        assert read(twins, topic, offset=3 * version) == 3


@pytest.mark.parametrize("version", [2, 7, 8])
def test_records_that_a_topic_refuses(twins, new_topic, version):
    magic = 2 if version >= 3 else 1
    small = new_topic(max_message_bytes="150")
    assert error_of(twins, version, small, records(magic, size=200)) == ErrorCode.MESSAGE_TOO_LARGE
    compacted = new_topic(cleanup_policy="compact")
    assert error_of(twins, version, compacted, records(magic)) == ErrorCode.INVALID_RECORD
    assert error_of(twins, version, compacted, records(magic, count=2)) == 0
    old = new_topic(message_timestamp_difference_max_ms="1000")
    assert error_of(twins, version, old, records(magic)) == ErrorCode.INVALID_TIMESTAMP
    assert error_of(twins, version, old, records(magic, codec=GZIP)) == ErrorCode.INVALID_TIMESTAMP
    segment = new_topic(segment_bytes="200")
    expected = ErrorCode.RECORD_LIST_TOO_LARGE
    assert error_of(twins, version, segment, records(magic, size=200)) == expected
    control = records(2, count=1, is_control=True)
    assert error_of(twins, version, old, control) in (ErrorCode.INVALID_RECORD, -1)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.PRODUCE])
def test_log_append_time_is_the_brokers(twins, new_topic, version):
    topic = new_topic(message_timestamp_type="LogAppendTime")
    (partition,) = partition_answers(twins, version, topic, records(2 if version >= 3 else 1))
    assert partition["log_append_time_ms"] is (version >= 2)
    (ours, theirs) = twins.both(fetch_request(topic, 0), 10)
    for answer in (ours, theirs):
        (partition,) = answer["responses"][0]["partition_responses"]
        (batch,) = batches(partition["record_set"])
        assert batch.timestamp_type == 1
        assert {record.timestamp for record in batch.records()} == {batch.max_timestamp}


def test_idempotent_producers(twins, new_topic):
    topic = new_topic()
    ids = []
    for client in twins.clients:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0
        )
        answers = [client.ask(request, version) for version in HIGHEST[ApiKey.INIT_PRODUCER_ID]]
        assert [answer.error_code for answer in answers] == [0] * 5
        assert {answer.producer_epoch for answer in answers} == {0}
        assert len({answer.producer_id for answer in answers}) == 5
        ids.append(answers[0].producer_id)

    def send(sequence, epoch=0, **options):
        answers = []
        for client, producer_id in zip(twins.clients, ids, strict=True):
            data = records(
                2, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options
            )
            request = produce_request(topic, data)
            request.transactional_id = None
            answers.append(comparable_produce(plain(client.ask(request, 8))))
        assert_same(*answers)
        (partition,) = answers[0]["responses"][0]["partitions"]
        return partition["error_code"], partition["base_offset"]

    assert send(0) == (0, 0)
    assert send(3) == (0, 3)
    assert send(0) == (0, 0)
    assert send(3) == (0, 3)
    assert send(9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    for sequence in range(6, 21, 3):
        assert send(sequence)[0] == 0
    assert send(0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, epoch=1) == (0, 21)
    assert send(3, epoch=0)[0] != 0
    assert send(5, epoch=2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(3, epoch=1, codec=GZIP) == (0, 24)


def test_an_open_transaction_holds_read_committed_back(twins, new_topic):
    topic = new_topic()
    assert error_of(twins, 8, topic, records(2)) == 0
    data = records(2, producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True)
    for version in HIGHEST[ApiKey.PRODUCE]:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert error_of(twins, version, topic, data) == refused
    assert error_of(twins, 8, topic, data, transactional_id="x") == 0
    assert error_of(twins, 8, topic, records(2)) == 0
    for version in range(4, 13):
        assert read(twins, topic, version) == 9
        assert read(twins, topic, version, isolation_level=1) == 3
    for version in range(2, 6):
        request = list_offsets_request(topic, -1)
        request.isolation_level = 1
        answer = twins.ask(request, version)
        assert answer["topics"][0]["partitions"][0]["offset"] == 3
