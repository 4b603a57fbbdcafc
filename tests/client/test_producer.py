"""Producer: batches, retries, sequences, old formats."""

import pytest

from kctl.client.batch_numbers import EPOCH_MAX
from kctl.client.producer import BATCH_BYTES_MAX, NewRecord, Outcome, Producer
from kctl.client.producer_transaction import ProducerTransaction
from kctl.errors import UnsupportedVersionError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kctl.protocol.messages.init_producer_id import InitProducerIdResponse
from kctl.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.records.compression import ZSTD
from kctl.records.memory_records import batches


def answering(*codes, base_offset=100):
    """Answer each Produce with the next code for all its partitions; the last code repeats."""
    left = list(codes)

    def answer(request):
        code = left.pop(0) if len(left) > 1 else left[0]
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partitions=[
                        PartitionProduceResponse(
                            partition_index=it.partition_index,
                            error_code=int(code),
                            base_offset=-1 if code else base_offset,
                        )
                        for it in topic.partitions
                    ],
                )
                for topic in request.body.topics
            ]
        )

    return answer


@pytest.fixture
def broker(make_broker):
    """A broker that assigns producer id 7 and accepts everything."""
    broker = make_broker({"t": 3})
    broker.answer(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(producer_id=7, producer_epoch=0))
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.NONE))
    return broker


@pytest.fixture
def produce(router_of, run):
    """Send records with a new Producer."""

    def send(broker, records, **options):
        return run(Producer(router_of(broker), "t", **options).send(records))

    return send


def sent(broker):
    """Return (partition, batch) of all received batches, in order."""
    return [
        (partition.partition_index, batch)
        for request in broker.requests(ApiKey.PRODUCE)
        for topic in request.body.topics
        for partition in topic.partitions
        for batch in batches(bytes(partition.records))
    ]


def values(batch):
    return [record.value for record in batch.records()]


def test_records_of_one_partition_share_a_batch_and_keep_their_order(broker, produce):
    records = [NewRecord(value=str(n).encode(), partition=n % 2) for n in range(6)]

    results = produce(broker, records)

    batches_by_partition = dict(sent(broker))
    assert values(batches_by_partition[0]) == [b"0", b"2", b"4"]
    assert values(batches_by_partition[1]) == [b"1", b"3", b"5"]
    assert [(it.partition, it.offset) for it in results] == [
        (0, 100), (1, 100), (0, 101), (1, 101), (0, 102), (1, 102),
    ]  # fmt: skip


def test_a_large_input_is_split_into_batches_that_are_sent_in_order(broker, produce):
    size = BATCH_BYTES_MAX // 3
    records = [NewRecord(value=bytes([n]) * size, partition=0) for n in range(5)]

    produce(broker, records)

    found = [batch for _, batch in sent(broker)]
    assert [values(batch)[0][0] for batch in found] == [0, 2, 4]
    assert all(batch.size <= BATCH_BYTES_MAX for batch in found)


def test_a_lost_leader_is_found_again_and_the_same_batch_sent_again(broker, produce):
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE))

    [result] = produce(broker, [NewRecord(value=b"v", partition=0)])

    assert result.error is None
    first, second = [batch for _, batch in sent(broker)]
    assert first.to_bytes() == second.to_bytes()
    assert (first.producer_id, first.base_sequence) == (7, 0)


def test_sequences_continue_from_batch_to_batch(broker, router_of, run):
    producer = Producer(router_of(broker), "t")

    run(producer.send([NewRecord(value=b"a", partition=0), NewRecord(value=b"b", partition=0)]))
    run(producer.send([NewRecord(value=b"c", partition=0), NewRecord(value=b"d", partition=1)]))

    assert [(p, batch.base_sequence) for p, batch in sent(broker)] == [(0, 0), (0, 2), (1, 0)]


def test_a_duplicate_was_written_by_an_earlier_try(broker, produce):
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))

    [result] = produce(broker, [NewRecord(value=b"v", partition=0)])

    assert result.error is None
    assert result.offset == -1


def test_a_permanent_error_is_reported_at_once(broker, produce):
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.MESSAGE_TOO_LARGE))

    [result] = produce(broker, [NewRecord(value=b"v", partition=0)])

    assert result.error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert len(broker.requests(ApiKey.PRODUCE)) == 1


def numbers(broker):
    """Return producer id, epoch, partition and sequence of all received batches, in order."""
    return [
        (batch.producer_id, batch.producer_epoch, partition, batch.base_sequence)
        for partition, batch in sent(broker)
    ]


@pytest.fixture
def short_producer(broker, router_of):
    """A producer whose time is over before its first retry."""
    return Producer(router_of(broker), "t", timeout_ms=90)


def write(producer, run, *partitions):
    """Write a record to each of `partitions`; return the outcomes."""
    results = run(producer.send([NewRecord(value=b"v", partition=it) for it in partitions]))
    return [it.outcome for it in results]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, Outcome.UNKNOWN),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Outcome.UNKNOWN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Outcome.REJECTED),
        (ErrorCode.UNKNOWN_PRODUCER_ID, Outcome.REJECTED),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Outcome.REJECTED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Outcome.REJECTED),
    ],
)
def test_when_the_next_number_is_unknown_an_epoch_begins(
    broker, short_producer, run, code, outcome
):
    """Whether the batch, or an earlier try of it, was written or not: what follows is accepted."""
    assert write(short_producer, run, 0, 1) == [Outcome.WRITTEN] * 2
    broker.answer(ApiKey.PRODUCE, answering(code))
    assert write(short_producer, run, 0) == [outcome]
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.NONE))
    assert write(short_producer, run, 0, 1) == [Outcome.WRITTEN] * 2
    assert write(short_producer, run, 0, 1) == [Outcome.WRITTEN] * 2

    assert numbers(broker) == [
        (7, 0, 0, 0), (7, 0, 1, 0), (7, 0, 0, 1), (7, 1, 0, 0), (7, 1, 1, 0), (7, 1, 0, 1),
        (7, 1, 1, 1),
    ]  # fmt: skip


