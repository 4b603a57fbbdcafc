"""Assigns the partitions of a group's topics to its members, by range, and encodes assignments.

Kafka 2.7: org.apache.kafka.clients.consumer.RangeAssignor, internals.ConsumerProtocol
"""

from collections.abc import Iterable, Mapping, Sequence

from kctl.model import TopicPartition
from kctl.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    decode_blob,
    encode_blob,
)
from kctl.protocol.internal.consumer_protocol import TopicPartition as TopicPartitions


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the encoded assignment (ConsumerProtocolAssignment) of a member."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    assigned = [TopicPartitions(topic=t, partitions=numbers) for t, numbers in topics.items()]
    return encode_blob(ConsumerProtocolAssignment(assigned_partitions=assigned))


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Return the partitions of an encoded assignment, none if it is empty; raise
    CorruptDataError."""
    if not data:
        return []
    return [
        TopicPartition(topic.topic, number)
        for topic in decode_blob(ConsumerProtocolAssignment, data).assigned_partitions
        for number in topic.partitions
    ]


def assign_by_range(
    wishes: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member: each topic is split into contiguous ranges over the
    members that subscribe to it, in order of member id. The first members get one more if the
    number is not divisible."""
    assignments: dict[str, list[TopicPartition]] = {member: [] for member in wishes}
    for topic, count in sorted(partition_counts.items()):
        members = sorted(member for member, topics in wishes.items() if topic in topics)
        if not members:
            continue
        each, rest = divmod(count, len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + each + (1 if index < rest else 0)
            assignments[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assignments
