"""Sizes of topics: the bytes of their replicas in the log directories of all brokers.

Kafka 2.7: kafka.admin.LogDirsCommand; KIP-113
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient


@dataclass(slots=True)
class TopicSizes:
    """The bytes of topics and partitions over all replicas, and the brokers that are not
    counted."""

    by_topic: dict[str, int]
    by_partition: dict[TopicPartition, int]
    # Broker -> why its log directories are not counted.
    errors: dict[int, str]


async def topic_sizes(admin: "AdminClient", topics: Collection[str]) -> TopicSizes:
    """Return the sizes of `topics`; a copy that is moving between directories counts, too."""
    found = TopicSizes(dict.fromkeys(topics, 0), {}, {})
    for directory in await admin.log_dirs.describe(topics=sorted(topics)):
        if directory.error is not None:
            found.errors[directory.broker_id] = f"{directory.path}: {directory.error}"
        for replica in directory.replicas:
            partition = replica.partition
            if partition.topic in found.by_topic:
                found.by_topic[partition.topic] += replica.size_bytes
                earlier = found.by_partition.get(partition, 0)
                found.by_partition[partition] = earlier + replica.size_bytes
    return found
