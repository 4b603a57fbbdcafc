"""GroupMember against a scripted coordinator."""

import pytest

from kctl.client.assignment import decode_assignment, encode_assignment
from kctl.client.group_member import GroupMember, MemberState
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.internal.consumer_protocol import ConsumerProtocolSubscription, encode_blob
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from kctl.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kctl.protocol.messages.leave_group import LeaveGroupResponse
from kctl.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.protocol.messages.sync_group import SyncGroupResponse
from kctl.testing.scripted_broker import HANG_UP

P0 = TopicPartition("t", 0)


def joined(*, leader="m1", members=(), code=ErrorCode.NONE, generation_id=3):
    return JoinGroupResponse(
        error_code=int(code),
        generation_id=generation_id,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id="m1",
        members=[
            JoinGroupResponseMember(
                member_id=name,
                metadata=encode_blob(ConsumerProtocolSubscription(topics=["t"])),
            )
            for name in members
        ],
    )


def synced(*partitions, code=ErrorCode.NONE):
    blob = encode_assignment(partitions) if not code else b""
    return SyncGroupResponse(error_code=int(code), assignment=blob)


def commit_answer(code):
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=int(code))
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
    )


@pytest.fixture
def broker(make_broker):
    broker = make_broker({"t": 3})
    broker.answer(ApiKey.JOIN_GROUP, joined(leader="other"))
    broker.answer(ApiKey.SYNC_GROUP, synced(P0))
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    broker.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    return broker


@pytest.fixture
def member(broker, router_of):
    return GroupMember(router_of(broker), "g", ["t"], heartbeat_interval_ms=5)


def test_a_follower_takes_what_the_leader_assigned(broker, member, run):
    assert run(member.join()) == [P0]

    assert member.state is MemberState.STABLE
    [request] = broker.requests(ApiKey.SYNC_GROUP)
    assert (request.body.generation_id, request.body.member_id) == (3, "m1")
    assert request.body.assignments == []


def test_the_leader_assigns_for_all_members(broker, member, run):
    broker.answer(ApiKey.JOIN_GROUP, joined(members=("m1", "m2")))

    run(member.join())

    [request] = broker.requests(ApiKey.SYNC_GROUP)
    assignments = {
        it.member_id: decode_assignment(it.assignment) for it in request.body.assignments
    }
    assert assignments == {
        "m1": [TopicPartition("t", 0), TopicPartition("t", 1)],
        "m2": [TopicPartition("t", 2)],
    }


def test_the_member_id_the_coordinator_gives_is_joined_with(broker, member, run):
    """KIP-394: the response to the first JoinGroup only assigns the id."""
    broker.answer(ApiKey.JOIN_GROUP, joined(code=ErrorCode.MEMBER_ID_REQUIRED), joined(leader="x"))

    run(member.join())

    assert [it.body.member_id for it in broker.requests(ApiKey.JOIN_GROUP)] == ["", "m1"]


def test_a_rebalance_during_sync_means_joining_again(broker, member, run):
    broker.answer(ApiKey.SYNC_GROUP, synced(code=ErrorCode.REBALANCE_IN_PROGRESS), synced(P0))

    assert run(member.join()) == [P0]
    assert [it.body.member_id for it in broker.requests(ApiKey.JOIN_GROUP)] == ["", "m1"]


def test_a_forgotten_member_joins_as_a_new_one(broker, member, run):
    run(member.join())
    broker.answer(ApiKey.JOIN_GROUP, joined(code=ErrorCode.UNKNOWN_MEMBER_ID), joined(leader="x"))

    run(member.join())

    assert [it.body.member_id for it in broker.requests(ApiKey.JOIN_GROUP)] == ["", "m1", ""]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID],
)
def test_heartbeats_detect_a_rebalance(broker, member, run, loop, code):
    run(member.join())
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse(), HeartbeatResponse(error_code=int(code)))

    loop.until(lambda: member.must_rejoin)
    count = len(broker.requests(ApiKey.HEARTBEAT))
    loop.turns(30)

    assert len(broker.requests(ApiKey.HEARTBEAT)) == count  # none until it joins again
    assert run(member.join()) == [P0]


