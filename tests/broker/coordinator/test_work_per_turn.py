"""The work that a large group, or a shard of many groups, does in one turn of the loop is
limited."""

from itertools import pairwise

import pytest

from kctl.broker.coordinator import shard_host, timers
from kctl.broker.coordinator.group import (
    cleanup,
    group_coordinator,
    group_loader,
    member_memory,
    membership,
    offsets,
    rebalance,
    records,
)
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.versioned import encode_versioned
from kctl.protocol.messages.leave_group import MemberIdentity
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from tests.support.group_invariants import check_groups
from tests.support.group_world import DELAY_MS, REBALANCE_MS, SESSION_MS, GroupWorld
from tests.support.turn_counter import BOUND, COUNT, TurnCounter


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    if 0 in world.service.hosts:
        check_groups(world.shard)


@pytest.fixture
def turns(world, monkeypatch):
    return TurnCounter(world, monkeypatch)


def failing(*_arguments, **_options):
    raise LookupError("a bug")


def enter_all(world, count=COUNT):
    return [world.enter(protocols={"range": b"m%d" % number}) for number in range(count)]


def test_the_answers_of_a_generation_leave_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(shard_host, "REPLIES_PER_TURN", BOUND)
    entered = enter_all(world)
    seen = []

    def unanswered():
        seen.append(sum(answer.is_there for _, answer in entered))
        return turn()

    turn = world.scheduler.turn
    world.scheduler.turn = unanswered
    for _ in range(20):
        world.advance(DELAY_MS)
    assert seen[-1] == COUNT
    assert max(after - before for before, after in pairwise(seen)) <= BOUND


def test_the_record_of_a_generation_is_built_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(rebalance, "MEMBERS_PER_TURN", BOUND)
    turns.watch(rebalance, "stored_member")
    world.form_group(COUNT)
    turns.check(total=COUNT)


def test_a_generation_that_ends_before_its_record_is_made_is_not_stored(world, monkeypatch):
    monkeypatch.setattr(rebalance, "MEMBERS_PER_TURN", BOUND)
    entered = enter_all(world)
    while not entered[0][1].is_there:
        world.advance(DELAY_MS)
    response = entered[0][1].response
    records = len(world.log.records(world.service.hosts[0].topic_partition))
    monkeypatch.setattr(world.scheduler, "settle", lambda: None)
    synced = world.sync(response.leader, response.generation_id, {})
    world.scheduler.turn()
    other = next(member_id for member_id, _ in entered if member_id != response.leader)
    world.service.leave("g", [MemberIdentity(member_id=other)], lambda _: None)
    monkeypatch.undo()
    world.scheduler.settle()
    assert synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.state() == "PreparingRebalance"
    assert len(world.log.records(world.service.hosts[0].topic_partition)) == records


def test_a_group_with_many_offsets_is_deleted_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(cleanup, "UNITS_PER_STEP", BOUND)
    world.commit({("t", number): 1 for number in range(COUNT + 2)})
    turns.watch(cleanup, "offset_record")
    answer = world.delete_groups("g")
    turns.check(total=COUNT + 2)
    assert answer.response == {"g": 0}
    assert not world.shard.groups


def test_a_member_that_joins_ends_the_deletion_of_its_group(world, monkeypatch):
    monkeypatch.setattr(cleanup, "UNITS_PER_STEP", BOUND)
    world.commit({("t", number): 1 for number in range(COUNT)})
    codes = []
    world.service.delete_groups(["g"], codes.append)
    world.join(required=False)
    assert codes == [{"g": ErrorCode.NON_EMPTY_GROUP}]
    assert 0 < len(world.group().offsets.committed) < COUNT


def test_a_deletion_that_outlives_its_shard_is_answered(world, monkeypatch):
    monkeypatch.setattr(cleanup, "UNITS_PER_STEP", BOUND)
    world.commit({("t", number): 1 for number in range(COUNT)})
    codes = []
    world.service.delete_groups(["g"], codes.append)
    world.service.on_resigned(0, 1)
    world.scheduler.settle()
    assert codes == [{"g": ErrorCode.NOT_COORDINATOR}]


