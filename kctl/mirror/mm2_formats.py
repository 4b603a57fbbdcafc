"""The records of MirrorMaker 2's own topics, as 2.7.2 writes them. Pure.

    mm2-offset-syncs.A.internal  key    topic string | partition int32
                                 value  source offset int64 | target offset int64
    A.checkpoints.internal       key    group string | topic string | partition int32
                                 value  version int16 = 0 | source offset int64
                                        | target offset int64 | metadata string
    heartbeats                   key    source alias string | target alias string
                                 value  version int16 = 0 | timestamp int64

A string is an int16 length and UTF-8. Each topic has one partition and is compacted. The topic of a
sync is named as at the source, that of a checkpoint as at the target. All three are in the target;
the name of the syncs' topic is that of KIP-716 for this place.

Kafka 2.7: org.apache.kafka.connect.mirror.OffsetSync, Checkpoint, Heartbeat; KIP-382, KIP-716
"""

from collections.abc import Callable

from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import MappedRun
from kctl.model import TopicPartition
from kctl.protocol.codec import decode, encode
from kctl.protocol.internal.versioned import decode_versioned, encode_versioned
from kctl.protocol.schema import Message, int32, int64, string

HEARTBEATS_TOPIC = "heartbeats"
_VERSION = 0
_SYNCS_PREFIX, _INTERNAL = "mm2-", ".internal"

CHECKPOINT_INTERVAL_MS = 60_000
HEARTBEAT_INTERVAL_MS = 1_000

KeyAndValue = tuple[bytes, bytes]


class OffsetSyncKey(Message, versions="0"):
    """The partition of the source that a sync is about."""

    topic: str = string()
    partition: int = int32()


class OffsetSyncValue(Message, versions="0"):
    """Two offsets at which source and target have the same record."""

    upstream_offset: int = int64()
    downstream_offset: int = int64()


class CheckpointKey(Message, versions="0"):
    """The group and the partition of the target that a checkpoint is about."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class CheckpointValue(Message, versions="0"):
    """The offset that a group has committed in the source, and its translation."""

    upstream_offset: int = int64()
    downstream_offset: int = int64()
    metadata: str = string()


class HeartbeatKey(Message, versions="0"):
    """The flow that is alive."""

    source_alias: str = string()
    target_alias: str = string()


class HeartbeatValue(Message, versions="0"):
    """When it was alive, in milliseconds since 1970."""

    timestamp: int = int64()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The offset of a group in the source, and its translation for a partition of the target."""

    group: str
    target: TopicPartition
    source_offset: int
    target_offset: int
    metadata: str = ""


def offset_syncs_topic(source_alias: str) -> str:
    """Return the topic of the target that holds the offset syncs of a source."""
    return f"mm2-offset-syncs.{source_alias}.internal"


def checkpoints_topic(source_alias: str) -> str:
    """Return the topic of the target that holds the checkpoints of a source."""
    return f"{source_alias}.checkpoints.internal"


def is_heartbeats(topic: str) -> bool:
    """Return whether a topic holds heartbeats, of its own cluster or copied."""
    return topic == HEARTBEATS_TOPIC or topic.endswith(f".{HEARTBEATS_TOPIC}")


def is_internal(topic: str) -> bool:
    """Return whether a topic is MirrorMaker 2's, and not to be copied."""
    return topic.endswith(_INTERNAL) and (
        topic.startswith(_SYNCS_PREFIX) or topic.endswith(f".checkpoints{_INTERNAL}")
    )


@dataclass(frozen=True, slots=True)
class Mm2Settings:
    """The names of both sides, and what is written how often."""

    source_alias: str
    target_alias: str
    # Selects the groups of checkpoints; None: none are written.
    groups: Callable[[str], bool] | None
    has_heartbeats: bool = True
    checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS

    @property
    def topics(self) -> list[str]:
        """Return the topics that are written to."""
        found = [offset_syncs_topic(self.source_alias)]
        if self.groups is not None:
            found.append(checkpoints_topic(self.source_alias))
        if self.has_heartbeats:
            found.append(HEARTBEATS_TOPIC)
        return found


def encode_sync(run: MappedRun) -> KeyAndValue:
    """Return the record for the beginning of a run."""
    key = OffsetSyncKey(topic=run.source.topic, partition=run.source.partition)
    value = OffsetSyncValue(upstream_offset=run.source_offset, downstream_offset=run.target_offset)
    return b"".join(encode(key, _VERSION)), b"".join(encode(value, _VERSION))


def encode_checkpoint(it: Checkpoint) -> KeyAndValue:
    """Return the record for a checkpoint."""
    key = CheckpointKey(group=it.group, topic=it.target.topic, partition=it.target.partition)
    value = CheckpointValue(
        upstream_offset=it.source_offset, downstream_offset=it.target_offset, metadata=it.metadata
    )
    return b"".join(encode(key, _VERSION)), encode_versioned(value, _VERSION)


def encode_heartbeat(source_alias: str, target_alias: str, timestamp: int) -> KeyAndValue:
    """Return the record that says that the flow is alive at `timestamp`."""
    key = HeartbeatKey(source_alias=source_alias, target_alias=target_alias)
    value = HeartbeatValue(timestamp=timestamp)
    return b"".join(encode(key, _VERSION)), encode_versioned(value, _VERSION)


def decode_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """Return the checkpoint of a record; raise CorruptDataError."""
    at = decode(CheckpointKey, _VERSION, key)
    to = decode_versioned(CheckpointValue, value)
    return Checkpoint(
        at.group, TopicPartition(at.topic, at.partition),
        to.upstream_offset, to.downstream_offset, to.metadata,
    )  # fmt: skip
