"""Znodes of the old consumers, which kept their offsets and their groups' registry in ZooKeeper.

OffsetCommit and OffsetFetch version 0 still read and write the offsets, in Kafka 2.7 too. Kafka
1.1's consumers were the last to write the registry.

Kafka 2.7: kafka.zk.ConsumerOffset, KafkaZkClient.getConsumerOffset.
"""

from typing import NamedTuple

from kctl.errors import CorruptDataError, UsageError
from kctl.model import TopicPartition
from kctl.store.znodes import CONSUMERS, from_json, to_json


class Subscription(NamedTuple):
    """The topics that an old consumer reads."""

    # Streams by topic, or by regular expression.
    streams: dict[str, int]
    # "static", "white_list" or "black_list".
    pattern: str
    timestamp_ms: int


def consumer_offset_path(group_id: str, topic_partition: TopicPartition) -> str:
    """Return the path of a group's offset; UsageError for a group id that is not a znode name."""
    if group_id in ("", ".", "..") or "/" in group_id or "\0" in group_id:
        raise UsageError(f"A group called {group_id!r} cannot keep offsets in ZooKeeper")
    topic, partition = topic_partition
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


def encode_consumer_offset(offset: int) -> bytes:
    """Return the data of an offset znode: the number in decimal."""
    return b"%d" % offset


def decode_consumer_offset(data: bytes) -> int | None:
    """Return the offset, or None for empty data; CorruptDataError if it is not a number."""
    if not data:
        return None
    try:
        return int(data)
    except ValueError:
        raise CorruptDataError(f"{data[:40]!r} is no offset") from None


def consumer_id_path(group_id: str, consumer_id: str) -> str:
    """Return `/consumers/G/ids/C`: a live consumer, ephemeral."""
    return f"{CONSUMERS}/{group_id}/ids/{consumer_id}"


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode `/consumers/G/ids/C`."""
    return to_json(
        {
            "version": 1,
            "subscription": subscription.streams,
            "pattern": subscription.pattern,
            "timestamp": str(subscription.timestamp_ms),
        }
    )


def decode_subscription(path: str, data: bytes) -> Subscription:
    """Decode `/consumers/G/ids/C`."""
    fields = from_json(data, path)
    try:
        streams = {str(topic): int(count) for topic, count in fields["subscription"].items()}
        return Subscription(streams, str(fields["pattern"]), int(fields["timestamp"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError(f"znode {path} lacks or garbles a field: {error!r}") from None