def test_a_shard_is_unloaded_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(group_coordinator, "UNITS_PER_TURN", BOUND)
    for number in range(COUNT):
        world.join(required=False, group_id=f"g{number}")
    turns.watch(world.shard._rebalance, "mark_dead")
    world.service.on_resigned(0, 1)
    world.scheduler.settle()
    turns.check(total=COUNT)
    assert world.service.memory.held_bytes == 0


def load_partly(world, monkeypatch):
    """Begin to load a shard of COUNT groups, and return when it holds memory of some."""
    monkeypatch.setattr(group_loader, "UNITS_PER_TURN", BOUND)
    for number in range(COUNT):
        world.form_group(1, group_id=f"g{number}")
    world.service.on_elected(0, 1)
    while world.service.memory.held_bytes == 0:
        assert world.scheduler.turn()


def test_a_shard_is_loaded_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(group_loader, "UNITS_PER_TURN", BOUND)
    for number in range(COUNT):
        world.form_group(1, group_id=f"g{number}")
    turns.watch(group_loader.GroupLoader, "_restore")
    world.elect(epoch=1)
    turns.check(total=COUNT)
    assert len(world.shard.groups) == COUNT


def test_a_large_group_is_loaded_over_many_turns(world, turns, monkeypatch):
    ids, generation_id = world.form_group(COUNT)
    monkeypatch.setattr(group_loader, "UNITS_PER_TURN", BOUND)
    turns.watch(group_loader, "Member")
    world.elect(epoch=1)
    turns.check(total=COUNT)
    assert list(world.group().members) == ids
    assert world.heartbeat(ids[-1], generation_id) is ErrorCode.NONE


def read_partly(world, monkeypatch):
    """Write one batch of COUNT commits of a transaction, and its end; begin to load them, and
    return after the first BOUND."""
    monkeypatch.setattr(group_loader, "RECORDS_PER_TURN", BOUND)
    world.commit({("t", number): number for number in range(COUNT)}, producer_id=3)
    append_marker(world, ControlRecordType.COMMIT)
    world.service.on_elected(0, 1)


def append_marker(world, kind):
    """Write the end of the transaction of producer 3."""
    batch = marker_batch(
        EndTransactionMarker(kind, 0), producer_id=3, producer_epoch=0, timestamp=0
    )
    world.log.append(("__consumer_offsets", 0), batch, lambda code, offset: None)


def test_a_large_batch_is_loaded_over_many_turns(world, turns, monkeypatch):
    read_partly(world, monkeypatch)
    turns.watch(group_loader, "read_record")
    world.scheduler.settle()
    turns.check(total=COUNT)
    assert world.committed() == {("t", number): number for number in range(COUNT)}


def test_the_end_of_a_large_transaction_is_loaded_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(offsets, "ENDED_PER_TURN", BOUND)
    read_partly(world, monkeypatch)
    turns.watch(offsets.GroupOffsets, "replay")
    world.scheduler.settle()
    turns.check(total=COUNT)
    assert world.committed(stable=True) == {("t", number): number for number in range(COUNT)}


def test_a_shard_that_is_closed_within_a_batch_loads_nothing_more(world, turns, monkeypatch):
    read_partly(world, monkeypatch)
    turns.watch(group_loader, "read_record")
    while not turns.total:
        assert world.scheduler.turn()
    world.service.on_resigned(0, 2)
    world.scheduler.settle()
    turns.check(total=BOUND)
    assert world.service.hosts == {}


def test_a_shard_whose_batch_cannot_be_read_to_its_end_coordinates_nothing(world, monkeypatch):
    read_partly(world, monkeypatch)
    left = iter(range(BOUND + 1))

    def failing(key, value):
        if next(left, None) is None:
            raise CorruptDataError("a record")
        return read(key, value)

    read = group_loader.read_record
    monkeypatch.setattr(group_loader, "read_record", failing)
    world.scheduler.settle()
    assert world.describe("g").error_code == ErrorCode.NOT_COORDINATOR


