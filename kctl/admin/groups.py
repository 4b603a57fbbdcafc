"""GroupAdmin: list, describe and delete consumer groups, and compute their lag.

Groups of the consumer protocol and share groups, which Kafka 4 has, are described by
`later_groups`.
Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.admin.ConsumerGroupCommand;
KIP-222, KIP-229, KIP-518, KIP-848
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kctl.admin.group_descriptions import (
    GroupDescription,
    GroupList,
    GroupListing,
    GroupResult,
    GroupType,
    PartitionLag,
    classic_description,
    listed_only,
)
from kctl.client.offsets import OffsetsClient
from kctl.client.results import error_of, raise_for
from kctl.errors import UnreachableError, UsageError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.later_apis import LaterApi

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.schema import Message

# The version of ListGroups that returns and filters by states.
_LIST_STATES_VERSION = 4
# The broker's filter is case-sensitive: its spelling. The last three states came with Kafka 4.0.
_STATES = {
    name.lower(): name
    for name in (
        "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty",
        "Assigning", "Reconciling", "NotReady",
    )
}  # fmt: skip
# Groups described by one request.
_DESCRIBE_MAX = 500
# Kafka's name of a state that is not known (org.apache.kafka.common.ConsumerGroupState).
_UNKNOWN = "Unknown"


class GroupAdmin:
    """The groups of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router
        self._offsets = OffsetsClient(router)

    async def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> GroupList:
        """Return the groups of all brokers, sorted by id; only those in `states` and of `types` if
        any are given.

        Every broker is asked, as it knows only the groups that it coordinates; brokers that fail
        are in `errors`. Raise UsageError for a state or type that no version of Kafka has, and
        ApiError for a type that this cluster does not have (KIP-518, KIP-848).
        """
        wanted = [_state(name) for name in states]
        wanted_types = [_type(name) for name in types]
        found = GroupList()
        found.has_types = await self._router.max_version(LaterApi.LIST_GROUPS) >= 0
        if found.has_types or any(it is not GroupType.CLASSIC for it in wanted_types):
            from kctl.admin.later_groups import list_request

            request: Message = list_request(wanted, wanted_types)
            may_filter = True
        else:
            from kctl.protocol.messages.list_groups import ListGroupsRequest

            version = await self._router.max_version(ApiKey.LIST_GROUPS)
            may_filter = version >= _LIST_STATES_VERSION
            request = ListGroupsRequest(states_filter=wanted if may_filter else [])
        await self._list_from_all(request, found)
        if not may_filter:
            await self._add_states(found, states)
        found.groups.sort(key=lambda group: group.group_id)
        return found

    async def _list_from_all(self, request: "Message", found: GroupList) -> None:
        view = await self._router.refresh(None)
        for broker_id in sorted(view.brokers):
            try:
                response = await self._router.send_to_broker(broker_id, request)
                raise_for(response.error_code)
            except (ApiError, UnreachableError) as error:
                if isinstance(error, ApiError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
                    raise
                found.errors[broker_id] = error
                continue
            found.groups += [
                GroupListing(
                    group.group_id,
                    group.protocol_type,
                    group.group_state,
                    broker_id,
                    group.group_type.lower() if found.has_types else GroupType.CLASSIC,
                )
                for group in response.groups
            ]

    async def describe(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """Return the groups in the given order. An unknown group carries GROUP_ID_NOT_FOUND."""
        from kctl.protocol.messages.describe_groups import DescribeGroupsRequest

        described = []
        has_members = await self._router.max_version(ApiKey.DESCRIBE_GROUPS) >= 0
        for group_id in dict.fromkeys(group_ids):
            if not has_members:
                # Before Kafka 0.9 a coordinator keeps offsets, and knows no members.
                coordinator = await self._router.coordinator_of(group_id)
                described.append(
                    GroupDescription(group_id, _UNKNOWN, coordinator=coordinator.broker_id)
                )
                continue
            request = DescribeGroupsRequest(groups=[group_id])
            response = await self._router.send_to_coordinator(group_id, request)
            coordinator = await self._router.coordinator_of(group_id)
            description = classic_description(response.groups[0], coordinator.broker_id)
            if description.is_unknown:
                # A group of another type is unknown to DescribeGroups.
                from kctl.admin.later_groups import describe_later_group

                later = await describe_later_group(self._router, group_id, coordinator.broker_id)
                description = later or description
            described.append(description)
        return described

    async def describe_listed(self, listings: Sequence[GroupListing]) -> list[GroupDescription]:
        """Return the groups of `listings`, whose coordinators are known, with few requests."""
        from kctl.admin.later_groups import describe_request, later_description

        alike: dict[tuple[int, str], list[str]] = {}
        for listing in listings:
            key = (listing.coordinator, listing.group_type)
            alike.setdefault(key, []).append(listing.group_id)
        found: dict[str, GroupDescription] = {}
        for (broker_id, group_type), names in alike.items():
            for start in range(0, len(names), _DESCRIBE_MAX):
                request = describe_request(group_type, names[start : start + _DESCRIBE_MAX])
                if request is None:
                    continue
                response = await self._router.send_to_broker(broker_id, request)
                for group in response.groups:
                    found[group.group_id] = (
                        classic_description(group, broker_id)
                        if group_type == GroupType.CLASSIC
                        else later_description(group, group_type, broker_id)
                    )
        return [
            found.get(listing.group_id) or listed_only(listing)
            for listing in listings
            if listing.group_id in found or describe_request(listing.group_type, []) is None
        ]

    async def delete(self, group_ids: Iterable[str]) -> list[GroupResult]:
        """Delete groups that have no members and return a result per group (KIP-229)."""
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
        """Return the lag of every partition of the topics in which the group has committed offsets
        or been assigned partitions, in order: records of partitions without either wait, too.

        A share group commits no offsets: those of its first unacknowledged records are returned in
        their place.
        """
        if group.group_type == GroupType.SHARE:
            from kctl.admin.later_groups import share_group_offsets

            committed = await share_group_offsets(self._router, group.group_id)
        else:
            committed = await self._offsets.committed(group.group_id)
        owners = {partition: member for member in group.members for partition in member.partitions}
        partitions = await self._all_partitions({*committed, *owners})
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

    async def _all_partitions(self, known: set[TopicPartition]) -> list[TopicPartition]:
        """Return `known` and all other partitions of their topics, in order."""
        topics = sorted({partition.topic for partition in known})
        if not topics:
            return []
        view = await self._router.refresh(topics)
        return sorted(
            known
            | {
                TopicPartition(topic, number)
                for topic in topics
                for number in view.partitions_of(topic)
            }
        )

    async def _add_states(self, found: GroupList, states: Sequence[str]) -> None:
        """Add the states, which brokers before Kafka 2.6 do not list, by describing the groups."""
        described = await self.describe_listed(found.groups)
        by_name = {group.group_id: group.state for group in described}
        for listing in found.groups:
            listing.state = by_name.get(listing.group_id, "")
        if states:
            wanted = {state.lower() for state in states}
            found.groups = [group for group in found.groups if group.state.lower() in wanted]


def _type(name: str) -> GroupType:
    try:
        return GroupType(name.lower())
    except ValueError:
        raise UsageError(f"No group type {name}", hint=f"one of {', '.join(GroupType)}") from None


def _state(name: str) -> str:
    known = _STATES.get(name.lower())
    if known is None:
        raise UsageError(f"No group state {name}", hint=f"one of {', '.join(_STATES.values())}")
    return known
