"""Heartbeat and LeaveGroup, and the expiry of sessions."""

import pytest

from kctl.broker.coordinator.timers import RETRY_MS
from kctl.protocol.error_codes import ErrorCode
from tests.support.group_invariants import check_groups
from tests.support.group_world import SESSION_MS, GroupWorld


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    check_groups(world.shard)


def test_heartbeats_keep_a_member_alive(world):
    (one,), generation_id = world.form_group(1)
    for _ in range(10):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(one, generation_id) is ErrorCode.NONE
    world.advance(SESSION_MS)
    assert world.heartbeat(one, generation_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_set_no_timers(world):
    (one,), generation_id = world.form_group(1)
    before = world.scheduler.timer_count, len(world.shard.timers._heap)
    for _ in range(1_000):
        world.heartbeat(one, generation_id)
    assert (world.scheduler.timer_count, len(world.shard.timers._heap)) == before


def test_commits_keep_a_member_alive(world):
    (one,), generation_id = world.form_group(1)
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        answer = world.commit({("t", 0): 1}, member_id=one, generation_id=generation_id)
        assert answer.response == [0]
    assert world.heartbeat(one, generation_id) is ErrorCode.NONE


def test_a_member_whose_session_expires_is_removed_and_the_others_rebalance(world):
    (one, two), generation_id = world.form_group(2)
    world.advance(SESSION_MS - 1)
    world.heartbeat(one, generation_id)
    world.advance(1)
    assert list(world.group().members) == [one]
    assert world.heartbeat(one, generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(two, generation_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_session_of_a_waiting_member_does_not_expire(world):
    """Its socket is not read while it waits, so it could not send heartbeats."""
    (one, two), generation_id = world.form_group(2)
    waiting = world.join(one)
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        world.heartbeat(two, generation_id)
    assert not waiting.is_there
    assert world.join(two).error is ErrorCode.NONE
    assert waiting.error is ErrorCode.NONE


def test_a_member_has_a_full_session_after_it_waited(world):
    (one, two), generation_id = world.form_group(2)
    world.join(one)
    world.advance(SESSION_MS - 1)
    world.heartbeat(two, generation_id)
    world.join(two)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(one, generation_id + 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("group_id", "member", "generation", "error"),
    [
        ("g", None, 1, ErrorCode.NONE),
        ("g", None, 0, ErrorCode.ILLEGAL_GENERATION),
        ("g", None, 2, ErrorCode.ILLEGAL_GENERATION),
        ("g", "nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("another", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, 1, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_heartbeats_are_checked(world, group_id, member, generation, error):
    (one,), _ = world.form_group(1)
    assert world.heartbeat(member or one, generation, group_id=group_id) is error


def test_a_heartbeat_between_join_and_sync_is_fine(world):
    one, _ = world.enter()
    world.advance(SESSION_MS - 1)
    assert world.state() == "CompletingRebalance"
    assert world.heartbeat(one, 1) is ErrorCode.NONE


def test_the_last_member_that_leaves_makes_the_group_empty(world):
    (one,), _ = world.form_group(1)
    assert world.leave(one) == [ErrorCode.NONE]
    assert world.state() == "Empty"
    assert world.group().generation_id == 2
    stored = world.log.records(("__consumer_offsets", 0))
    assert len(stored) == 2  # the assignment, and the empty group


def test_a_member_that_leaves_causes_a_rebalance(world):
    (one, two), generation_id = world.form_group(2)
    assert world.leave(one) == [ErrorCode.NONE]
    assert world.heartbeat(two, generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    answer = world.join(two)
    assert (answer.response.generation_id, answer.response.leader) == (2, two)


def test_a_member_that_a_rebalance_waits_for_may_leave(world):
    (one, two), _ = world.form_group(2)
    waiting = world.join(one)
    assert world.leave(two) == [ErrorCode.NONE]
    assert waiting.response.generation_id == 2


def test_a_pending_member_may_leave(world):
    (one,), _ = world.form_group(1)
    pending = world.new_member_id()
    waiting = world.join(one)
    assert not waiting.is_there
    assert world.leave(pending) == [ErrorCode.NONE]
    assert waiting.response.generation_id == 2
    assert world.join(pending).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_members_cannot_leave(world):
    world.form_group(1)
    assert world.leave("nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.leave("nobody", group_id="another") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.state() == "Stable"


def test_several_members_leave_at_once_each_with_its_own_error(world):
    (one, _two, three), _ = world.form_group(3)
    assert world.leave(one, "nobody", three) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert len(world.group().members) == 1


def test_a_waiting_join_fails_when_its_member_leaves(world):
    (one, _), _ = world.form_group(2)
    waiting = world.join(one)
    world.leave(one)
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert waiting.response.member_id == ""


def test_a_waiting_sync_fails_when_its_member_leaves(world):
    (_, _), (two, _) = world.enter(), world.enter()
    world.advance(SESSION_MS - 1)
    waiting = world.sync(two, 1)
    world.leave(two)
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_all_may_leave_during_the_initial_delay(world):
    one, answer = world.enter()
    world.leave(one)
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(SESSION_MS)
    assert world.state() == "Empty"


def test_a_session_that_cannot_be_ended_does_not_take_others_with_it(world, monkeypatch):
    names = ("before", "broken", "after")
    members = {name: world.form_group(1, group_id=name)[0][0] for name in names}
    for name, member_id in members.items():
        assert world.heartbeat(member_id, 1, group_id=name) is ErrorCode.NONE
    remove = world.shard._rebalance.remove

    def failing(group, *arguments):
        if group.group_id == "broken":
            raise LookupError("a bug")
        remove(group, *arguments)

    monkeypatch.setattr(world.shard._rebalance, "remove", failing)
    with pytest.raises(LookupError):
        world.advance(SESSION_MS)
    world.scheduler.settle()
    counts = {name: len(world.group(name).members) for name in names}
    assert counts == {"before": 0, "broken": 1, "after": 0}
    monkeypatch.undo()
    world.advance(RETRY_MS)
    assert not world.group("broken").members
