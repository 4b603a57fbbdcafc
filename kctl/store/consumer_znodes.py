"""Znodes of the old consumers, which kept their offsets in ZooKeeper.

OffsetCommit and OffsetFetch version 0 still read and write them, in Kafka 2.7 too.

Kafka 2.7: kafka.zk.ConsumerOffset, KafkaZkClient.getConsumerOffset.
"""

from kctl.errors import CorruptDataError, UsageError
from kctl.model import TopicPartition
from kctl.store.znodes import CONSUMERS


def consumer_offset_path(group_id: str, topic_partition: TopicPartition) -> str:
    """Where a group's offset is; UsageError for a group id that is no name of a znode."""
    if group_id in ("", ".", "..") or "/" in group_id or "\0" in group_id:
        raise UsageError(f"A group called {group_id!r} cannot keep offsets in ZooKeeper")
    topic, partition = topic_partition
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


def encode_consumer_offset(offset: int) -> bytes:
    """The data of such a znode: the number in decimal."""
    return b"%d" % offset


def decode_consumer_offset(data: bytes) -> int | None:
    """The offset, None if there is none; CorruptDataError for data that is no number."""
    if not data:
        return None
    try:
        return int(data)
    except ValueError:
        raise CorruptDataError(f"{data[:40]!r} is no offset") from None
