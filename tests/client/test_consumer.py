"""PartitionReader: the records returned, the records left out, and errors."""

import pytest

from kctl.client.consumer import PartitionReader
from kctl.errors import CorruptDataError, NotFoundError
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import EARLIEST_TIMESTAMP, READ_COMMITTED
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import (
    AbortedTransaction,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.runtime.future import sleep
from kctl.testing.scripted_broker import HANG_UP
from tests.support.offset_answers import partition_log

P0, P1 = (TopicPartition("t", number) for number in range(2))
TIME = Position(PositionKind.TIME, 1_000)


def batch(base_offset, *values, producer_id=-1):
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    for value in values:
        builder.append(timestamp=1, key=None, value=value.encode())
    return bytes(builder.build())


def abort_marker(offset, producer_id):
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    return bytes(
        marker_batch(
            marker, base_offset=offset, producer_id=producer_id, producer_epoch=0, timestamp=1
        )
    )


def fetched(data=b"", *, number=0, code=ErrorCode.NONE, aborted=None):
    """Return a response to Fetch of one partition, with `data` from the requested offset on."""
    partition = FetchablePartitionResponse(
        partition=number,
        error_code=int(code),
        record_set=data,
        aborted_transactions=[
            AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in aborted or []
        ],
    )
    return FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partition_responses=[partition])]
    )


@pytest.fixture
def broker(make_broker):
    broker = make_broker({"t": 1})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(5, 9))
    return broker


@pytest.fixture
def read(broker, router_of, run):
    """Read partition 0 until it is done; return the values."""

    def read_all(start, end, **options):
        reader = PartitionReader(
            router_of(broker), {P0: start}, {P0: end}, max_wait_ms=10, **options
        )

        async def work():
            records = []
            while not reader.is_done:
                records += await reader.poll()
            return records

        records = run(work())
        read_all.reader = reader
        return [record.record.value.decode() for record in records]

    return read_all


def test_a_range_begins_and_ends_inside_batches(broker, read):
    broker.answer(ApiKey.FETCH, fetched(batch(0, "a", "b", "c") + batch(3, "d", "e")))

    assert read(1, 4) == ["b", "c", "d"]


def test_a_partition_that_is_at_its_end_is_not_fetched(broker, read):
    assert read(4, 4) == []
    assert broker.requests(ApiKey.FETCH) == []


def test_gaps_of_compaction_do_not_stop_it(broker, read):
    broker.answer(ApiKey.FETCH, fetched(batch(0, "a") + batch(7, "h")))

    assert read(0, 8) == ["a", "h"]


def test_a_truncated_batch_is_fetched_again_from_its_start(broker, read):
    whole = batch(0, "a") + batch(1, "b")
    broker.answer(ApiKey.FETCH, fetched(whole[:-1]), fetched(batch(1, "b")))

    assert read(0, 2) == ["a", "b"]
    assert [
        it.body.topics[0].partitions[0].fetch_offset for it in broker.requests(ApiKey.FETCH)
    ] == [0, 1]


def test_a_batch_larger_than_the_limit_is_fetched_with_a_higher_limit(broker, read):
    """Before Fetch v3 a broker truncates even the first batch."""
    data = batch(0, "x" * 5000)
    broker.answer(ApiKey.FETCH, fetched(data[:1000]), fetched(data))

    assert read(0, 1, partition_bytes_max=1000) == ["x" * 5000]
    sizes = [
        it.body.topics[0].partitions[0].partition_max_bytes for it in broker.requests(ApiKey.FETCH)
    ]
    assert sizes == [1000, len(data)]


def test_committed_readers_see_no_aborted_transaction(broker, read):
    log = batch(0, "open", producer_id=1) + batch(1, "plain") + abort_marker(2, 1)
    log += batch(3, "later", producer_id=1)
    broker.answer(ApiKey.FETCH, fetched(log, aborted=[(1, 0)]))

    assert read(0, 4, isolation_level=READ_COMMITTED) == ["plain", "later"]


def test_uncommitted_readers_see_all_but_markers(broker, read):
    broker.answer(ApiKey.FETCH, fetched(batch(0, "open", producer_id=1) + abort_marker(1, 1)))

    assert read(0, 2) == ["open"]


def test_deleted_records_are_reported_and_skipped(broker, read):
    broker.answer(ApiKey.FETCH, fetched(code=ErrorCode.OFFSET_OUT_OF_RANGE), fetched(batch(5, "f")))

    assert read(0, 6) == ["f"]
    assert read.reader.notes == ["t-0 now begins at 5: 5 records from 0 on are gone"]


