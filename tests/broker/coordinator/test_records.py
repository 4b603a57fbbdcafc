"""Records of __consumer_offsets: read what Apache Kafka 2.7.2 wrote, write the same bytes."""

import pytest

from kctl.broker.coordinator.group.group import Group
from kctl.broker.coordinator.group.member import Member
from kctl.broker.coordinator.group.offsets import CommittedOffset
from kctl.broker.coordinator.group.records import (
    GroupRecord,
    OffsetRecord,
    group_record,
    group_tombstone,
    offset_record,
    read_record,
    stored_member,
)
from kctl.broker.coordinator.timers import Timer
from kctl.errors import CorruptDataError
from kctl.model import TopicPartition
from kctl.protocol.internal.consumer_offsets import OffsetCommitValue
from kctl.protocol.internal.versioned import encode_versioned
from kctl.records.memory_records import batches
from kctl.work import at_once
from tests.support.golden import golden_segments


def golden_records():
    """Return every record except markers, as (key, value)."""
    return [
        (record.key, record.value)
        for partition in range(4)
        for segment in golden_segments(f"__consumer_offsets-{partition}")
        for batch in batches(segment)
        if not getattr(batch, "is_control", False)
        for record in batch.records()
    ]


def group_of(record):
    """Return the group of one of Kafka's records, as it would be in memory."""
    timer = Timer(lambda moment, outcome: None)
    metadata = record.metadata
    group = Group(record.group_id, timer, timer, metadata.current_state_timestamp)
    for stored in metadata.members:
        member = Member(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout,
            stored.session_timeout,
            {metadata.protocol: stored.subscription},
        )
        group.add(member, metadata.protocol_type, None)
    group.protocol_type = metadata.protocol_type
    group.protocol_name = metadata.protocol
    group.generation_id = metadata.generation
    group.leader_id = metadata.leader
    return group, [
        stored_member(group, group.members[stored.member_id], stored.assignment)
        for stored in metadata.members
    ]


def test_kafkas_records_are_written_with_the_same_bytes():
    kinds = set()
    for key, value in golden_records():
        read = read_record(key, value)
        if isinstance(read, OffsetRecord):
            made = offset_record(read.group_id, read.topic_partition, read.committed)
        elif read.metadata is None:
            made = group_tombstone(read.group_id)
        else:
            made = at_once(group_record(*group_of(read)))
        assert (made.key, made.value) == (key, value)
        kinds.add((type(read), value is None))
    assert kinds == {(k, t) for k in (OffsetRecord, GroupRecord) for t in (True, False)}


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        (0, CommittedOffset(5, -1, "note", 1_000)),
        (1, CommittedOffset(5, -1, "note", 1_000)),
        (2, CommittedOffset(5, -1, "note", 1_000)),
        (3, CommittedOffset(5, 7, "note", 1_000)),
    ],
)
def test_older_versions_of_an_offset_lack_its_leader_epoch(version, kept):
    made = offset_record("g", TopicPartition("t", 1), CommittedOffset(5, 7, "note", 1_000), version)
    assert made.value[:2] == version.to_bytes(2)
    assert read_record(made.key, made.value).committed == kept


def test_an_offset_without_metadata_has_the_bytes_of_its_message():
    committed = CommittedOffset(2**40, 7, "", 1_700_000_000_000)
    message = OffsetCommitValue(
        offset=2**40, leader_epoch=7, metadata="", commit_timestamp=1_700_000_000_000
    )
    for version in range(4):
        made = offset_record("g", TopicPartition("t", 0), committed, version)
        assert made.value == encode_versioned(message, version)


def test_an_offset_with_an_expiry_is_written_in_the_version_that_has_one():
    offset = CommittedOffset(5, -1, "", 1_000, 2_000)
    made = offset_record("g", TopicPartition("t", 1), offset)
    assert made.value[:2] == b"\0\1"
    assert read_record(made.key, made.value).committed == offset


def test_an_old_key_is_read_but_not_written_again():
    made = offset_record("g", TopicPartition("t", 1), CommittedOffset(5, -1, "", 1_000))
    read = read_record(b"\0\0" + made.key[2:], made.value)
    assert read == made


def test_an_old_group_record_rebalances_as_fast_as_its_sessions_end():
    group, members = group_of(
        next(
            read
            for key, value in golden_records()
            if isinstance(read := read_record(key, value), GroupRecord)
            and read.metadata is not None
            and read.metadata.members
        )
    )
    made = at_once(group_record(group, members, 0))
    (member, *_) = read_record(made.key, made.value).metadata.members
    assert member.rebalance_timeout == member.session_timeout > 0


def test_record_types_of_later_versions_are_distinguished_from_damage():
    assert read_record(b"\0\5whatever", b"") is None
    for key, value in [(None, b""), (b"\0", b""), (b"\0\1\0\4g", b""), (b"\0\2\0\1g", b"\0\x63")]:
        with pytest.raises(CorruptDataError):
            read_record(key, value)
