"""OffsetsClient."""

import pytest

from kctl.client.offsets import OffsetsClient
from kctl.errors import UnreachableError, UnsupportedVersionError
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from tests.support.offset_answers import committed, partition_log

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("version", [0, 1, 5])
def test_beginnings_and_ends_of_old_and_new_brokers(make_broker, router_of, run, version):
    broker = make_broker({"t": 2}, versions={ApiKey.LIST_OFFSETS: (0, version)})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))
    offsets = OffsetsClient(router_of(broker))

    assert {p: it.offset for p, it in run(offsets.earliest([P0, P1])).items()} == {P0: 3, P1: 3}
    assert {p: it.offset for p, it in run(offsets.latest([P0, P1])).items()} == {P0: 9, P1: 9}


def test_a_partition_that_does_not_exist_has_its_own_error(make_broker, router_of, run):
    broker = make_broker({"t": 1})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))

    found = run(OffsetsClient(router_of(broker)).latest([P0, TopicPartition("gone", 0)]))

    assert found[P0].offset == 9
    assert found[TopicPartition("gone", 0)].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_when_no_leader_can_be_reached_the_whole_request_fails(make_broker, router_of, run):
    broker = make_broker({"t": 2})
    broker.hang_up(ApiKey.LIST_OFFSETS)

    with pytest.raises(UnreachableError):
        run(OffsetsClient(router_of(broker, timeout_ms=1_000)).latest([P0, P1]))


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position(PositionKind.EARLIEST), 3),
        (Position(PositionKind.LATEST), 9),
        (Position(PositionKind.OFFSET, 5), 5),
        (Position(PositionKind.TAIL, 2), 7),
        (Position(PositionKind.TAIL, 20), 3),
        (Position(PositionKind.TIME, 12345), 6),
    ],
)
def test_positions_become_offsets(make_broker, router_of, run, position, expected):
    broker = make_broker({"t": 1})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9, by_time=6))

    assert run(OffsetsClient(router_of(broker)).resolve({P0: position}))[P0].offset == expected


def test_a_time_after_the_last_record_is_the_end(make_broker, router_of, run):
    broker = make_broker({"t": 1})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9, by_time=-1))
    position = Position(PositionKind.TIME, 12345)

    assert run(OffsetsClient(router_of(broker)).resolve({P0: position}))[P0].offset == 9


def test_timestamps_are_not_sent_to_a_broker_that_does_not_support_them(
    make_broker, router_of, run
):
    broker = make_broker({"t": 1}, versions={ApiKey.LIST_OFFSETS: (0, 0)})
    position = Position(PositionKind.TIME, 12345)
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))

    with pytest.raises(UnsupportedVersionError, match="older than"):
        run(OffsetsClient(router_of(broker)).resolve({P0: position}))


def test_all_offsets_of_a_group_are_fetched_by_one_request(make_broker, router_of, run):
    broker = make_broker({"t": 2})
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5, t1=-1))

    found = run(OffsetsClient(router_of(broker)).committed("g"))

    assert {partition: it.offset for partition, it in found.items()} == {P0: 5}
    assert broker.requests(ApiKey.OFFSET_FETCH)[0].body.topics is None


def test_an_old_broker_is_asked_for_every_existing_partition(make_broker, router_of, run):
    broker = make_broker({"t": 2}, versions={ApiKey.OFFSET_FETCH: (0, 1)})
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5, t1=-1))

    found = run(OffsetsClient(router_of(broker)).committed("g"))

    assert list(found) == [P0]
    [request] = broker.requests(ApiKey.OFFSET_FETCH)
    assert [it.partition_indexes for it in request.body.topics] == [[0, 1]]