def test_a_shard_that_is_closed_while_loading_releases_its_memory(world, monkeypatch):
    load_partly(world, monkeypatch)
    world.service.on_resigned(0, 2)
    world.scheduler.settle()
    assert world.service.memory.held_bytes == 0


@pytest.mark.parametrize(
    ("kind", "expected"), [(ControlRecordType.COMMIT, 9), (ControlRecordType.ABORT, 5)]
)
def test_a_transaction_that_ends_while_groups_are_built_is_settled(
    world, monkeypatch, kind, expected
):
    world.commit({("t", 0): 5}, group_id="x")
    world.commit({("t", 0): 9}, group_id="x", producer_id=3)
    load_partly(world, monkeypatch)
    assert world.describe("x").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    append_marker(world, kind)
    world.end_transaction(3, is_commit=kind is ControlRecordType.COMMIT)
    world.scheduler.settle()
    assert world.committed(("t", 0), group_id="x", stable=True) == {("t", 0): expected}
    check_groups(world.shard)


def test_a_transaction_that_ends_while_the_log_is_read_is_settled(world, monkeypatch):
    monkeypatch.setattr(group_loader, "RECORDS_PER_TURN", BOUND)
    world.commit({("t", number): number for number in range(COUNT)}, producer_id=3)
    world.service.on_elected(0, 1)
    for _ in range(2):
        world.scheduler.turn()
    append_marker(world, ControlRecordType.COMMIT)
    world.end_transaction(3, is_commit=True)
    assert world.describe("g").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.scheduler.settle()
    assert world.committed(stable=True) == {("t", number): number for number in range(COUNT)}


def test_sessions_that_end_together_end_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(timers, "FIRED_PER_CALL_MAX", BOUND)
    world.form_group(COUNT)
    turns.watch(world.shard._rebalance, "remove")
    world.advance(2 * SESSION_MS)
    turns.check(total=COUNT)
    assert not world.group().members


def test_assignments_count_like_members(world):
    world.form_group(3)
    before = world.service.memory.held_bytes
    members = list(world.group().members.values())
    assert [len(member.assignment) for member in members] == [9, 9, 9]
    world.leave(*[member.member_id for member in members])
    assert [member.assignment for member in members] == [b"part of %d" % n for n in range(3)]
    names = len("g") + members[0].name_bytes
    assert before == 3 * member_memory.size_of(names, {"range": b"m"}, bytes(9))
    assert world.service.memory.held_bytes == 0


def test_an_assignment_beyond_the_bound_is_refused_as_one_too_large_to_store(world, monkeypatch):
    bytes_max = member_memory.MEMBER_BYTES + member_memory.PROTOCOL_BYTES + 500
    monkeypatch.setattr(member_memory, "GROUP_BYTES_MAX", bytes_max)
    member_id, answer = world.enter()
    while not answer.is_there:
        world.advance(DELAY_MS)
    generation_id = answer.response.generation_id
    refused = world.sync(member_id, generation_id, {member_id: bytes(600)})
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group().members[member_id].assignment == b""


def test_an_assignment_of_very_many_members_is_read_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(membership, "ASSIGNMENTS_PER_TURN", BOUND)
    entered = enter_all(world, 2)
    while not entered[0][1].is_there:
        world.advance(DELAY_MS)
    generation_id = entered[0][1].response.generation_id
    leader, other = (member_id for member_id, _ in entered)
    plan = {f"unknown{number}": b"" for number in range(COUNT)} | {other: b"part"}
    before = turns.turn
    assert world.sync(leader, generation_id, plan).error is ErrorCode.NONE
    assert turns.turn - before >= COUNT // BOUND
    assert world.sync(other, generation_id).response.assignment == b"part"


