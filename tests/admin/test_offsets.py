"""OffsetAdmin and OffsetReset."""

import pytest

from kctl.admin.groups import GroupDescription, MemberDescription
from kctl.admin.offset_reset import ResetKind, ResetTarget, why_not_resettable
from kctl.admin.offsets import Position, PositionKind
from kctl.errors import UnreachableError, UsageError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartitionResponse,
    ListOffsetResponse,
    ListOffsetTopicResponse,
)
from kctl.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def partition_log(start, end, *, by_time=-1):
    """Answers ListOffsets for partitions that hold [start, end); by time: that offset."""

    def answer(request):
        topics = []
        for topic in request.body.topics:
            partitions = []
            for asked in topic.partitions:
                offset = {-2: start, -1: end}.get(asked.timestamp, by_time)
                if request.api_version == 0:
                    item = ListOffsetPartitionResponse(
                        partition_index=asked.partition_index, old_style_offsets=[offset]
                    )
                else:
                    item = ListOffsetPartitionResponse(
                        partition_index=asked.partition_index, offset=offset
                    )
                partitions.append(item)
            topics.append(ListOffsetTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetResponse(topics=topics)

    return answer


def committed(**offsets):
    """An answer to OffsetFetch: `t0=5` is partition 0 of t."""
    partitions = [
        OffsetFetchResponsePartition(partition_index=int(name[1:]), committed_offset=offset)
        for name, offset in offsets.items()
    ]
    topics = [OffsetFetchResponseTopic(name="t", partitions=partitions)]
    return OffsetFetchResponse(topics=topics)


@pytest.mark.parametrize("version", [0, 1, 5])
def test_beginnings_and_ends_of_old_and_new_brokers(make_broker, admin_of, run, version):
    broker = make_broker({"t": 2}, versions={ApiKey.LIST_OFFSETS: (0, version)})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))
    offsets = admin_of(broker).offsets

    assert {p: it.offset for p, it in run(offsets.earliest([P0, P1])).items()} == {P0: 3, P1: 3}
    assert {p: it.offset for p, it in run(offsets.latest([P0, P1])).items()} == {P0: 9, P1: 9}


def test_a_partition_that_does_not_exist_has_its_own_error(make_broker, admin_of, run):
    broker = make_broker({"t": 1})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))

    found = run(admin_of(broker).offsets.latest([P0, TopicPartition("gone", 0)]))

    assert found[P0].offset == 9
    assert found[TopicPartition("gone", 0)].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_when_no_leader_can_be_reached_the_whole_request_fails(make_broker, admin_of, run):
    broker = make_broker({"t": 2})
    broker.hang_up(ApiKey.LIST_OFFSETS)

    with pytest.raises(UnreachableError):
        run(admin_of(broker, timeout_ms=500).offsets.latest([P0, P1]))


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
def test_positions_become_offsets(make_broker, admin_of, run, position, expected):
    broker = make_broker({"t": 1})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9, by_time=6))

    assert run(admin_of(broker).offsets.resolve({P0: position}))[P0].offset == expected


def test_a_time_after_the_last_record_is_the_end(make_broker, admin_of, run):
    broker = make_broker({"t": 1})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9, by_time=-1))
    position = Position(PositionKind.TIME, 12345)

    assert run(admin_of(broker).offsets.resolve({P0: position}))[P0].offset == 9


def test_a_broker_that_cannot_find_times_is_not_asked_to(make_broker, admin_of, run):
    broker = make_broker({"t": 1}, versions={ApiKey.LIST_OFFSETS: (0, 0)})
    position = Position(PositionKind.TIME, 12345)
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))

    with pytest.raises(UsageError, match="older than"):
        run(admin_of(broker).offsets.resolve({P0: position}))


def test_everything_a_group_committed_is_asked_for_at_once(make_broker, admin_of, run):
    broker = make_broker({"t": 2})
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5, t1=-1))

    found = run(admin_of(broker).offsets.committed("g"))

    assert {partition: it.offset for partition, it in found.items()} == {P0: 5}
    assert broker.requests(ApiKey.OFFSET_FETCH)[0].body.topics is None


def test_an_old_broker_is_asked_for_every_partition_there_is(make_broker, admin_of, run):
    broker = make_broker({"t": 2}, versions={ApiKey.OFFSET_FETCH: (0, 1)})
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5, t1=-1))

    found = run(admin_of(broker).offsets.committed("g"))

    assert list(found) == [P0]
    [request] = broker.requests(ApiKey.OFFSET_FETCH)
    assert [it.partition_indexes for it in request.body.topics] == [[0, 1]]


@pytest.fixture
def plan(make_broker, admin_of, run):
    """Plans for group g, which committed 5 in partition 0 of a log [3, 9)."""
    broker = make_broker({"t": 2})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9, by_time=6))
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5))
    admin = admin_of(broker)

    def make(target, partitions=(P0, P1)):
        steps = run(admin.offset_reset.plan("g", partitions, target))
        return [(it.current_offset, it.new_offset, it.note) for it in steps]

    return make


def test_a_plan_to_a_position_moves_all_partitions(plan):
    target = ResetTarget(ResetKind.POSITION, Position(PositionKind.EARLIEST))

    assert plan(target) == [(5, 3, ""), (None, 3, "")]


def test_a_shift_needs_a_commit_and_stays_in_the_log(plan):
    assert plan(ResetTarget(ResetKind.SHIFT, shift=1)) == [
        (5, 6, ""),
        (None, None, "nothing committed to shift"),
    ]
    assert plan(ResetTarget(ResetKind.SHIFT, shift=-9))[0] == (5, 3, "-4 is before the start")
    assert plan(ResetTarget(ResetKind.SHIFT, shift=9))[0] == (5, 9, "14 is beyond the end")


def test_to_current_means_the_end_where_nothing_is_committed(plan):
    assert plan(ResetTarget(ResetKind.CURRENT)) == [(5, 5, ""), (None, 9, "")]


def test_without_partitions_it_is_those_committed(plan):
    target = ResetTarget(ResetKind.POSITION, Position(PositionKind.LATEST))

    assert plan(target, None) == [(5, 9, "")]


def test_only_a_group_without_members_may_be_reset():
    member = MemberDescription("m", None, "c", "h")
    missing = ApiError(ErrorCode.GROUP_ID_NOT_FOUND)

    assert why_not_resettable(GroupDescription("g", "Empty")) is None
    assert why_not_resettable(GroupDescription("g", "Dead", error=missing)) is None
    assert why_not_resettable(GroupDescription("g", "Stable", members=[member])) == (
        "Group g is Stable with 1 members"
    )
