"""What a mirror keeps in its target cluster: its position, and its map of offsets. Pure.

A mirror has a name. Its *position* is what the group `kctl-mirror.NAME` of the target cluster has
committed for each partition of the target: the next offset to copy *of the source*, and metadata in
JSON that say of which partition of which cluster. Its *map* is the compacted topic
`kctl-mirror.NAME.map` with one partition: a record for each run of consecutive offsets, whose key
names the first one in the source:

    key    version int16 = 0 | topic string | partition int32 | copy int32 | source offset int64
    value  version int16 = 0 | target topic string | target offset int64 | count int64

A string is an int16 length and UTF-8. A run that continues is written again with a larger count,
under the same key. A run of no offsets says where the mirror begins, before anything is copied.
`copy` counts how often a partition was copied again from its start, because its topic was
recreated; only the runs of the largest one hold. Partitions have the same number on both sides.

The position expires with the group (`offsets.retention.minutes`), the map does not: a mirror
without a position continues at the end of its map, or where the map says that it begins.
"""

import json

from kctl.errors import CorruptDataError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.internal.versioned import decode_versioned, encode_versioned
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, int32, int64, string

PREFIX = "kctl-mirror."
_MAP_SUFFIX = ".map"
_VERSION = 0
_POSITION_VERSION = 1
# A topic's name has at most 249 characters.
NAME_CHARACTERS_MAX = 249 - len(PREFIX) - len(_MAP_SUFFIX)
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
NO_EPOCH = -1


def check_name(name: str) -> str:
    """Return `name` if a mirror can have it; raise UsageError otherwise."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise UsageError(
            f"A mirror cannot be called {name!r}",
            hint=f"up to {NAME_CHARACTERS_MAX} letters, digits, '.', '_' and '-'",
        )
    return name


def group_of(name: str) -> str:
    """Return the group of the target cluster that holds the positions of mirror `name`."""
    return PREFIX + name


def map_topic_of(name: str) -> str:
    """Return the topic of the target cluster that holds the map of mirror `name`."""
    return PREFIX + name + _MAP_SUFFIX


def mirror_of_group(group_id: str) -> str | None:
    """Return the name of the mirror whose positions a group holds; None for other groups.

    >>> mirror_of_group("kctl-mirror.dc1"), mirror_of_group("billing")
    ('dc1', None)
    """
    return group_id.removeprefix(PREFIX) or None if group_id.startswith(PREFIX) else None


def mirror_of_map(topic: str) -> str | None:
    """Return the name of the mirror whose map a topic holds; None for other topics."""
    return mirror_of_group(topic.removesuffix(_MAP_SUFFIX)) if topic.endswith(_MAP_SUFFIX) else None


def transactional_id_of(name: str, worker: str) -> str:
    """Return the transactional id of a worker of mirror `name`."""
    return f"{PREFIX}{name}.{worker}"


class MapKey(Message, versions="0"):
    """The key of a run: where it begins in the source."""

    topic: str = string()
    partition: int = int32()
    copy: int = int32()
    source_offset: int = int64()


class MapValue(Message, versions="0"):
    """The value of a run: where it begins in the target, and its number of offsets."""

    target_topic: str = string()
    target_offset: int = int64()
    count: int = int64()


@dataclass(frozen=True, slots=True)
class MappedRun:
    """`count` consecutive offsets of a source partition that are consecutive in the target."""

    source: TopicPartition
    target_topic: str
    source_offset: int
    target_offset: int
    count: int
    copy: int = 0

    @property
    def target(self) -> TopicPartition:
        """Return the partition of the target."""
        return TopicPartition(self.target_topic, self.source.partition)

    @property
    def source_end(self) -> int:
        """Return the offset after the last one, in the source."""
        return self.source_offset + self.count

    @property
    def target_end(self) -> int:
        """Return the offset after the last one, in the target."""
        return self.target_offset + self.count


def encode_run(run: MappedRun) -> tuple[bytes, bytes]:
    """Return the key and value of the map's record for `run`."""
    topic, partition = run.source
    key = MapKey(topic=topic, partition=partition, copy=run.copy, source_offset=run.source_offset)
    value = MapValue(
        target_topic=run.target_topic, target_offset=run.target_offset, count=run.count
    )
    return encode_versioned(key, _VERSION), encode_versioned(value, _VERSION)


def decode_run(key: Buffer | None, value: Buffer | None) -> MappedRun | None:
    """Return the run of a record of the map, or None for a tombstone; raise CorruptDataError."""
    if key is None:
        raise CorruptDataError("A record of the map of a mirror has no key")
    if value is None:
        return None
    at, to = decode_versioned(MapKey, key), decode_versioned(MapValue, value)
    return MappedRun(
        TopicPartition(at.topic, at.partition), to.target_topic,
        at.source_offset, to.target_offset, to.count, at.copy,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MirrorPosition:
    """The next offset of a source partition that a mirror copies."""

    offset: int
    # None where the source has no id: before Kafka 0.10.1, and directories.
    cluster_id: str | None
    source: TopicPartition
    # The leader epoch of the last batch before `offset`, or NO_EPOCH.
    leader_epoch: int = NO_EPOCH
    # See the module.
    copy: int = 0
    # The id of the topic since Kafka 2.8, which shows that it was recreated.
    topic_id: str | None = None
    # What the mirror does to records; empty if it copies them as they are.
    changes: str = ""
    # BROKER-PARTITION of a cluster of Kafka 0.7, whose numbers the mirror gives; empty otherwise.
    server_partition: str = ""

    def metadata(self) -> str:
        """Return the metadata to commit with the offset."""
        more = {"changes": self.changes, "server_partition": self.server_partition}
        return json.dumps(
            {name: text for name, text in more.items() if text}
            | {
                "kctl-mirror": _POSITION_VERSION,
                "cluster": self.cluster_id,
                "topic": self.source.topic,
                "partition": self.source.partition,
                "epoch": self.leader_epoch,
                "copy": self.copy,
                "topic_id": self.topic_id,
            },
            separators=(",", ":"),
        )


def parse_position(offset: int, metadata: str) -> MirrorPosition:
    """Return the position that was committed as `offset` with `metadata`; raise CorruptDataError if
    no mirror has committed it."""
    try:
        # Clients on librdkafka that commit what they have read add the NUL of a C string.
        found = json.loads(metadata.rstrip("\0"))
        if found["kctl-mirror"] != _POSITION_VERSION:
            raise CorruptDataError(f"A mirror's position has version {found['kctl-mirror']}")
        return MirrorPosition(
            offset,
            found["cluster"],
            TopicPartition(str(found["topic"]), int(found["partition"])),
            int(found["epoch"]),
            int(found["copy"]),
            found.get("topic_id"),
            str(found.get("changes", "")),
            str(found.get("server_partition", "")),
        )
    except (ValueError, TypeError, KeyError):
        raise CorruptDataError(f"Not the position of a mirror: {offset} {metadata!r}") from None
