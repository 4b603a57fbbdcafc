"""Finds the eligible leader replicas of partitions: those that lack no committed record (KIP-966).

Kafka 4.1: org.apache.kafka.clients.admin.KafkaAdminClient (describeTopics)
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.later_apis import LaterApi

if TYPE_CHECKING:
    from kctl.client.router import Router

# Partitions of one response.
PARTITIONS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class EligibleLeaders:
    """Replicas outside of the ISR that may lead; empty unless the ISR is below
    min.insync.replicas."""

    eligible: list[int]
    # The last replicas that were eligible, for an unclean election.
    last_known: list[int]


async def eligible_leaders(
    router: "Router", topics: Iterable[str]
) -> dict[TopicPartition, EligibleLeaders] | None:
    """Return the eligible leader replicas of each partition of `topics`, or None if the cluster
    does not know them (before Kafka 3.8, or with ZooKeeper)."""
    from kctl.protocol.later.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        TopicRequest,
    )

    if await router.max_version(LaterApi.DESCRIBE_TOPIC_PARTITIONS) < 0:
        return None
    # Responses are in the order of names, in which cursors continue.
    names = sorted(topics)
    found: dict[TopicPartition, EligibleLeaders] = {}
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=PARTITIONS_MAX
    )
    while names:
        response = await router.send_to_any(request)
        for topic in response.topics:
            # A topic that has been deleted meanwhile has no partitions.
            for it in topic.partitions:
                found[TopicPartition(topic.name, it.partition_index)] = EligibleLeaders(
                    it.eligible_leader_replicas or [], it.last_known_elr or []
                )
        request.cursor = response.next_cursor
        if request.cursor is None:
            break
        names = [name for name in names if name >= request.cursor.topic_name]
        request.topics = [TopicRequest(name=name) for name in names]
    return found
