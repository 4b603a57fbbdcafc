"""The bytes that members of groups hold are limited, and released with them."""

import gc
import sys

import pytest

from kctl.broker.coordinator.group import member_memory
from kctl.protocol.error_codes import ErrorCode
from tests.support.group_invariants import check_groups
from tests.support.group_world import SESSION_MS, GroupWorld
from tests.support.turn_work import counted_calls

LARGE = {"range": bytes(1000)}
# "client-" and a uuid, "client", "/127.0.0.1" and the group's id.
NAME_BYTES = 43 + 6 + 10 + 1
LARGE_BYTES = member_memory.size_of(NAME_BYTES, LARGE)
ASSIGNED_BYTES = LARGE_BYTES + len(b"part of 0")


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    check_groups(world.shard)


def held(world):
    return world.service.memory.held_bytes


def test_a_member_beyond_the_limit_of_its_group_is_rejected(world, monkeypatch):
    monkeypatch.setattr(member_memory, "GROUP_BYTES_MAX", 2 * LARGE_BYTES + 500)
    for _ in range(2):
        world.join(required=False, protocols=LARGE)
    refused = world.join(required=False, protocols=LARGE)
    assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert held(world) == 2 * LARGE_BYTES
    other = world.join(required=False, protocols=LARGE, group_id="h")
    assert not other.responses
    assert held(world) == 3 * LARGE_BYTES


def test_a_member_beyond_the_limit_of_all_groups_is_rejected(world, monkeypatch):
    monkeypatch.setattr(member_memory, "BROKER_BYTES_MAX", 3 * LARGE_BYTES - 500)
    for number in range(2):
        world.join(required=False, protocols=LARGE, group_id=f"g{number}")
    refused = world.join(required=False, protocols=LARGE, group_id="h")
    assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    monkeypatch.setattr(member_memory, "BROKER_BYTES_MAX", 3 * LARGE_BYTES)
    small = world.join(required=False, group_id="h")
    assert not small.responses


def test_a_member_with_new_metadata_counts_once(world):
    (one,), _ = world.form_group(1, protocols=LARGE)
    assert held(world) == ASSIGNED_BYTES
    world.join(one, protocols={"range": bytes(10)})
    assert held(world) == ASSIGNED_BYTES - 990


def test_members_that_leave_release_their_bytes(world):
    ids, _ = world.form_group(3, protocols=LARGE)
    assert held(world) == 3 * ASSIGNED_BYTES
    world.leave(*ids)
    assert held(world) == 0


def test_groups_that_move_away_release_their_bytes(world):
    world.form_group(3, protocols=LARGE)
    world.service.on_resigned(0, 1)
    assert held(world) == 0
    world.elect(epoch=2)
    assert held(world) == 3 * ASSIGNED_BYTES


def test_no_reference_to_a_member_remains_after_it_left(world):
    """656 MiB were held for five minutes by cancelled timers of members that had left."""
    gc.collect()
    gc.disable()
    try:
        ids, _ = world.form_group(2, protocols=LARGE)
        members = [it for group in world.shard.groups.values() for it in group.members.values()]
        alone = [object()]
        world.leave(*ids)
        for number in range(len(members)):
            assert sys.getrefcount(members[number]) == sys.getrefcount(alone[0])
    finally:
        gc.enable()


def test_protocol_names_count(world):
    world.join(required=False, client_id="c" * 1000, group_id="h" * 500)
    assert held(world) == member_memory.size_of(1037 + 1000 + 10 + 500, {"range": b"m"})


def test_protocols_without_metadata_count(world, monkeypatch):
    """13,000 of them in a request of 64 KiB held 2.8 MB."""
    monkeypatch.setattr(member_memory, "GROUP_BYTES_MAX", 10 * member_memory.MEMBER_BYTES)
    many = {f"{number}": b"" for number in range(1000)}
    assert world.join(required=False, protocols=many).error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_of_very_many_protocols_is_rejected_before_they_are_examined(world):
    many = {f"{number}": b"" for number in range(2 * member_memory.PROTOCOLS_MAX)}
    with counted_calls() as count:
        refused = world.join(required=False, protocols=many)
    assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    # The request itself is made of a call for each.
    assert count.calls < 3 * len(many)
    few = dict(list(many.items())[: member_memory.PROTOCOLS_MAX])
    assert not world.join(required=False, protocols=few).responses


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_member_that_finds_no_room_leaves_its_partitions_to_the_others(
    world, monkeypatch, is_leader
):
    """The group stayed Stable, and no member consumed them."""
    ids, generation_id = world.form_group(3)
    rejected = ids.pop(0 if is_leader else 1)
    monkeypatch.setattr(member_memory, "GROUP_BYTES_MAX", world.group().member_bytes)
    assert world.join(rejected, protocols=LARGE).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    errors = {world.heartbeat(member_id, generation_id) for member_id in ids}
    assert errors == {ErrorCode.REBALANCE_IN_PROGRESS}
    answers = [world.join(member_id) for member_id in ids]
    assert [answer.response.generation_id for answer in answers] == [generation_id + 1] * 2
    assert list(world.group().members) == ids


def test_members_that_wait_for_a_leader_that_finds_no_room_join_again(world, monkeypatch):
    leader, joined = world.enter()
    other, _ = world.enter()
    while not joined.is_there:
        world.advance(1_000)
    waiting = world.sync(other, joined.response.generation_id)
    monkeypatch.setattr(member_memory, "GROUP_BYTES_MAX", world.group().member_bytes)
    assert world.join(leader, protocols=LARGE).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(other).response.leader == other


def test_pending_member_ids_count_as_members(world, monkeypatch):
    monkeypatch.setattr(member_memory, "BROKER_BYTES_MAX", 10 * member_memory.MEMBER_BYTES)
    errors = [world.join(group_id=f"g{number}").error for number in range(12)]
    assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * 9 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 3
    assert 9 * member_memory.MEMBER_BYTES < held(world) <= member_memory.BROKER_BYTES_MAX


def test_a_member_that_joins_with_its_id_counts_once(world):
    world.enter(protocols=LARGE)
    assert held(world) == LARGE_BYTES


@pytest.mark.parametrize("is_expired", [True, False])
def test_a_group_that_never_had_a_member_goes_with_its_last_member_id(world, is_expired):
    """Such groups were kept for up to ten minutes, without being counted."""
    ids = [world.new_member_id(), world.new_member_id()]
    if is_expired:
        world.advance(SESSION_MS)
    else:
        assert world.leave(ids[0]) == [ErrorCode.NONE]
        assert list(world.shard.groups) == ["g"]
        assert world.leave(ids[1]) == [ErrorCode.NONE]
    assert not world.shard.groups
    assert held(world) == 0


def test_a_group_with_offsets_outlives_its_last_member_id(world):
    world.commit({("t", 0): 7})
    world.new_member_id()
    world.advance(SESSION_MS)
    assert world.committed() == {("t", 0): 7}
    assert held(world) == 0
