"""Group requests in every version: their differences, and a complete membership in each."""

import pytest

from kctl.broker.handlers.groups import (
    handle_delete_groups,
    handle_describe_groups,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_list_groups,
    handle_sync_group,
)
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.delete_groups import DeleteGroupsRequest
from kctl.protocol.messages.describe_groups import DescribeGroupsRequest
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.messages.list_groups import ListGroupsRequest
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.group_world import DELAY_MS, SESSION_MS
from tests.support.handler_world import HandlerWorld


@pytest.fixture
def world():
    return HandlerWorld()


def join_body(member_id="", **options):
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        **options,
    )


def joined(world, version, **options):
    """Return the response to the first member's JoinGroup, once its generation begins."""
    member_id = ""
    if version >= 4 and "group_instance_id" not in options:
        first = world.answer(handle_join_group, join_body(**options), version)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id = first.member_id
    answers = world.ask(handle_join_group, join_body(member_id, **options), version)
    world.advance(DELAY_MS)
    return answers[0]


@pytest.mark.parametrize("version", range(8))
def test_a_member_joins_in_every_version(world, version):
    response = joined(world, version, **({"rebalance_timeout_ms": 9_000} if version else {}))
    assert (response.error_code, response.generation_id) == (0, 1)
    assert response.protocol_name == "range"
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    assert [member.metadata for member in response.members] == [b"m"]
    (member,) = world.group().members.values()
    assert member.member_id.startswith("app-")
    assert member.client_host == "/10.0.0.7"
    # Version 0 has no rebalance timeout: the session timeout is used.
    assert member.rebalance_timeout_ms == (9_000 if version else SESSION_MS)


@pytest.mark.parametrize("version", range(8))
def test_a_failed_join_has_a_protocol_name_that_its_version_can_encode(world, version):
    response = world.answer(handle_join_group, join_body("unknown"), version)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.generation_id == -1
    assert response.protocol_name == (None if version >= 7 else "")


def test_an_old_leader_gets_no_instance_ids(world):
    """Its version has no field for them."""
    leader = world.ask(handle_join_group, join_body(), 3)
    world.ask(handle_join_group, join_body(group_instance_id="i1"), 5)
    world.advance(2 * DELAY_MS)
    assert len(leader[0].members) == 2


@pytest.mark.parametrize("version", range(6))
def test_a_leader_syncs_in_every_version(world, version):
    member_id = joined(world, 7, rebalance_timeout_ms=9_000).member_id
    body = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
    )
    if version >= 5:
        body.protocol_type, body.protocol_name = "consumer", "range"
    response = world.answer(handle_sync_group, body, version)
    assert (response.error_code, response.assignment) == (0, b"all")
    assert response.protocol_name == ("range" if version >= 5 else None)


def test_from_version_5_on_a_sync_must_name_its_protocol(world):
    member_id = joined(world, 7, rebalance_timeout_ms=9_000).member_id
    body = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id)
    response = world.answer(handle_sync_group, body, 5)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_heartbeats_in_every_version(world, version):
    member_id = joined(world, 7, rebalance_timeout_ms=9_000).member_id
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert world.answer(handle_heartbeat, body, version).error_code == 0
    body.generation_id = 2
    code = world.answer(handle_heartbeat, body, version).error_code
    assert code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves_in_old_versions(world, version):
    member_id = joined(world, 7, rebalance_timeout_ms=9_000).member_id
    body = LeaveGroupRequest(group_id="g", member_id=member_id)
    assert world.answer(handle_leave_group, body, version).error_code == 0
    code = world.answer(handle_leave_group, body, version).error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 5))
def test_many_members_leave_in_new_versions(world, version):
    member_id = joined(world, 7, group_instance_id="i1", rebalance_timeout_ms=9_000).member_id
    members = [
        MemberIdentity(member_id="unknown"),
        MemberIdentity(member_id=member_id, group_instance_id="i1"),
    ]
    body = LeaveGroupRequest(group_id="g", members=members)
    response = world.answer(handle_leave_group, body, version)
    assert response.error_code == 0
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in response.members] == [
        ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
        (member_id, "i1", 0),
    ]


@pytest.mark.parametrize("version", range(5))
def test_leaving_without_a_coordinator(world, version):
    world.service.on_resigned(0, 9)
    body = LeaveGroupRequest(group_id="g")
    response = world.answer(handle_leave_group, body, version)
    assert response.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(6))
def test_groups_are_described_in_every_version(world, version):
    member_ids, _ = world.form_static_group("i1")
    body = DescribeGroupsRequest(
        groups=["g", "unknown"], include_authorized_operations=version >= 3
    )
    group, unknown = world.answer(handle_describe_groups, body, version).groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert member.member_id == member_ids[0]
    assert member.group_instance_id == ("i1" if version >= 4 else None)
    assert (member.member_metadata, member.member_assignment) == (b"m", b"part of 0")
    # Read, delete, describe; unless they were not requested.
    assert group.authorized_operations == (0b1_0100_1000 if version >= 3 else -(2**31))
    assert (unknown.error_code, unknown.group_state, unknown.members) == (0, "Dead", [])


def test_a_group_that_rebalances_shows_no_assignments(world):
    world.form_group(1)
    world.enter()
    body = DescribeGroupsRequest(groups=["g"])
    (group,) = world.answer(handle_describe_groups, body, 5).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {(m.member_metadata, m.member_assignment) for m in group.members} == {(b"", b"")}


@pytest.mark.parametrize("version", range(5))
def test_groups_are_listed_in_every_version(world, version):
    world.form_group(1)
    world.commit({("t", 0): 1}, group_id="simple")
    response = world.answer(handle_list_groups, ListGroupsRequest(), version)
    stable, empty = ("Stable", "Empty") if version >= 4 else ("", "")
    assert [(g.group_id, g.protocol_type, g.group_state) for g in response.groups] == [
        ("g", "consumer", stable),
        ("simple", "", empty),
    ]


def test_groups_are_listed_by_state(world):
    world.form_group(1)
    world.commit({("t", 0): 1}, group_id="simple")
    body = ListGroupsRequest(states_filter=["Empty", "Dead"])
    response = world.answer(handle_list_groups, body, 4)
    assert [g.group_id for g in response.groups] == ["simple"]


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(world, version):
    world.commit({("t", 0): 1}, group_id="simple")
    body = DeleteGroupsRequest(groups_names=["simple", "unknown"])
    results = world.answer(handle_delete_groups, body, version).results
    assert [(result.group_id, result.error_code) for result in results] == [
        ("simple", 0),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_static_members_need_brokers_that_keep_their_ids():
    world = HandlerWorld({"inter.broker.protocol.version": "2.2"})
    for handler, body, version in [
        (handle_join_group, join_body(group_instance_id="i1"), 5),
        (handle_sync_group, SyncGroupRequest(group_id="g", group_instance_id="i1"), 3),
        (handle_heartbeat, HeartbeatRequest(group_id="g", group_instance_id="i1"), 3),
    ]:
        response = world.answer(handler, body, version)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
