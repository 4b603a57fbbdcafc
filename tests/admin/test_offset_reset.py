"""OffsetReset."""

import pytest

from kctl.admin.group_descriptions import GroupDescription, MemberDescription
from kctl.admin.offset_reset import ResetKind, ResetTarget, why_not_resettable
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from tests.support.offset_answers import committed, partition_log

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def plan(make_broker, admin_of, run):
    """Make plans for group g, which committed 5 in partition 0 of a log [3, 9)."""
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
        (None, None, "no committed offset to shift"),
    ]
    assert plan(ResetTarget(ResetKind.SHIFT, shift=-9))[0] == (5, 3, "-4 is before the start")
    assert plan(ResetTarget(ResetKind.SHIFT, shift=9))[0] == (5, 9, "14 is after the end")


def test_to_current_is_the_end_where_nothing_is_committed(plan):
    assert plan(ResetTarget(ResetKind.CURRENT)) == [(5, 5, ""), (None, 9, "")]


def test_without_partitions_the_committed_ones_are_reset(plan):
    target = ResetTarget(ResetKind.POSITION, Position(PositionKind.LATEST))

    assert plan(target, None) == [(5, 9, "")]


def answered(request):
    """Answer ListOffsets: the log of partition 0 is [3, 9) and cannot be searched by time."""
    response = partition_log(3, 9, by_time=6)(request)
    for asked, topic in zip(request.body.topics, response.topics, strict=True):
        for wanted, item in zip(asked.partitions, topic.partitions, strict=True):
            if wanted.timestamp >= 0 and wanted.partition_index == 0:
                item.offset = -1
                item.error_code = int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    return response


def test_a_position_that_cannot_be_found_is_an_error_of_its_partition(make_broker, admin_of, run):
    broker = make_broker({"t": 2})
    broker.answer(ApiKey.LIST_OFFSETS, answered)
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5))
    admin = admin_of(broker)
    target = ResetTarget(ResetKind.POSITION, Position(PositionKind.TIME, 1000))

    [broken, found] = run(admin.offset_reset.plan("g", (P0, P1), target))

    assert (broken.current_offset, broken.new_offset, broken.note) == (5, None, "")
    assert broken.error.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert (found.new_offset, found.error) == (6, None)


@pytest.mark.parametrize(
    "target", [ResetTarget(ResetKind.CURRENT), ResetTarget(ResetKind.SHIFT, shift=1)]
)
def test_a_commit_that_is_not_known_is_neither_kept_nor_shifted(make_broker, admin_of, run, target):
    broker = make_broker({"t": 2})
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))
    response = committed(t0=-1, t1=5)
    response.topics[0].partitions[0].error_code = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    broker.answer(ApiKey.OFFSET_FETCH, response)

    [broken, found] = run(admin_of(broker).offset_reset.plan("g", (P0, P1), target))

    assert (broken.new_offset, broken.note) == (None, "")
    assert broken.error.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert (found.new_offset, found.error) == (5 + target.shift, None)


def test_only_a_group_without_members_may_be_reset():
    member = MemberDescription("m", None, "c", "h")
    missing = ApiError(ErrorCode.GROUP_ID_NOT_FOUND)

    assert why_not_resettable(GroupDescription("g", "Empty")) is None
    assert why_not_resettable(GroupDescription("g", "Dead", error=missing)) is None
    assert why_not_resettable(GroupDescription("g", "Stable", members=[member])) == (
        "Group g is Stable with 1 member"
    )
