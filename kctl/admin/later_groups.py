"""Describes groups that Kafka 4 has and 2.7 does not: of the consumer protocol, share groups, and
those of Kafka Streams.

Kafka 4.1: org.apache.kafka.clients.admin.KafkaAdminClient (describeConsumerGroups,
describeShareGroups, listShareGroupOffsets, describeStreamsGroups); KIP-848, KIP-932, KIP-1043,
KIP-1071
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kctl.admin.group_descriptions import GroupDescription, GroupType, MemberDescription
from kctl.client.offsets import CommittedOffset
from kctl.client.results import error_of, raise_for
from kctl.model import TopicPartition
from kctl.protocol.later_apis import LaterApi

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.later.streams_group_describe import Topology
    from kctl.protocol.schema import Message

# The API that describes a group of each later type; types that no row has are only listed.
_DESCRIBED_BY = {
    GroupType.CONSUMER: LaterApi.CONSUMER_GROUP_DESCRIBE,
    GroupType.SHARE: LaterApi.SHARE_GROUP_DESCRIBE,
    GroupType.STREAMS: LaterApi.STREAMS_GROUP_DESCRIBE,
}


def list_request(states: Sequence[str], types: Sequence[str]) -> "Message":
    """Return the request for the groups in `states` and of `types`; none: all."""
    from kctl.protocol.later.list_groups import ListGroupsRequest

    return ListGroupsRequest(states_filter=list(states), types_filter=[str(it) for it in types])


def describe_request(group_type: str, group_ids: Sequence[str]) -> "Message | None":
    """Return the request that describes groups of one type, or None if no API does."""
    if group_type == GroupType.CLASSIC:
        from kctl.protocol.messages.describe_groups import DescribeGroupsRequest

        return DescribeGroupsRequest(groups=list(group_ids))
    if group_type == GroupType.CONSUMER:
        from kctl.protocol.later.consumer_group_describe import ConsumerGroupDescribeRequest

        return ConsumerGroupDescribeRequest(group_ids=list(group_ids))
    if group_type == GroupType.SHARE:
        from kctl.protocol.later.share_group_describe import ShareGroupDescribeRequest

        return ShareGroupDescribeRequest(group_ids=list(group_ids))
    if group_type == GroupType.STREAMS:
        from kctl.protocol.later.streams_group_describe import StreamsGroupDescribeRequest

        return StreamsGroupDescribeRequest(group_ids=list(group_ids))
    return None


async def describe_later_group(
    router: "Router", group_id: str, coordinator: int
) -> GroupDescription | None:
    """Return the group that DescribeGroups does not know, or None if no later API knows it."""
    for group_type, api in _DESCRIBED_BY.items():
        request = describe_request(group_type, [group_id])
        if request is None or await router.max_version(api) < 0:
            continue
        response = await router.send_to_coordinator(group_id, request)
        described = later_description(response.groups[0], group_type, coordinator)
        # A cluster that has the API may not have the feature: share.version, group.version.
        if described.error is None:
            return described
    return None


def later_description(group: Any, group_type: str, coordinator: int) -> GroupDescription:
    """Return a DescribedGroup of one of the later APIs as a description."""
    if group_type == GroupType.STREAMS:
        topics = _topics_read(group.topology)
        members = [_streams_member(member, topics) for member in group.members]
    else:
        members = [_member(member) for member in group.members]
    return GroupDescription(
        group.group_id,
        group.group_state,
        str(group_type),
        getattr(group, "assignor_name", ""),
        coordinator,
        members,
        error_of(group.error_code, group.error_message),
        group_type,
        group.group_epoch,
        group.assignment_epoch,
    )


async def share_group_offsets(
    router: "Router", group_id: str
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offset of the first record of each partition that a share group has not
    acknowledged; -1 where it has not read. Raise ApiError."""
    from kctl.protocol.later.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    response = await router.send_to_coordinator(
        group_id, DescribeShareGroupOffsetsRequest(groups=[wanted])
    )
    (group,) = response.groups
    raise_for(group.error_code, group.error_message)
    return {
        TopicPartition(topic.topic_name, it.partition_index): CommittedOffset(
            it.start_offset, it.leader_epoch, error=error_of(it.error_code, it.error_message)
        )
        for topic in group.topics
        for it in topic.partitions
    }


def _member(member: Any) -> MemberDescription:
    target = getattr(member, "target_assignment", None)
    return MemberDescription(
        member.member_id,
        getattr(member, "instance_id", None),
        member.client_id,
        member.client_host,
        _partitions(member.assignment.topic_partitions),
        member.member_epoch,
        sorted(member.subscribed_topic_names),
        None if target is None else _partitions(target.topic_partitions),
    )


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions
    )


def _topics_read(topology: "Topology | None") -> dict[str, list[str]]:
    """Return the topics that each subtopology of Kafka Streams reads; none before they exist."""
    subtopologies = (topology.subtopologies or ()) if topology is not None else ()
    return {
        it.subtopology_id: [
            *it.source_topics,
            *(topic.name for topic in it.repartition_source_topics),
        ]
        for it in subtopologies
    }


def _streams_member(member: Any, topics: Mapping[str, Sequence[str]]) -> MemberDescription:
    assignment = member.assignment
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions_read(assignment.active_tasks, topics),
        member.member_epoch,
        sorted({topic for read in topics.values() for topic in read}),
        _partitions_read(member.target_assignment.active_tasks, topics),
        member.process_id,
        {
            "active": _tasks(assignment.active_tasks),
            "standby": _tasks(assignment.standby_tasks),
            "warmup": _tasks(assignment.warmup_tasks),
        },
    )


def _tasks(assigned: Iterable[Any]) -> list[str]:
    """Return tasks as Kafka Streams names them."""
    return [f"{it.subtopology_id}_{number}" for it in assigned for number in sorted(it.partitions)]


def _partitions_read(
    tasks: Iterable[Any], topics: Mapping[str, Sequence[str]]
) -> list[TopicPartition]:
    """Return what tasks read: the partition of their number, of each topic of the subtopology."""
    return sorted(
        TopicPartition(topic, number)
        for task in tasks
        for topic in topics.get(task.subtopology_id, ())
        for number in task.partitions
    )