def test_a_batch_that_is_refused_for_its_records_leaves_its_numbers_to_the_next(
    broker, short_producer, run
):
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE))

    write(short_producer, run, 0)
    write(short_producer, run, 0)

    assert numbers(broker) == [(7, 0, 0, 0), (7, 0, 0, 0)]


def test_after_the_last_epoch_comes_another_producer_id(broker, short_producer, run):
    broker.answer(
        ApiKey.INIT_PRODUCER_ID,
        InitProducerIdResponse(producer_id=7, producer_epoch=EPOCH_MAX),
        InitProducerIdResponse(producer_id=8, producer_epoch=0),
    )
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE))

    write(short_producer, run, 0)
    write(short_producer, run, 0)

    assert numbers(broker) == [(7, EPOCH_MAX, 0, 0), (8, 0, 0, 0)]


def test_after_a_write_that_was_given_up_an_epoch_begins(broker, router_of, run, loop):
    producer = Producer(router_of(broker), "t")
    broker.hold(ApiKey.PRODUCE)
    given_up = loop.scheduler.spawn(producer.send([NewRecord(value=b"v", partition=0)]))
    loop.until(lambda: broker.requests(ApiKey.PRODUCE))
    given_up.cancel()
    loop.until(lambda: given_up.done)
    broker.release()

    write(producer, run, 0)

    assert numbers(broker) == [(7, 0, 0, 0), (7, 1, 0, 0)]


def test_a_transaction_keeps_its_epoch_and_the_numbers_that_are_out_of_step(broker, router_of, run):
    router = router_of(broker)
    broker.answer(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnResponse())
    producer = Producer(router, "t", transaction=ProducerTransaction(router, "x"), timeout_ms=90)
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))

    assert write(producer, run, 0) == [Outcome.REJECTED]
    write(producer, run, 0)

    assert numbers(broker) == [(7, 0, 0, 0), (7, 0, 0, 1)]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_old_formats_have_no_numbers_to_begin_with(make_broker, produce, code):
    broker = make_broker({"t": 1}, versions={ApiKey.PRODUCE: (0, 2)})
    broker.answer(ApiKey.PRODUCE, answering(code))

    [result] = produce(broker, [NewRecord(value=b"v", partition=0)])

    assert result.outcome is Outcome.REJECTED


def test_an_unauthorized_producer_works_without_a_producer_id(broker, produce):
    code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker.answer(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(error_code=code))

    produce(broker, [NewRecord(value=b"v", partition=0)])

    [(_, batch)] = sent(broker)
    assert not batch.has_producer_id


@pytest.mark.parametrize(("version", "magic"), [(1, 0), (2, 1), (3, 2)])
def test_old_brokers_get_the_format_they_know(make_broker, produce, version, magic):
    broker = make_broker(
        {"t": 1}, versions={ApiKey.PRODUCE: (0, version), ApiKey.INIT_PRODUCER_ID: None}
    )
    broker.answer(ApiKey.PRODUCE, answering(ErrorCode.NONE))

    produce(broker, [NewRecord(key=b"k", value=b"v", timestamp=5)])

    [(_, batch)] = sent(broker)
    assert batch.magic == magic
    [record] = batch.records()
    assert (record.key, record.value) == (b"k", b"v")


def test_headers_are_rejected_if_the_broker_does_not_support_them(make_broker, produce):
    broker = make_broker({"t": 1}, versions={ApiKey.PRODUCE: (0, 2)})

    with pytest.raises(UnsupportedVersionError, match="headers"):
        produce(broker, [NewRecord(value=b"v", headers=(("h", b"1"),))])
    assert broker.requests(ApiKey.PRODUCE) == []


def test_zstd_needs_kafka_2_1(make_broker, produce):
    broker = make_broker({"t": 1}, versions={ApiKey.PRODUCE: (0, 6)})

    with pytest.raises(UnsupportedVersionError, match="zstd"):
        produce(broker, [NewRecord(value=b"v")], compression_type=ZSTD)


def test_acks_none_does_not_wait(broker, produce, loop):
    [result] = produce(broker, [NewRecord(value=b"v", partition=2)], acks=0)

    assert result.error is None
    assert result.offset == -1
    loop.until(lambda: broker.requests(ApiKey.PRODUCE))
    assert [partition for partition, _ in sent(broker)] == [2]


def test_an_unknown_topic_is_not_created(make_broker, produce):
    broker = make_broker({"other": 1})

    with pytest.raises(ApiError) as caught:
        produce(broker, [NewRecord(value=b"v")])
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_bad_partition_number_does_not_stop_the_others(broker, produce):
    good, bad = produce(
        broker, [NewRecord(value=b"v", partition=0), NewRecord(value=b"v", partition=9)]
    )

    assert good.error is None
    assert bad.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
