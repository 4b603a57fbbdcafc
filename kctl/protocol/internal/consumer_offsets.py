"""Keys and values of the topic __consumer_offsets.

A record is a committed offset (key v0 or v1, value OffsetCommitValue) or a group's metadata
(key v2, value GroupMetadataValue); a null value deletes it. Kafka 2.7 writes offset keys v1;
offset values v3, or v1 with an expiry; group values v3.
Kafka 2.7: GroupMetadataManager; KIP-211, KIP-320, KIP-345.
"""

from kctl.errors import CorruptDataError
from kctl.protocol.internal.versioned import decode_versioned, encode_versioned, stored_version
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Struct, array, bytes_, int32, int64, string

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
EXPIRING_OFFSET_VALUE_VERSION = 1
GROUP_VALUE_VERSION = 3


class OffsetCommitKey(Message, versions="0-1"):
    """The group and partition of a committed offset."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-3"):
    """A committed offset; timestamps in milliseconds, expire_timestamp -1: expires by retention."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    """The id of a group."""

    group: str = string()


class MemberMetadata(Struct):
    """One member of a group; subscription and assignment are blobs of the group's protocol."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Message, versions="0-3"):
    """A group's generation and members; timeouts and timestamps in milliseconds."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


def decode_key(data: Buffer) -> OffsetCommitKey | GroupMetadataKey:
    """Return the key of a record; CorruptDataError for a version of a newer Kafka."""
    version = stored_version(data)
    if version <= OFFSET_KEY_VERSION:
        return decode_versioned(OffsetCommitKey, data)
    if version == GROUP_KEY_VERSION:
        return decode_versioned(GroupMetadataKey, data)
    raise CorruptDataError(f"a key of __consumer_offsets of the unknown version {version}")


def encode_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    """Return the key as Kafka 2.7 writes it."""
    is_offset = isinstance(key, OffsetCommitKey)
    return encode_versioned(key, OFFSET_KEY_VERSION if is_offset else GROUP_KEY_VERSION)
