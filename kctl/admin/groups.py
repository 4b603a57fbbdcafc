"""GroupAdmin: list, describe and delete consumer groups, and how far behind they are.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.admin.ConsumerGroupCommand;
KIP-222, KIP-229, KIP-518
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kctl.admin.assignment import decode_assignment
from kctl.admin.offsets import OffsetAdmin
from kctl.admin.result import error_of, raise_for
from kctl.errors import CorruptDataError, KctlError, UnreachableError, UsageError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.internal.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember

# ListGroups from this version on tells and filters by state.
_LIST_STATES_VERSION = 4
# The broker compares states letter by letter: how it spells them. The last three came with 4.0.
_STATES = {
    name.lower(): name
    for name in (
        "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty",
        "Assigning", "Reconciling", "NotReady",
    )
}  # fmt: skip
# Groups described by one request.
_DESCRIBE_MAX = 500


@dataclass(slots=True)
class GroupListing:
    """A group as its coordinator lists it; state "" where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(slots=True)
class MemberDescription:
    """A member of a group and what it was given to consume."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class GroupDescription:
    """A group, its state in Kafka's words (Empty, Stable, ...) and its members."""

    group_id: str
    state: str = ""
    protocol_type: str = ""
    # The assignor that the members agreed on.
    protocol: str = ""
    coordinator: int = -1
    members: list[MemberDescription] = field(default_factory=list)
    error: ApiError | None = None


@dataclass(slots=True)
class GroupResult:
    """What became of one group."""

    group_id: str
    error: ApiError | None = None


@dataclass(slots=True)
class PartitionLag:
    """How far a group is in one partition; None where it is not known or nothing is committed."""

    partition: TopicPartition
    committed_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    member: MemberDescription | None = None
    error: KctlError | None = None

    @property
    def lag(self) -> int | None:
        """Records between what was committed and the end; never negative."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed_offset)


@dataclass(slots=True)
class GroupList:
    """All groups that could be had, and the brokers that did not answer."""

    groups: list[GroupListing] = field(default_factory=list)
    # Broker -> why.
    errors: dict[int, Exception] = field(default_factory=dict)


class GroupAdmin:
    """The groups of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router
        self._offsets = OffsetAdmin(router)

    async def list_groups(self, states: Sequence[str] = ()) -> GroupList:
        """Groups by name from all brokers, as each only knows those it coordinates; only those
        in `states` if any are given. UsageError for a state that no Kafka knows."""
        from kctl.protocol.messages.list_groups import ListGroupsRequest

        version = await self._router.max_version(ApiKey.LIST_GROUPS)
        may_filter = version >= _LIST_STATES_VERSION
        wanted = [_state(name) for name in states]
        request = ListGroupsRequest(states_filter=wanted if may_filter else [])
        found = GroupList()
        view = await self._router.refresh(None)
        for broker_id in sorted(view.brokers):
            try:
                response = await self._router.send_to_broker(broker_id, request)
                raise_for(response.error_code)
            except (ApiError, UnreachableError) as error:
                found.errors[broker_id] = error
                continue
            found.groups += [
                GroupListing(group.group_id, group.protocol_type, group.group_state, broker_id)
                for group in response.groups
            ]
        if not may_filter:
            await self._add_states(found, states)
        found.groups.sort(key=lambda group: group.group_id)
        return found

    async def describe(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """These groups, in the order given; one that is not there carries GROUP_ID_NOT_FOUND."""
        from kctl.protocol.messages.describe_groups import DescribeGroupsRequest

        described = []
        for group_id in dict.fromkeys(group_ids):
            request = DescribeGroupsRequest(groups=[group_id])
            response = await self._router.send_to_coordinator(group_id, request)
            coordinator = await self._router.coordinator_of(group_id)
            described.append(_description(response.groups[0], coordinator.broker_id))
        return described

    async def describe_listed(self, listings: Sequence[GroupListing]) -> list[GroupDescription]:
        """Groups whose coordinators are known from a list, in few requests."""
        from kctl.protocol.messages.describe_groups import DescribeGroupsRequest

        by_broker: dict[int, list[str]] = {}
        for listing in listings:
            by_broker.setdefault(listing.coordinator, []).append(listing.group_id)
        found: dict[str, GroupDescription] = {}
        for broker_id, names in by_broker.items():
            for start in range(0, len(names), _DESCRIBE_MAX):
                request = DescribeGroupsRequest(groups=names[start : start + _DESCRIBE_MAX])
                response = await self._router.send_to_broker(broker_id, request)
                for group in response.groups:
                    found[group.group_id] = _description(group, broker_id)
        return [found[listing.group_id] for listing in listings if listing.group_id in found]

    async def delete(self, group_ids: Iterable[str]) -> list[GroupResult]:
        """Delete groups that have no members, each on its own."""
        from kctl.protocol.messages.delete_groups import DeleteGroupsRequest

        results = []
        for group_id in dict.fromkeys(group_ids):
            request = DeleteGroupsRequest(groups_names=[group_id])
            response = await self._router.send_to_coordinator(group_id, request)
            results += [
                GroupResult(item.group_id, error_of(item.error_code)) for item in response.results
            ]
        return results

    async def lag(self, group: GroupDescription) -> list[PartitionLag]:
        """Every partition that the group has committed or been assigned, in order."""
        committed = await self._offsets.committed(group.group_id)
        owners = {partition: member for member in group.members for partition in member.partitions}
        partitions = sorted({*committed, *owners})
        starts = await self._offsets.earliest(partitions) if partitions else {}
        ends = await self._offsets.latest(partitions) if partitions else {}
        lags = []
        for partition in partitions:
            mine = committed.get(partition)
            start, end = starts[partition], ends[partition]
            lags.append(
                PartitionLag(
                    partition,
                    mine.offset if mine is not None and mine.offset >= 0 else None,
                    start.offset if start.error is None else None,
                    end.offset if end.error is None else None,
                    owners.get(partition),
                    end.error or (mine.error if mine is not None else None),
                )
            )
        return lags

    async def _add_states(self, found: GroupList, states: Sequence[str]) -> None:
        """What a broker older than 2.6 does not list, by describing."""
        described = await self.describe_listed(found.groups)
        by_name = {group.group_id: group.state for group in described}
        for listing in found.groups:
            listing.state = by_name.get(listing.group_id, "")
        if states:
            wanted = {state.lower() for state in states}
            found.groups = [group for group in found.groups if group.state.lower() in wanted]


def _state(name: str) -> str:
    known = _STATES.get(name.lower())
    if known is None:
        raise UsageError(f"No group state {name}", hint=f"one of {', '.join(_STATES.values())}")
    return known


def _description(group: "DescribedGroup", coordinator: int) -> GroupDescription:
    error = error_of(group.error_code)
    if error is None and group.group_state == "Dead":
        error = ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        [_member(member, group.protocol_type) for member in group.members],
        error,
    )


def _member(member: "DescribedGroupMember", protocol_type: str) -> MemberDescription:
    partitions: list[TopicPartition] = []
    if protocol_type == PROTOCOL_TYPE and member.member_assignment:
        # What another client's assignor wrote may be in nobody's format.
        with contextlib.suppress(CorruptDataError):
            partitions = decode_assignment(member.member_assignment)
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        sorted(partitions),
    )