def test_an_assignment_of_a_generation_that_ends_while_it_is_read_is_not_stored(world, monkeypatch):
    monkeypatch.setattr(membership, "ASSIGNMENTS_PER_TURN", 1)
    entered = enter_all(world, 2)
    while not entered[0][1].is_there:
        world.advance(DELAY_MS)
    leader, other = (member_id for member_id, _ in entered)
    records = len(world.log.records(world.service.hosts[0].topic_partition))
    monkeypatch.setattr(world.scheduler, "settle", lambda: None)
    plan = {leader: b"part", other: b"part"}
    synced = world.sync(leader, entered[0][1].response.generation_id, plan)
    world.service.leave("g", [MemberIdentity(member_id=other)], lambda _: None)
    monkeypatch.undo()
    world.scheduler.settle()
    assert synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(world.log.records(world.service.hosts[0].topic_partition)) == records


def test_an_assignment_whose_record_cannot_be_made_is_answered(world, monkeypatch):
    monkeypatch.setattr(rebalance, "MEMBERS_PER_TURN", BOUND)
    entered = enter_all(world)
    while not entered[0][1].is_there:
        world.advance(DELAY_MS)
    response = entered[0][1].response
    scheduler = world.scheduler
    monkeypatch.setattr(scheduler, "settle", lambda: None)
    synced = world.sync(response.leader, response.generation_id, {})
    monkeypatch.undo()
    monkeypatch.setattr(rebalance, "stored_member", failing)
    with pytest.raises(LookupError):
        scheduler.settle()
    scheduler.settle()
    assert synced.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_assignment_whose_record_fails_at_once_is_answered(world, monkeypatch):
    member_id, joined = world.enter()
    while not joined.is_there:
        world.advance(DELAY_MS)
    generation_id = joined.response.generation_id
    settle = world.scheduler.settle
    monkeypatch.setattr(world.scheduler, "settle", lambda: None)
    monkeypatch.setattr(rebalance, "stored_member", failing)
    synced = world.sync(member_id, generation_id, {member_id: b"a"})
    monkeypatch.undo()
    with pytest.raises(LookupError):
        settle()
    settle()
    assert synced.error is ErrorCode.UNKNOWN_SERVER_ERROR
    # The next generation can be stored.
    rejoined = world.join(member_id).response
    assert world.sync(member_id, rejoined.generation_id, {member_id: b"a"}).response.error_code == 0


def test_a_deletion_that_fails_in_a_later_turn_is_answered(world, monkeypatch):
    monkeypatch.setattr(cleanup, "UNITS_PER_STEP", BOUND)
    world.commit({("t", number): 1 for number in range(COUNT)})
    codes = []
    world.service.delete_groups(["g"], codes.append)
    monkeypatch.setattr(cleanup, "offset_record", failing)
    with pytest.raises(LookupError):
        world.scheduler.settle()
    assert codes == [{"g": ErrorCode.UNKNOWN_SERVER_ERROR}]


def test_a_shard_that_cannot_be_loaded_is_not_said_to_load(world, monkeypatch):
    load_partly(world, monkeypatch)
    monkeypatch.setattr(group_loader.GroupLoader, "_restore", failing)
    with pytest.raises(LookupError):
        world.scheduler.settle()
    assert world.describe("g0").error_code == ErrorCode.NOT_COORDINATOR


def test_a_shard_that_cannot_be_loaded_in_its_first_turn_is_not_said_to_load(world, monkeypatch):
    world.commit({("t", 0): 5})
    monkeypatch.setattr(group_loader, "read_record", failing)
    world.service.on_elected(0, 1)
    with pytest.raises(LookupError):
        world.scheduler.settle()
    assert world.describe("g").error_code == ErrorCode.NOT_COORDINATOR


def test_the_responses_of_a_generation_are_made_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(shard_host, "REPLIES_PER_TURN", BOUND)
    turns.watch(rebalance, "JoinGroupResponse")
    entered = [world.join(required=False, protocols={"range": b"m%d" % n}) for n in range(COUNT)]
    while not entered[-1].is_there:
        world.advance(DELAY_MS)
    turns.check(total=COUNT)
    assert sum(len(answer.response.members) for answer in entered) == COUNT