@pytest.mark.parametrize("options", [{"end": TIME}, {"until_latest": True}], ids=["end", "latest"])
def test_a_range_whose_end_is_not_found_is_not_read(broker, router_of, run, options):
    """Such a range would be done at once, and look like one without records."""

    def failing_for_ends(request):
        response = partition_log(5, 9)(request)
        if request.body.topics[0].partitions[0].timestamp != EARLIEST_TIMESTAMP:
            for item in response.topics[0].partitions:
                item.error_code = int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
                item.offset = -1
        return response

    broker.answer(ApiKey.LIST_OFFSETS, failing_for_ends)
    start = Position(PositionKind.EARLIEST)

    with pytest.raises(ApiError) as caught:
        run(PartitionReader.over_range(router_of(broker), [P0], start, **options))

    assert caught.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_truncated_partition_is_read_from_its_new_end(broker, router_of, run):
    broker.answer(ApiKey.FETCH, fetched(code=ErrorCode.OFFSET_OUT_OF_RANGE), fetched(batch(9, "j")))
    reader = PartitionReader(router_of(broker), {P0: 20}, max_wait_ms=10)

    assert run(reader.poll()) == []
    assert reader.notes == ["t-0 ends at 9, before 20"]
    [record] = run(reader.poll())
    assert record.record.offset == 9


@pytest.mark.parametrize(
    "trouble", [fetched(code=ErrorCode.NOT_LEADER_OR_FOLLOWER), HANG_UP], ids=["moved", "gone"]
)
def test_a_leader_that_moved_is_looked_for_again(broker, read, trouble):
    broker.answer(ApiKey.FETCH, trouble, fetched(batch(0, "a")))

    assert read(0, 1) == ["a"]


def test_a_permanent_error_is_raised(broker, read):
    broker.answer(ApiKey.FETCH, fetched(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(ApiError, match="t-0"):
        read(0, 1)


def test_a_damaged_batch_raises_an_error(broker, read):
    data = bytearray(batch(0, "a"))
    data[-1] ^= 1
    broker.answer(ApiKey.FETCH, fetched(bytes(data)))

    with pytest.raises(CorruptDataError):
        read(0, 1)


def test_records_that_came_with_an_error_are_returned_before_it(make_broker, router_of, run):
    broker = make_broker({"t": 2})
    response = fetched(batch(0, "a", "b"))
    refused = fetched(number=1, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    response.responses += refused.responses
    broker.answer(ApiKey.FETCH, response, fetched(batch(2, "c")))
    reader = PartitionReader(router_of(broker), {P0: 0, P1: 0}, {P0: 3, P1: 9}, max_wait_ms=10)

    assert [it.record.offset for it in run(reader.poll())] == [0, 1]
    assert not reader.is_done
    with pytest.raises(ApiError, match="t-1"):
        run(reader.poll())
    assert [it.record.offset for it in run(reader.poll())] == [2]


def test_records_before_a_damaged_batch_are_returned_once(broker, router_of, run):
    damaged = bytearray(batch(1, "b"))
    damaged[-1] ^= 1
    broker.answer(
        ApiKey.FETCH,
        fetched(batch(0, "a") + bytes(damaged)),
        fetched(bytes(damaged)),
        fetched(batch(1, "b")),
    )
    reader = PartitionReader(router_of(broker), {P0: 0}, max_wait_ms=10)

    assert [it.record.offset for it in run(reader.poll())] == [0]
    for _ in range(2):
        with pytest.raises(CorruptDataError):
            run(reader.poll())
        assert reader.positions == {P0: 1}
    assert [it.record.offset for it in run(reader.poll())] == [1]


def test_records_of_a_poll_that_was_given_up_are_returned_by_the_next(
    make_broker, router_of, run, loop
):
    """The poll is cancelled while it waits before it looks for the leader of partition 1."""
    broker = make_broker({"t": 2})
    response = fetched(batch(0, "a", "b"))
    response.responses += fetched(number=1, code=ErrorCode.NOT_LEADER_OR_FOLLOWER).responses
    broker.answer(ApiKey.FETCH, response, fetched(batch(2, "c")))
    reader = PartitionReader(router_of(broker), {P0: 0, P1: 0}, {P0: 2, P1: 0}, max_wait_ms=10)

    async def give_up():
        scheduler = loop.runtime.scheduler
        task = scheduler.spawn(reader.poll(), "poll")
        while reader.positions[P0] == 0:
            await sleep(scheduler, 1)
        task.cancel()

    run(give_up())
    assert not reader.is_done
    assert [it.record.offset for it in run(reader.poll())] == [0, 1]
    assert reader.is_done


def test_a_reader_that_may_not_reset_keeps_its_position(broker, router_of, run):
    broker.answer(ApiKey.FETCH, fetched(code=ErrorCode.OFFSET_OUT_OF_RANGE))
    reader = PartitionReader(router_of(broker), {P0: 0}, max_wait_ms=10, resets=False)

    for _ in range(2):
        with pytest.raises(NotFoundError, match="t-0 now begins at 5"):
            run(reader.poll())
    assert reader.positions == {P0: 0}
    assert reader.notes == []