def test_a_permanent_error_of_a_heartbeat_is_raised_at_the_next_check(broker, member, run, loop):
    run(member.join())
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=code))

    def has_failed():
        try:
            member.check()
        except ApiError as error:
            return error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        return False

    loop.until(has_failed)


def test_a_permanent_error_is_raised_once_and_the_member_joins_again(broker, member, run, loop):
    run(member.join())
    code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=code), HeartbeatResponse())
    loop.until(lambda: member.must_rejoin)

    with pytest.raises(ApiError):
        member.check()
    member.check()

    assert member.must_rejoin
    assert run(member.join()) == [P0]


def test_heartbeats_go_on_after_an_error_that_passes(broker, router_of, run, loop):
    """The limit is below the wait before a retry: each failure is that of a heartbeat."""
    member = GroupMember(router_of(broker, timeout_ms=50), "g", ["t"], heartbeat_interval_ms=5)
    run(member.join())
    away = HeartbeatResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    forgotten = HeartbeatResponse(error_code=int(ErrorCode.UNKNOWN_MEMBER_ID))
    broker.answer(ApiKey.HEARTBEAT, HANG_UP, away, HANG_UP, away, forgotten)

    def must_rejoin():
        member.check()
        return member.must_rejoin

    loop.until(must_rejoin)
    assert run(member.join()) == [P0]
    assert [it.body.member_id for it in broker.requests(ApiKey.JOIN_GROUP)] == ["", ""]


def test_the_error_of_an_outdated_heartbeat_is_ignored(broker, member, run, loop):
    run(member.join())

    def leave_meanwhile(_):
        loop.scheduler.spawn(member.leave())
        return HeartbeatResponse(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    broker.answer(ApiKey.HEARTBEAT, leave_meanwhile)
    loop.until(lambda: broker.requests(ApiKey.LEAVE_GROUP))
    loop.turns()

    member.check()


def test_a_member_whose_join_failed_owns_nothing(broker, member, run):
    run(member.join())
    failed = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    broker.answer(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=failed))

    with pytest.raises(ApiError):
        run(member.join())

    assert member.must_rejoin


def test_commits_name_member_and_generation(broker, member, run):
    broker.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.NONE))
    run(member.join())

    run(member.commit({P0: 42}))

    [request] = broker.requests(ApiKey.OFFSET_COMMIT)
    assert (request.body.generation_id, request.body.member_id) == (3, "m1")
    assert request.body.topics[0].partitions[0].committed_offset == 42


def test_a_commit_during_a_rebalance_does_not_fail_but_sets_must_rejoin(broker, member, run):
    broker.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.REBALANCE_IN_PROGRESS))
    run(member.join())

    run(member.commit({P0: 42}))

    assert member.must_rejoin


@pytest.mark.parametrize("version", [2, 4])
def test_leave_uses_the_version_of_the_broker(make_broker, router_of, run, version):
    broker = make_broker({"t": 1}, versions={ApiKey.LEAVE_GROUP: (0, version)})
    broker.answer(ApiKey.JOIN_GROUP, joined(leader="other"))
    broker.answer(ApiKey.SYNC_GROUP, synced(P0))
    broker.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    member = GroupMember(router_of(broker), "g", ["t"])
    run(member.join())

    run(member.leave())

    [request] = broker.requests(ApiKey.LEAVE_GROUP)
    left = [it.member_id for it in request.body.members] or [request.body.member_id]
    assert left == ["m1"]
    assert member.state is MemberState.OUT


def test_a_member_that_never_joined_sends_no_leave(broker, member, run):
    run(member.leave())

    assert broker.requests(ApiKey.LEAVE_GROUP) == []