def test_a_generation_is_announced_as_it_began_though_members_leave_meanwhile(world, monkeypatch):
    monkeypatch.setattr(shard_host, "REPLIES_PER_TURN", BOUND)
    entered = [world.join(required=False) for n in range(COUNT)]
    while not entered[0].is_there:
        world.advance(DELAY_MS - 1)
        world.clock.now_ms += 1
        world.scheduler.turn()
    assert not entered[-1].is_there
    leader, generation_id = entered[0].response.leader, entered[0].response.generation_id
    last = list(world.group().members)[-1]
    assert world.leave(last) == [ErrorCode.NONE]
    assert entered[-1].response.member_id == last
    assert {answer.response.generation_id for answer in entered} == {generation_id}
    assert {answer.response.leader for answer in entered} == {leader}


def test_the_record_of_a_generation_is_encoded_over_many_turns(world, monkeypatch):
    steps = []

    def encoding_in_steps(message, version):
        for _ in range(COUNT):
            steps.append(world.group().state)
            yield
        return encode_versioned(message, version)

    monkeypatch.setattr(records, "encoding_versioned", encoding_in_steps)
    world.form_group(3)
    assert [state.value for state in steps] == ["CompletingRebalance"] * COUNT
    assert world.state() == "Stable"


def test_members_that_do_not_rejoin_are_removed_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(rebalance, "REMOVED_PER_TURN", BOUND)
    ids, _ = world.form_group(COUNT + 1, session_ms=10 * REBALANCE_MS)
    last = world.join(ids[-1], protocols={"range": b"new"})
    turns.watch(type(world.group()), "remove")
    world.advance(REBALANCE_MS)
    turns.check(total=COUNT)
    assert last.error is ErrorCode.NONE
    assert list(world.group().members) == [ids[-1]]


def test_members_that_do_not_sync_are_removed_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(rebalance, "REMOVED_PER_TURN", BOUND)
    entered = [world.join(required=False, session_ms=10 * REBALANCE_MS) for _ in range(COUNT)]
    while not entered[-1].is_there:
        world.advance(DELAY_MS)
    turns.watch(type(world.group()), "remove")
    world.advance(REBALANCE_MS)
    turns.check(total=COUNT)
    assert not world.group().members


def test_a_static_member_that_returns_is_stored_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(rebalance, "MEMBERS_PER_TURN", BOUND)
    static = world.join(instance_id="static")
    world.form_group(COUNT)
    turns.watch(rebalance, "stored_member")
    again = world.join(instance_id="static")
    turns.check(total=COUNT + 1)
    assert again.error is ErrorCode.NONE
    assert again.response.member_id != static.response.member_id


def test_offsets_of_one_group_expire_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(cleanup, "UNITS_PER_STEP", BOUND)
    world.commit({("t", number): 1 for number in range(COUNT)})
    turns.watch(cleanup, "offset_record")
    world.advance(world.shard.cleanup._settings.offsets_retention_ms + 3_600_000)
    turns.check(total=COUNT)
    assert not world.shard.groups


def test_an_offset_committed_while_others_of_its_group_expire_stays(world, monkeypatch):
    """The expired offsets were listed first and removed in later turns, whatever they were then."""
    monkeypatch.setattr(cleanup, "UNITS_PER_STEP", BOUND)
    world.commit({("t", number): 1 for number in range(COUNT)})
    world.clock.now_ms += world.shard.cleanup._settings.offsets_retention_ms + 1
    host = world.service.hosts[0]
    steps = host.steps(world.shard.cleanup.expire(host.moment()))
    next(steps)
    world.commit({("t", COUNT - 1): 2})
    for _ in steps:
        pass
    world.scheduler.settle()
    assert world.committed() == {("t", COUNT - 1): 2}
