"""Converts requests about reassignments, and their results to responses (KIP-455), at a
pace.

Kafka 2.7: kafka.server.KafkaApis (handleAlterPartitionReassignmentsRequest,
handleListPartitionReassignmentsRequest).
"""

from collections.abc import Mapping

from kctl.broker.controller.context import ControllerContext
from kctl.model import TopicPartition
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kctl.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kctl.work import Pace


async def targets_of(
    request: AlterPartitionReassignmentsRequest, pace: Pace
) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Return the target replicas per partition; None: cancel."""
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            await pace.spend()
            replicas = partition.replicas
            tp = TopicPartition(topic.name, partition.partition_index)
            targets[tp] = None if replicas is None else tuple(replicas)
    return targets


async def altered(
    results: Mapping[TopicPartition, tuple[int, str | None]], pace: Pace
) -> AlterPartitionReassignmentsResponse:
    """Return the response with an error code and message per partition."""
    topics: dict[str, ReassignableTopicResponse] = {}
    for tp, (error_code, message) in results.items():
        await pace.spend()
        topic = topics.setdefault(tp.topic, ReassignableTopicResponse(name=tp.topic))
        topic.partitions.append(
            ReassignablePartitionResponse(
                partition_index=tp.partition, error_code=error_code, error_message=message
            )
        )
    return AlterPartitionReassignmentsResponse(responses=list(topics.values()))


async def listed(
    context: ControllerContext, request: ListPartitionReassignmentsRequest, pace: Pace
) -> ListPartitionReassignmentsResponse:
    """Return the current moves of the requested partitions (all, if none are named)."""
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = set()
        for asked in request.topics:
            for number in asked.partition_indexes:
                await pace.spend()
                wanted.add(TopicPartition(asked.name, number))
    topics: dict[str, OngoingTopicReassignment] = {}
    # A list: a partition may end its move, or its topic be deleted, while others have their turn.
    for tp in list(context.reassigning):
        await pace.spend()
        assignment = context.assignment(tp)
        is_wanted = wanted is None or tp in wanted
        if not is_wanted or not assignment.is_being_reassigned:
            continue
        topic = topics.setdefault(tp.topic, OngoingTopicReassignment(name=tp.topic))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=tp.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
