"""JoinGroup and SyncGroup: how dynamic members become a generation."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from kctl.broker.coordinator.group_coordinator_service import GroupCoordinatorService
from kctl.broker.coordinator.outcome import Outcome
from kctl.protocol.error_codes import ErrorCode
from tests.support.group_invariants import check_groups
from tests.support.group_world import DELAY_MS, REBALANCE_MS, SESSION_MS, GroupWorld

FIVE_MINUTES_MS = 300_000


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    check_groups(world.shard)


def test_a_new_member_gets_an_id_to_rejoin_with(world):
    first = world.join(client_id="app")
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.response.member_id.startswith("app-")
    assert len(first.response.member_id) == len("app-") + 36
    assert world.state() == "Empty"
    assert not world.join(first.response.member_id).is_there
    assert world.state() == "PreparingRebalance"


def test_an_old_client_joins_without_a_second_request(world):
    answer = world.join(required=False)
    world.advance(DELAY_MS)
    assert answer.error is ErrorCode.NONE


def test_an_id_that_is_not_used_in_time_is_forgotten(world):
    member_id = world.new_member_id(session_ms=SESSION_MS)
    world.advance(SESSION_MS)
    assert world.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_generation_begins_after_the_initial_delay(world):
    member_id, answer = world.enter()
    world.advance(DELAY_MS - 1)
    assert not answer.is_there
    world.advance(1)
    response = answer.response
    assert (response.error_code, response.generation_id) == (0, 1)
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert (response.leader, response.member_id) == (member_id, member_id)
    assert [(m.member_id, m.metadata) for m in response.members] == [(member_id, b"m")]
    assert world.state() == "CompletingRebalance"


def test_the_initial_delay_is_prolonged_while_members_come(world):
    _, first = world.enter()
    world.advance(DELAY_MS - 1_000)
    _, second = world.enter()
    world.advance(1_000)
    assert not first.is_there
    world.advance(DELAY_MS)
    assert first.response.generation_id == second.response.generation_id == 1
    assert len(first.response.members) == 2


def test_the_initial_delay_never_goes_beyond_the_rebalance_timeout(world):
    timeout_ms = 2 * DELAY_MS + 1_000
    _, first = world.enter(rebalance_ms=timeout_ms)
    waited_ms = 0
    while not first.is_there:
        world.enter(rebalance_ms=timeout_ms)
        world.advance(1_000)
        waited_ms += 1_000
        assert waited_ms <= timeout_ms
    assert waited_ms == timeout_ms


def test_without_an_initial_delay_the_generation_begins_at_once():
    world = GroupWorld({"group.initial.rebalance.delay.ms": "0"}).elect()
    _, answer = world.enter()
    assert answer.response.generation_id == 1


def test_only_the_leader_gets_the_list_of_members(world):
    answers = dict(world.enter(protocols={"range": b"%d" % n}) for n in range(3))
    world.advance(2 * DELAY_MS)
    leader, *others = answers.values()
    assert [m.metadata for m in leader.response.members] == [b"0", b"1", b"2"]
    assert all(other.response.members == [] for other in others)
    assert {answer.response.leader for answer in answers.values()} == {leader.response.member_id}


def test_all_get_what_the_leader_assigned_once_it_is_stored(world):
    world.log.is_holding = True
    (one, joined), (two, _) = world.enter(), world.enter()
    world.advance(2 * DELAY_MS)
    follower = world.sync(two, 1)
    leader = world.sync(one, 1, {one: b"for one", two: b"for two"})
    assert joined.response.leader == one
    assert world.state() == "CompletingRebalance"
    assert not leader.is_there
    assert not follower.is_there
    world.log.release()
    assert (leader.response.assignment, follower.response.assignment) == (b"for one", b"for two")
    assert leader.response.protocol_name == "range"
    assert world.state() == "Stable"


def test_a_member_without_an_assignment_gets_an_empty_one(world):
    (one, _), (two, _) = world.enter(), world.enter()
    world.advance(2 * DELAY_MS)
    world.sync(one, 1, {one: b"all"})
    assert world.sync(two, 1).response.assignment == b""


def test_a_leader_that_syncs_twice_does_not_change_the_assignment(world):
    world.log.is_holding = True
    one, _ = world.enter()
    world.advance(DELAY_MS)
    first = world.sync(one, 1, {one: b"first"})
    second = world.sync(one, 1, {one: b"second"})
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS  # replaced by the second request
    world.log.release()
    assert second.response.assignment == b"first"
    assert len(world.log.records(("__consumer_offsets", 0))) == 1


def test_sync_after_the_group_is_stable_gives_the_assignment_again(world):
    (one, two), generation_id = world.form_group(2)
    assert world.sync(two, generation_id).response.assignment == b"part of 1"
    assert world.sync(one, generation_id, {one: b"new"}).response.assignment == b"part of 0"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_invalid_joins_are_rejected_and_create_no_group(world, options, error):
    assert world.join(**options).error is error
    assert world.list_groups() == (0, [])


def test_a_member_without_a_common_protocol_is_rejected(world):
    world.form_group(1, protocols={"range": b""})
    assert world.join(protocols={"sticky": b""}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() == "Stable"


@pytest.mark.parametrize(
    ("member", "generation", "options", "error"),
    [
        ("nobody", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, {}, ErrorCode.ILLEGAL_GENERATION),
        (None, 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 1, {"group_id": "another"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_invalid_syncs_are_rejected(world, member, generation, options, error):
    (one,), _ = world.form_group(1)
    assert world.sync(member or one, generation, **options).error is error


def test_a_second_member_makes_the_first_join_again(world):
    (one,), _ = world.form_group(1)
    two, joined = world.enter()
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync(one, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert not joined.is_there
    again = world.join(one)
    assert again.response.generation_id == joined.response.generation_id == 2
    assert {m.member_id for m in again.response.members} == {one, two}


def test_a_pending_sync_fails_when_another_member_joins(world):
    (one, _), (two, _) = world.enter(), world.enter()
    world.advance(2 * DELAY_MS)
    waiting = world.sync(two, 1)
    world.enter()
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_waits_for_a_pending_member(world):
    (one,), _ = world.form_group(1, session_ms=30_000)
    pending = world.new_member_id(session_ms=30_000)
    answer = world.join(one, protocols={"range": b"changed"})
    world.advance(1_000)
    assert not answer.is_there
    joined = world.join(pending)
    assert answer.response.generation_id == joined.response.generation_id == 2


def test_a_rebalance_completes_when_a_pending_member_expires(world):
    (one,), _ = world.form_group(1)
    world.new_member_id(session_ms=20_000)
    answer = world.join(one, protocols={"range": b"changed"})
    world.advance(20_000)
    assert answer.response.generation_id == 2


def test_members_that_do_not_join_in_time_are_removed(world):
    (one, two), _ = world.form_group(2, session_ms=30_000, rebalance_ms=20_000)
    answer = world.join(one, protocols={"range": b"changed"})
    world.advance(19_999)
    assert not answer.is_there
    world.advance(1)
    assert [m.member_id for m in answer.response.members] == [one]
    assert world.heartbeat(two, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_in_time_is_replaced(world):
    (one, two), _ = world.form_group(2, session_ms=30_000, rebalance_ms=20_000)
    answer = world.join(two, protocols={"range": b"changed"})
    world.advance(20_000)
    assert answer.response.leader == two
    assert one not in world.group().members


def test_a_follower_that_joins_again_unchanged_gets_its_generation(world):
    (one, two), generation_id = world.form_group(2)
    answer = world.join(two)
    assert answer.response.generation_id == generation_id
    assert answer.response.leader == one
    assert answer.response.members == []
    assert world.state() == "Stable"


def test_a_follower_that_changed_its_metadata_makes_a_rebalance(world):
    (_, two), _ = world.form_group(2)
    assert not world.join(two, protocols={"range": b"changed"}).is_there
    assert world.state() == "PreparingRebalance"


def test_a_leader_that_joins_again_makes_a_rebalance(world):
    (one, two), _ = world.form_group(2)
    assert not world.join(one).is_there
    assert world.state() == "PreparingRebalance"
    assert world.join(two).response.generation_id == 2


def test_while_completing_an_unchanged_join_is_answered_with_the_generation(world):
    (one, _), (two, _) = world.enter(), world.enter()
    world.advance(2 * DELAY_MS)
    assert len(world.join(one).response.members) == 2
    assert world.join(two).response.members == []
    assert world.state() == "CompletingRebalance"
    assert not world.join(two, protocols={"range": b"changed"}).is_there
    assert world.state() == "PreparingRebalance"


def test_a_retry_over_another_connection_completes_the_first_request(world):
    (one, _two), _ = world.form_group(2)
    first = world.join(one)
    second = world.join(one)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert not second.is_there


def test_an_assignment_that_cannot_be_stored_restarts_the_rebalance(world):
    one, _ = world.enter()
    world.advance(DELAY_MS)
    world.log.failures.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.sync(one, 1, {one: b"x"}).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "PreparingRebalance"
    assert world.join(one).response.generation_id == 2
    assert world.sync(one, 2, {one: b"y"}).response.assignment == b"y"


@pytest.mark.parametrize(
    ("log_error", "expected"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_the_errors_of_members_when_the_log_rejects_the_group(world, log_error, expected):
    one, _ = world.enter()
    world.advance(DELAY_MS)
    world.log.failures.append(log_error)
    assert world.sync(one, 1, {one: b"x"}).error is expected


def test_an_assignment_that_is_stored_too_late_is_not_sent(world):
    world.log.is_holding = True
    one, _ = world.enter()
    world.advance(DELAY_MS)
    waiting = world.sync(one, 1, {one: b"late"})
    world.enter()
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    world.log.release()
    assert world.state() == "PreparingRebalance"


def test_an_assignment_that_is_stored_too_late_is_not_the_next_generations(world):
    world.log.is_holding = True
    one, _ = world.enter()
    world.advance(DELAY_MS)
    world.sync(one, 1, {one: b"late"})
    two, joined = world.enter()
    assert world.join(one).response.generation_id == joined.response.generation_id == 2
    waiting = world.sync(two, 2)
    world.log.release()
    assert world.state() == "CompletingRebalance"
    assert not waiting.is_there


def test_members_that_never_sync_are_removed(world):
    """KAFKA-12890: the group would wait for the leader forever."""
    (one, _), (two, _) = world.enter(rebalance_ms=20_000), world.enter(rebalance_ms=20_000)
    world.advance(2 * DELAY_MS)
    waiting = world.sync(two, 1)
    for _ in range(4):
        world.advance(5_000)
        world.heartbeat(one, 1)  # the leader lives but does not sync
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(two).response.generation_id == 2


def test_a_new_member_that_waits_too_long_must_retry(world):
    (one,), _ = world.form_group(1, rebalance_ms=2 * FIVE_MINUTES_MS, session_ms=SESSION_MS)
    _, answer = world.enter(rebalance_ms=2 * FIVE_MINUTES_MS)
    for _ in range(FIVE_MINUTES_MS // 5_000):
        world.heartbeat(one, 1)
        world.advance(5_000)
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(world.group().members) == [one]


def test_a_full_group_rejects_new_members():
    world = GroupWorld({"group.max.size": "2"}).elect()
    (one, two), _ = world.form_group(2)
    refused = world.join(required=False)
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.response.member_id == ""
    assert world.state() == "Stable"
    assert world.heartbeat(one, 1) is world.heartbeat(two, 1) is ErrorCode.NONE
    check_groups(world.shard)


def test_of_too_many_concurrent_members_the_first_are_admitted():
    world = GroupWorld({"group.max.size": "2"}).elect()
    entered = [world.join(required=False) for _ in range(4)]
    world.advance(2 * DELAY_MS)
    assert [answer.error for answer in entered] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    check_groups(world.shard)


def test_a_hundred_members_rebalance(world):
    ids, generation_id = world.form_group(100)
    assert len(set(ids)) == 100
    world.enter()
    joins = [world.join(member_id) for member_id in ids]
    assert {answer.response.generation_id for answer in joins} == {generation_id + 1}
    assert sum(bool(answer.response.members) for answer in joins) == 1
    assert world.sync(ids[50], generation_id + 1).responses == []
    plan = {member_id: member_id.encode() for member_id in world.group().members}
    world.sync(ids[0], generation_id + 1, plan)
    assert world.sync(ids[99], generation_id + 1).response.assignment == ids[99].encode()


def test_groups_are_independent(world):
    worlds = {name: world.form_group(2, group_id=name) for name in ("a", "b")}
    world.leave(worlds["a"][0][0], group_id="a")
    assert (world.state("a"), world.state("b")) == ("PreparingRebalance", "Stable")


def test_a_rebalance_that_no_member_joins_leaves_an_empty_group(world):
    (one,), _ = world.form_group(1)
    world.advance(SESSION_MS)
    assert one not in world.group().members
    assert world.state() == "Empty"
    assert world.group().generation_id == 2
    world.advance(REBALANCE_MS)
    assert world.state() == "Empty"


@pytest.mark.parametrize("data", [bytes(16), bytes(range(16)), b"\xff" * 16])
def test_ids_of_members_end_with_a_random_uuid(data):
    entropy = SimpleNamespace(random_bytes=lambda count: data[:count])
    service = SimpleNamespace(_runtime=SimpleNamespace(entropy=entropy))
    assert GroupCoordinatorService._new_uuid(service) == str(UUID(bytes=data, version=4))


def test_members_whose_leader_is_gone_without_a_rebalance_join_again_in_time(world):
    """All that are left have sent SyncGroup, so none is late."""
    (leader, joined), (other, _) = world.enter(), world.enter()
    world.advance(2 * DELAY_MS)
    waiting = world.sync(other, joined.response.generation_id)
    host, outcome = world.service.hosts[0], Outcome()
    world.shard._rebalance.expel(world.group(), world.group().members[leader], outcome)
    host.run(outcome)
    world.advance(REBALANCE_MS)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(other).response.leader == other


def test_an_assignment_that_is_being_stored_is_not_late(world):
    (leader, joined), (other, _) = world.enter(), world.enter()
    world.advance(2 * DELAY_MS)
    world.log.is_holding = True
    answers = [world.sync(member, joined.response.generation_id) for member in (other, leader)]
    world.advance(REBALANCE_MS)
    world.log.release()
    assert [answer.error for answer in answers] == [ErrorCode.NONE] * 2
