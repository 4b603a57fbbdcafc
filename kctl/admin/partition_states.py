"""Finds partitions with too few in-sync replicas or without a leader.

Kafka 2.7: kafka.admin.TopicCommand (`--under-replicated-partitions`, `--under-min-isr-partitions`,
`--at-min-isr-partitions`, `--unavailable-partitions`); KIP-351
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.admin.topic_configs import topic_config_values
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.topics import PartitionDescription, TopicDescription

MIN_ISR = "min.insync.replicas"


class PartitionState(StrEnum):
    """What kafka-topics selects partitions by."""

    # Replicas are out of sync, other than those that a reassignment adds.
    UNDER_REPLICATED = "under-replicated"
    # Fewer in-sync replicas than min.insync.replicas, or no leader: acks=all fails.
    UNDER_MIN_ISR = "under-min-isr"
    # Exactly min.insync.replicas in-sync replicas: one more failure makes acks=all fail.
    AT_MIN_ISR = "at-min-isr"
    # No leader.
    UNAVAILABLE = "unavailable"


async def partitions_in_states(
    admin: "AdminClient",
    topics: "Iterable[TopicDescription]",
    states: Collection[PartitionState],
) -> set[TopicPartition]:
    """Return the partitions that are in any of `states`."""
    found = list(topics)
    min_isr: dict[str, int] = {}
    adding: dict[TopicPartition, int] = {}
    if not {PartitionState.UNDER_MIN_ISR, PartitionState.AT_MIN_ISR}.isdisjoint(states):
        min_isr = await min_isr_of(admin, [topic.name for topic in found])
    if PartitionState.UNDER_REPLICATED in states:
        adding = await _adding_replicas(admin)
    chosen = set()
    for topic in found:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            actual = states_of(partition, min_isr.get(topic.name), adding.get(tp, 0))
            if not actual.isdisjoint(states):
                chosen.add(tp)
    return chosen


def states_of(
    partition: "PartitionDescription", min_isr: int | None, adding: int = 0
) -> set[PartitionState]:
    """Return the states of a partition. `min_isr` is None where it is unknown, and `adding` the
    number of replicas that a reassignment adds."""
    states = set()
    in_sync = len(partition.isr)
    if in_sync < len(partition.replicas) - adding:
        states.add(PartitionState.UNDER_REPLICATED)
    if partition.is_offline:
        states |= {PartitionState.UNAVAILABLE, PartitionState.UNDER_MIN_ISR}
    if min_isr is not None and in_sync < min_isr:
        states.add(PartitionState.UNDER_MIN_ISR)
    if in_sync == min_isr:
        states.add(PartitionState.AT_MIN_ISR)
    return states


async def min_isr_of(admin: "AdminClient", topics: Iterable[str]) -> dict[str, int]:
    """Return min.insync.replicas of topics, where it can be read."""
    values = await topic_config_values(admin, topics, MIN_ISR)
    return {topic: int(value) for topic, value in values.items()}


async def _adding_replicas(admin: "AdminClient") -> dict[TopicPartition, int]:
    if await admin.router.max_version(ApiKey.LIST_PARTITION_REASSIGNMENTS) < 0:
        return {}
    moving = await admin.reassignments.ongoing()
    return {tp: len(assignment.adding) for tp, assignment in moving.items()}
