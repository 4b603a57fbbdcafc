"""Records of __consumer_offsets, as a group coordinator writes and reads them. Pure.

A key begins with its version: 0 and 1 are a committed offset (group, topic, partition), 2 is a
group (group id). A value begins with its own version, or is missing (a tombstone).

Kafka 2.7: kafka.coordinator.group.GroupMetadataManager (offsetCommitKey, groupMetadataValue, ...).
"""

from struct import Struct

from kctl.broker.coordinator.group.group import Group
from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.offsets import NO_EXPIRY, CommittedOffset
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.internal.consumer_offsets import (
    EXPIRING_OFFSET_VALUE_VERSION,
    GROUP_KEY_VERSION,
    GROUP_VALUE_VERSION,
    OFFSET_KEY_VERSION,
    OFFSET_VALUE_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
)
from kctl.protocol.internal.versioned import (
    decode_versioned,
    encode_versioned,
    encoding_versioned,
    stored_version,
)
from kctl.work import Work

# Version, offset, leader epoch, size of the metadata, timestamp: OffsetCommitValue v3.
_plain_value = Struct(">hqihq").pack


@dataclass(slots=True)
class OffsetRecord:
    """A committed offset, or its tombstone."""

    key: bytes
    value: bytes | None
    group_id: str
    topic_partition: TopicPartition
    committed: CommittedOffset | None


@dataclass(slots=True)
class GroupRecord:
    """A group's generation with its assignment, or its tombstone."""

    key: bytes
    value: bytes | None
    group_id: str
    # None in a tombstone.
    metadata: GroupMetadataValue | None


def offset_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    """Return the key of the records of an offset."""
    topic, partition = topic_partition
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def offset_record(
    group_id: str,
    topic_partition: TopicPartition,
    committed: CommittedOffset | None,
    value_version: int = OFFSET_VALUE_VERSION,
    key: bytes | None = None,
) -> OffsetRecord:
    """Return the record that commits an offset or, without `committed`, the one that deletes it.

    `key` is the result of `offset_key`, if the caller already has it.
    """
    if key is None:
        key = offset_key(group_id, topic_partition)
    value = None
    if committed is not None:
        value = _offset_value(committed, value_version)
    return OffsetRecord(key, value, group_id, topic_partition, committed)


def _offset_value(committed: CommittedOffset, version: int) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = committed
    if version == OFFSET_VALUE_VERSION and not metadata and expire_timestamp_ms == NO_EXPIRY:
        # The common case by far; a message object and its encoding take ten times as long.
        return _plain_value(version, offset, leader_epoch, 0, commit_timestamp_ms)
    message = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
    )
    if expire_timestamp_ms != NO_EXPIRY:
        version = EXPIRING_OFFSET_VALUE_VERSION
    return encode_versioned(message, version)


def stored_member(group: Group, member: Member, assignment: bytes) -> MemberMetadata:
    """Return a member as stored in the record of its group's current generation."""
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.protocols[group.protocol_name or ""],
        assignment=assignment,
    )


def group_record(
    group: Group, members: list[MemberMetadata], value_version: int = GROUP_VALUE_VERSION
) -> Work[GroupRecord]:
    """Return the record of the group's current generation; `members` come from `stored_member`."""
    metadata = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=members,
    )
    value = yield from encoding_versioned(metadata, value_version)
    return GroupRecord(_group_key(group.group_id), value, group.group_id, metadata)


def group_tombstone(group_id: str) -> GroupRecord:
    """Return the record that deletes a group."""
    return GroupRecord(_group_key(group_id), None, group_id, None)


def read_record(key: bytes | None, value: bytes | None) -> OffsetRecord | GroupRecord | None:
    """Parse a record of the log; return None for types that 2.7 does not know (later versions write
    them). Raise CorruptDataError for bytes that cannot be parsed."""
    if key is None:
        raise CorruptDataError("A record of __consumer_offsets has no key")
    key_version = stored_version(key)
    if key_version in (0, OFFSET_KEY_VERSION):
        read = decode_versioned(OffsetCommitKey, key)
        topic_partition = TopicPartition(read.topic, read.partition)
        committed = None if value is None else _read_offset(value)
        if key_version != OFFSET_KEY_VERSION:
            key = offset_key(read.group, topic_partition)  # the key of the next commit
        return OffsetRecord(key, value, read.group, topic_partition, committed)
    if key_version == GROUP_KEY_VERSION:
        group_id = decode_versioned(GroupMetadataKey, key).group
        return GroupRecord(key, value, group_id, None if value is None else _read_group(value))
    return None


def _read_offset(value: bytes) -> CommittedOffset:
    read = decode_versioned(OffsetCommitValue, value)
    return CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp
    )


def _read_group(value: bytes) -> GroupMetadataValue:
    metadata = decode_versioned(GroupMetadataValue, value)
    if stored_version(value) == 0:
        for member in metadata.members:
            member.rebalance_timeout = member.session_timeout
    return metadata


def _group_key(group_id: str) -> bytes:
    return encode_key(GroupMetadataKey(group=group_id))
