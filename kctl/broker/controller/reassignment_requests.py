"""Converts requests about reassignments, and their results to responses (KIP-455). Pure.

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


def targets_of(
    request: AlterPartitionReassignmentsRequest,
) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Return the target replicas per partition; None: cancel."""
    return {
        TopicPartition(topic.name, partition.partition_index): (
            None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in request.topics
        for partition in topic.partitions
    }


def altered(
    results: Mapping[TopicPartition, tuple[int, str | None]],
) -> AlterPartitionReassignmentsResponse:
    """Return the response with an error code and message per partition."""
    topics: dict[str, ReassignableTopicResponse] = {}
    for tp, (error_code, message) in results.items():
        topic = topics.setdefault(tp.topic, ReassignableTopicResponse(name=tp.topic))
        topic.partitions.append(
            ReassignablePartitionResponse(
                partition_index=tp.partition, error_code=error_code, error_message=message
            )
        )
    return AlterPartitionReassignmentsResponse(responses=list(topics.values()))


def listed(
    context: ControllerContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the current moves of the requested partitions (all, if none are named)."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.name, number)
            for topic in request.topics
            for number in topic.partition_indexes
        }
    topics: dict[str, OngoingTopicReassignment] = {}
    for tp in context.reassigning:
        assignment = context.assignment(tp)
        if not assignment.is_being_reassigned or (wanted is not None and tp not in wanted):
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
