"""Consumer groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups,
DeleteGroups.

Behaviour:

- Differences between versions are handled here; the coordinator knows one form of each request.
- JoinGroup and SyncGroup wait for the group, DeleteGroups until the deletion is in the log; all
  others reply at once.
- ListGroups leaves out groups that the client may not describe, unless it may describe the cluster.
- A group that does not exist is described as Dead, without an error.

Versions: JoinGroup 0-7 (v1 rebalance timeout, v4 member id required, KIP-394; v5 static members,
KIP-345; v7 protocol type). SyncGroup 0-5 (v3 static members; v5 protocol type and name are
required, KIP-559). Heartbeat 0-4. LeaveGroup 0-4 (v3 many members). DescribeGroups 0-5. ListGroups
0-4 (v4 states, KIP-518). DeleteGroups 0-2.

Kafka 2.7: kafka.server.KafkaApis.handleJoinGroupRequest and related methods.
"""

from kctl.broker.replies import reply_in_turns
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.acl import AclOperation, ResourceType
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kctl.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kctl.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from kctl.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kctl.work import Work, parts

# Groups and members that are described between two turns for others.
DESCRIBED_PER_TURN = 250
# Groups whose permissions are looked up in one turn.
LISTED_PER_TURN = 500


def handle_join_group(services: Services, request: Request) -> None:
    """Join a group, or wait for its next generation."""
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
    """Store the leader's assignment, or wait for it."""
    body: SyncGroupRequest = request.body
    if not _may_be_static(services, body.group_instance_id):
        request.reply(SyncGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    elif request.api_version >= 5 and (body.protocol_type is None or body.protocol_name is None):
        request.reply(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    else:
        services.group_coordinator.sync(body, request.reply)


def handle_heartbeat(services: Services, request: Request) -> None:
    """Renew a member's session."""
    body: HeartbeatRequest = request.body
    if body.group_instance_id is not None and not _may_be_static(services, body.group_instance_id):
        request.reply(HeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    request.reply(HeartbeatResponse(error_code=services.group_coordinator.heartbeat(body)))


def handle_leave_group(services: Services, request: Request) -> None:
    """Remove members from a group."""
    body: LeaveGroupRequest = request.body
    members = body.members
    if request.api_version < 3:
        members = [MemberIdentity(member_id=body.member_id)]

    def answer(response: LeaveGroupResponse) -> None:
        if request.api_version < 3:
            # A single member: its error is that of the response.
            if response.members and not response.error_code:
                response.error_code = response.members[0].error_code
            response.members = []
        request.reply(response)

    services.group_coordinator.leave(body.group_id, members, answer)


def handle_describe_groups(services: Services, request: Request) -> None:
    """Reply with states and members of groups, each group once."""
    reply_in_turns(services.runtime.scheduler, request, _described_groups(services, request))


def _described_groups(services: Services, request: Request) -> Work[DescribeGroupsResponse]:
    body: DescribeGroupsRequest = request.body
    access = request.access
    groups: list[DescribedGroup] = []
    units = 0
    # A request of 64 KiB can name a group of megabytes 10,000 times.
    for group_id in dict.fromkeys(body.groups):
        if access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            described = yield from services.group_coordinator.describe(group_id)
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            described = DescribedGroup(error_code=code, group_id=group_id)
        if body.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = access.operations(ResourceType.GROUP, group_id)
        groups.append(described)
        units += 1 + len(described.members)
        if units >= DESCRIBED_PER_TURN:
            units = 0
            yield
    return DescribeGroupsResponse(groups=groups)


def handle_list_groups(services: Services, request: Request) -> None:
    """Reply with the groups that this broker coordinates."""
    reply_in_turns(services.runtime.scheduler, request, _listed_groups(services, request))


def _listed_groups(services: Services, request: Request) -> Work[ListGroupsResponse]:
    body: ListGroupsRequest = request.body
    code, groups = yield from services.group_coordinator.list_groups(body.states_filter or ())
    if request.access.allows_cluster(AclOperation.DESCRIBE):
        return ListGroupsResponse(error_code=code, groups=groups)
    visible = []
    for part in parts(groups, LISTED_PER_TURN):
        visible += [
            group
            for group in part
            if request.access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
        yield
    return ListGroupsResponse(error_code=code, groups=visible)


def handle_delete_groups(services: Services, request: Request) -> None:
    """Delete groups without members, with their offsets."""
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
