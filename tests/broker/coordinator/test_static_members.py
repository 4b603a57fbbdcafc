"""Static members (KIP-345): their place survives their restart, and only one may hold it."""

import pytest

from kctl.protocol.error_codes import ErrorCode
from tests.support.group_invariants import check_groups
from tests.support.group_world import DELAY_MS, SESSION_MS, GroupWorld


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    check_groups(world.shard)


def test_a_static_member_needs_no_second_join(world):
    answer = world.join(instance_id="i1")
    world.advance(DELAY_MS)
    assert answer.error is ErrorCode.NONE
    assert answer.response.member_id.startswith("i1-")
    assert answer.response.members[0].group_instance_id == "i1"


def test_a_returning_static_member_gets_its_assignment_without_a_rebalance(world):
    (_, old), generation_id = world.form_static_group("i1", "i2")
    back = world.join(instance_id="i2")
    new = back.response.member_id
    assert new != old
    assert (back.response.generation_id, back.response.members) == (generation_id, [])
    assert world.sync(new, generation_id, instance_id="i2").response.assignment == b"part of 1"
    assert world.state() == "Stable"


def test_a_returning_leader_is_not_named_as_leader(world):
    (old, _), _ = world.form_static_group("i1", "i2")
    back = world.join(instance_id="i1")
    assert back.response.leader == old
    assert world.group().leader_id == back.response.member_id


def test_the_previous_holder_of_an_instance_id_is_fenced(world):
    (old,), generation_id = world.form_static_group("i1")
    world.join(instance_id="i1")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(old, generation_id, instance_id="i1") is fenced
    assert world.sync(old, generation_id, instance_id="i1").error is fenced
    assert world.join(old, instance_id="i1").error is fenced
    assert world.leave((old, "i1")) == [fenced]
    committed = world.commit(
        {("t", 0): 1}, member_id=old, generation_id=generation_id, instance_id="i1"
    )
    assert committed.response == [fenced]


def test_a_request_that_waits_with_the_old_id_is_fenced_at_once(world):
    (old, other), _ = world.form_static_group("i1", "i2")
    waiting = world.join(old, instance_id="i1", protocols={"range": b"changed"})
    assert not waiting.is_there
    back = world.join(instance_id="i1")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert not back.is_there
    world.join(other, instance_id="i2")
    assert back.response.generation_id == 2


def test_the_new_id_is_in_the_log_before_its_owner_knows_it(world):
    world.form_static_group("i1")
    world.log.is_holding = True
    back = world.join(instance_id="i1")
    assert not back.is_there
    world.log.release()
    assert back.error is ErrorCode.NONE
    assert back.response.member_id.encode() in world.log.records(("__consumer_offsets", 0))[-1][1]


def test_if_the_new_id_cannot_be_stored_the_old_one_stays(world):
    (old,), generation_id = world.form_static_group("i1")
    world.log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    back = world.join(instance_id="i1", protocols={"range": b"changed"})
    assert back.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert back.response.member_id == ""
    assert world.heartbeat(old, generation_id, instance_id="i1") is ErrorCode.NONE
    assert world.group().members[old].protocols == {"range": b"m"}


def test_a_rebalance_that_begins_while_the_new_id_is_stored_answers_the_owner(world):
    world.form_static_group("i1")
    world.log.is_holding = True
    back = world.join(instance_id="i1")
    _, joined = world.enter()
    assert back.response.generation_id == joined.response.generation_id == 2
    assert back.response.leader == back.response.member_id
    world.log.release()
    assert len(back.responses) == 1
    assert world.state() == "CompletingRebalance"


def test_a_return_with_other_protocols_causes_a_rebalance(world):
    protocols = {"range": b"", "sticky": b""}
    (_, other), _ = world.form_static_group("i1", "i2", protocols=protocols)
    back = world.join(instance_id="i1", protocols={"sticky": b""})
    assert not back.is_there
    assert world.state() == "PreparingRebalance"
    world.join(other, instance_id="i2", protocols=protocols)
    assert back.response.protocol_name == "sticky"


def test_a_return_while_completing_causes_a_rebalance(world):
    first = world.join(instance_id="i1")
    second = world.join(instance_id="i2")
    world.advance(2 * DELAY_MS)
    waiting = world.sync(second.response.member_id, 1, instance_id="i2")
    world.join(instance_id="i1")
    assert world.state() == "PreparingRebalance"
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert first.response.member_id not in world.group().members


def test_a_static_member_that_is_away_keeps_its_place_through_a_rebalance(world):
    (one, two), generation_id = world.form_static_group(
        "i1", "i2", rebalance_ms=20_000, session_ms=60_000
    )
    waiting = world.join(one, instance_id="i1", protocols={"range": b"changed"})
    world.advance(20_000)
    assert {m.member_id for m in waiting.response.members} == {one, two}
    assert world.heartbeat(two, generation_id + 1, instance_id="i2") is ErrorCode.NONE


def test_a_rebalance_waits_until_some_static_member_is_back(world):
    (one, two), _ = world.form_static_group("i1", "i2", rebalance_ms=6_000, session_ms=60_000)
    joining, _ = world.enter(rebalance_ms=6_000)
    world.leave(joining)
    assert world.state() == "PreparingRebalance"
    world.advance(30_000)
    assert world.state() == "PreparingRebalance"
    back = world.join(two, instance_id="i2")
    world.advance(6_000)
    assert back.response.leader == two
    assert {m.member_id for m in back.response.members} == {one, two}


def test_a_static_member_whose_session_ends_loses_its_place(world):
    (_, two), generation_id = world.form_static_group("i1", "i2")
    world.advance(SESSION_MS - 1)
    world.heartbeat(two, generation_id, instance_id="i2")
    world.advance(1)
    assert list(world.group().static_members) == ["i2"]
    assert world.state() == "PreparingRebalance"


def test_an_administrator_removes_members_by_instance_id(world):
    world.form_static_group("i1", "i2")
    assert world.leave(("", "i1"), ("", "i9")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(world.group().static_members) == ["i2"]


def test_a_known_member_with_an_unknown_instance_id_has_to_start_over(world):
    (one,), _ = world.form_group(1)
    assert world.join(one, instance_id="i1").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_and_dynamic_members_share_a_group(world):
    (one,), _ = world.form_static_group("i1", rebalance_ms=20_000)
    two, joined = world.enter(rebalance_ms=20_000)
    world.join(one, instance_id="i1")
    assert {m.group_instance_id for m in world.group().members.values()} == {"i1", None}
    assert joined.response.generation_id == 2
    assert world.heartbeat(two, 2) is ErrorCode.NONE
