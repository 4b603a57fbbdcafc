"""Stored messages: group metadata, transactions, and what consumers tell each other."""

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    encode_key,
)
from kctl.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_blob,
    encode_blob,
)
from kctl.protocol.internal.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from kctl.protocol.internal.versioned import (
    decode_versioned,
    encode_versioned,
    stored_version,
)
from kctl.records.memory_records import batches
from tests.protocol.instances import Instances
from tests.support.golden import golden_files

STORED = [
    OffsetCommitKey,
    OffsetCommitValue,
    GroupMetadataKey,
    GroupMetadataValue,
    TransactionLogKey,
    TransactionLogValue,
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]


@pytest.mark.parametrize("cls", STORED, ids=lambda cls: cls.__name__)
def test_what_is_stored_is_read_in_every_version(cls):
    for version in range(cls.min_version, cls.max_version + 1):
        for seed in range(20):
            message = Instances(seed).message(cls, version)
            assert decode_versioned(cls, encode_versioned(message, version)) == message


def test_the_keys_version_says_what_a_record_is():
    offset = OffsetCommitKey(group="g", topic="t", partition=5)
    assert encode_key(offset).hex() == "0001" + "000167" + "000174" + "00000005"
    group = GroupMetadataKey(group="g")
    assert encode_key(group).hex() == "0002" + "000167"
    for key in (offset, group):
        assert decode_key(encode_key(key)) == key
    assert decode_key(encode_versioned(offset, 0)) == offset


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\3\0\1g", b"\xff\xff", b"\0\2\0\5g"])
def test_a_key_of_another_kind_is_corrupt(data):
    with pytest.raises(CorruptDataError):
        decode_key(data)


def test_a_value_of_a_newer_kafka_is_corrupt():
    with pytest.raises(CorruptDataError, match="OffsetCommitValue has no version 4"):
        decode_versioned(OffsetCommitValue, b"\0\4" + bytes(30))


def test_a_group_value_has_its_fields_in_kafkas_order():
    member = MemberMetadata(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h",
        rebalance_timeout=1, session_timeout=2, subscription=b"s", assignment=b"a",
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m",
        current_state_timestamp=4, members=[member],
    )  # fmt: skip
    assert encode_versioned(value, 3) == (
        b"\0\3" + b"\0\x08consumer" + b"\0\0\0\3" + b"\0\5range" + b"\0\1m"
        + (4).to_bytes(8, "big") + b"\0\0\0\1"
        + b"\0\1m" + b"\0\1i" + b"\0\1c" + b"\0\2/h" + b"\0\0\0\1" + b"\0\0\0\2"
        + b"\0\0\0\1s" + b"\0\0\0\1a"
    )  # fmt: skip


def test_a_transaction_has_its_fields_in_kafkas_order():
    value = TransactionLogValue(
        producer_id=1, producer_epoch=2, transaction_timeout_ms=3, transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0])],
        transaction_last_update_timestamp_ms=4, transaction_start_timestamp_ms=5,
    )  # fmt: skip
    assert encode_versioned(value, 0) == (
        b"\0\0" + (1).to_bytes(8, "big") + b"\0\2" + b"\0\0\0\3" + b"\1"
        + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\0"
        + (4).to_bytes(8, "big") + (5).to_bytes(8, "big")
    )  # fmt: skip


def test_a_subscription_of_a_newer_consumer_is_read_as_far_as_it_is_known():
    owned = [TopicPartition(topic="t", partitions=[1])]
    subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned)
    blob = encode_blob(subscription)
    assert decode_blob(ConsumerProtocolSubscription, blob) == subscription
    assert decode_blob(ConsumerProtocolSubscription, b"\0\x07" + blob[2:] + b"new") == subscription
    with pytest.raises(CorruptDataError, match="version -1"):
        decode_blob(ConsumerProtocolAssignment, b"\xff\xff" + blob[2:])


def golden_records(topic):
    """The data records that Apache Kafka 2.7.2 wrote to an internal topic."""
    names = sorted(
        name
        for name in golden_files("logs/clean.tar.xz")
        if f"/{topic}-" in name and name.endswith(".log")
    )
    for name in names:
        for batch in batches(golden_files("logs/clean.tar.xz")[name]):
            if not batch.is_control:
                yield from batch.records()


def test_offsets_and_groups_that_apache_kafka_stored_are_read_and_written_the_same():
    kinds = set()
    for record in golden_records("__consumer_offsets"):
        key = decode_key(record.key)
        assert encode_key(key) == record.key
        if record.value is None:
            continue
        is_offset = isinstance(key, OffsetCommitKey)
        cls = OffsetCommitValue if is_offset else GroupMetadataValue
        value = decode_versioned(cls, record.value)
        assert encode_versioned(value, stored_version(record.value)) == record.value
        kinds.add((cls, stored_version(record.value)))
        if not is_offset and value.protocol_type == "consumer":
            for member in value.members:
                subscription = decode_blob(ConsumerProtocolSubscription, member.subscription)
                assert subscription.topics
                assigned = decode_blob(ConsumerProtocolAssignment, member.assignment)
                assert assigned.assigned_partitions
    assert kinds == {(OffsetCommitValue, 3), (GroupMetadataValue, 3)}


def test_transactions_that_apache_kafka_stored_are_read_and_written_the_same():
    states = set()
    for record in golden_records("__transaction_state"):
        key = decode_versioned(TransactionLogKey, record.key)
        assert encode_versioned(key, 0) == record.key
        value = decode_versioned(TransactionLogValue, record.value)
        assert encode_versioned(value, 0) == record.value
        states.add(value.transaction_status)
        assert value.transaction_last_update_timestamp_ms > 1_600_000_000_000
    assert {0, 1, 2, 4} <= states
