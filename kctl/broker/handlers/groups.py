"""Consumer groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups,
DeleteGroups.

Behaviour:
- What differs between versions is levelled here; the coordinator knows one form of each request.
- JoinGroup and SyncGroup are answered when the group has come so far, all others at once but
  DeleteGroups, which waits until the deletion is in the log.
- A group that does not exist is described as Dead, without an error.

Versions: JoinGroup 0-7 (v1 rebalance timeout, v4 member id required, KIP-394; v5 static members,
KIP-345; v7 protocol type). SyncGroup 0-5 (v3 static members; v5 protocol type and name are a
must, KIP-559). Heartbeat 0-4. LeaveGroup 0-4 (v3 many members). DescribeGroups 0-5.
ListGroups 0-4 (v4 states, KIP-518). DeleteGroups 0-2.

Kafka 2.7: kafka.server.KafkaApis.handleJoinGroupRequest and its neighbours.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kctl.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kctl.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from kctl.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# What a group's authorized_operations are without an authorizer: read, delete, describe.
_ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8


def handle_join_group(services: Services, request: Request) -> None:
    """Become a member, or wait for the next generation."""
    body: JoinGroupRequest = request.body
    version = request.api_version

    def answer(response: JoinGroupResponse) -> None:
        if version < 7 and response.protocol_name is None:
            response.protocol_name = ""
        if version < 5:
            for member in response.members:
                member.group_instance_id = None
        request.reply(response)

    if not _may_be_static(services, body.group_instance_id):
        answer(JoinGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, protocol_name=None))
        return
    if version == 0:
        body.rebalance_timeout_ms = body.session_timeout_ms
    services.group_coordinator.join(
        body,
        request.client_id or "",
        f"/{request.context.client_host}",
        answer,
        is_member_id_required=version >= 4 and body.group_instance_id is None,
    )


def handle_sync_group(services: Services, request: Request) -> None:
    """Give (the leader) or get the assignment."""
    body: SyncGroupRequest = request.body
    if not _may_be_static(services, body.group_instance_id):
        request.reply(SyncGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    elif request.api_version >= 5 and (body.protocol_type is None or body.protocol_name is None):
        request.reply(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    else:
        services.group_coordinator.sync(body, request.reply)


def handle_heartbeat(services: Services, request: Request) -> None:
    """Stay a member."""
    body: HeartbeatRequest = request.body
    if body.group_instance_id is not None and not _may_be_static(services, body.group_instance_id):
        request.reply(HeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    request.reply(HeartbeatResponse(error_code=services.group_coordinator.heartbeat(body)))


def handle_leave_group(services: Services, request: Request) -> None:
    """Be a member no more."""
    body: LeaveGroupRequest = request.body
    members = body.members
    if request.api_version < 3:
        members = [MemberIdentity(member_id=body.member_id)]

    def answer(response: LeaveGroupResponse) -> None:
        if request.api_version < 3:
            # One member: its error is the request's.
            if response.members and not response.error_code:
                response.error_code = response.members[0].error_code
            response.members = []
        request.reply(response)

    services.group_coordinator.leave(body.group_id, members, answer)


def handle_describe_groups(services: Services, request: Request) -> None:
    """Show states and members of groups."""
    body: DescribeGroupsRequest = request.body
    groups = []
    for group_id in body.groups:
        described = services.group_coordinator.describe(group_id)
        if body.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = _ALL_GROUP_OPERATIONS
        groups.append(described)
    request.reply(DescribeGroupsResponse(groups=groups))


def handle_list_groups(services: Services, request: Request) -> None:
    """Show which groups this broker coordinates."""
    body: ListGroupsRequest = request.body
    code, groups = services.group_coordinator.list_groups(body.states_filter or ())
    request.reply(ListGroupsResponse(error_code=code, groups=groups))


def handle_delete_groups(services: Services, request: Request) -> None:
    """Delete groups that have no members, with their offsets."""
    body: DeleteGroupsRequest = request.body

    def answer(codes: dict[str, int]) -> None:
        results = [
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in codes.items()
        ]
        request.reply(DeleteGroupsResponse(results=results))

    services.group_coordinator.delete_groups(body.groups_names, answer)


def _may_be_static(services: Services, instance_id: str | None) -> bool:
    return instance_id is None or services.group_coordinator.knows_static_members
