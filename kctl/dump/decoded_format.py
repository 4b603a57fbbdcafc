"""The records of internal topics as kafka-dump-log prints them, and as documents for JSON.

Kafka 2.7: GroupMetadataManager.formatRecordKeyAndValue, TransactionLog.formatRecordKeyAndValue
"""

import base64
import json
from typing import Any

from kctl.dump.control_records import ControlRecord
from kctl.dump.decoders import CommittedOffset, Decoded, StoredGroup, StoredTransaction
from kctl.dump.later_records import LaterRecord
from kctl.dump.scala_order import in_hash_order, topic_partition_hash
from kctl.errors import CorruptDataError
from kctl.java_hash import unsigned_java_hash
from kctl.protocol.internal.consumer_offsets import GroupMetadataValue, MemberMetadata
from kctl.protocol.internal.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    decode_blob,
)
from kctl.protocol.internal.transaction_state import TransactionLogValue

Document = dict[str, Any]

TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def decoded_texts(decoded: Decoded) -> tuple[str | None, str | None]:
    """Return key and payload of an internal topic's record as Kafka prints them;
    None: not printed."""
    if isinstance(decoded, LaterRecord):
        return decoded.texts()
    if isinstance(decoded, CommittedOffset):
        key = decoded.key
        name = f"offset_commit::group={key.group},partition={key.topic}-{key.partition}"
        if decoded.value is None:
            return name, "<DELETE>"
        metadata = f",metadata={decoded.value.metadata}" if decoded.value.metadata else ""
        return name, f"offset={decoded.value.offset}{metadata}"
    if isinstance(decoded, StoredGroup):
        name = f"group_metadata::group={decoded.key.group}"
        return name, "<DELETE>" if decoded.value is None else _group(decoded.value)
    if isinstance(decoded, StoredTransaction):
        name = f"transaction_metadata::transactionalId={decoded.key.transactional_id}"
        return name, "<DELETE>" if decoded.value is None else _transaction(decoded.value)
    return "", decoded.type_name


def _group(group: GroupMetadataValue) -> str:
    members = in_hash_order(group.members, lambda member: unsigned_java_hash(member.member_id))
    assignment = ",".join([_member(member, group.protocol_type) for member in members])
    document = {
        "protocolType": group.protocol_type,
        "protocol": group.protocol,
        "generationId": group.generation,
        "assignment": f"{{{assignment}}}",
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _member(member: MemberMetadata, protocol_type: str) -> str:
    if protocol_type != PROTOCOL_TYPE:
        return f"{member.member_id}={_hex(member.assignment)}"
    try:
        assignment = decode_blob(ConsumerProtocolAssignment, member.assignment)
    except CorruptDataError:
        return f"{member.member_id}={_hex(member.assignment)}"
    partitions = ", ".join(
        f"{topic.topic}-{partition}"
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )
    user_data = _hex(assignment.user_data or b"")
    return f"{member.member_id}=[{partitions}]" + (f":{user_data}" if user_data else "")


def _hex(data: bytes | memoryview) -> str:
    """Return the bytes as a number: leading zeros are lost."""
    return f"{int.from_bytes(data, 'big'):X}" if len(data) else ""


def _transaction(value: TransactionLogValue) -> str:
    named = {
        f"{topic.topic}-{partition}": topic_partition_hash(topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    }
    partitions = ",".join(in_hash_order(named, named.__getitem__))
    status = value.transaction_status
    is_known = 0 <= status < len(TRANSACTION_STATES)
    return (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},"
        f"state={TRANSACTION_STATES[status] if is_known else status},"
        f"partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={value.transaction_timeout_ms}"
    )


def decoded_document(decoded: Decoded) -> Document:
    """Return the record with every field; fields that a tombstone lacks are null or absent."""
    if isinstance(decoded, ControlRecord):
        return {
            "type": "control",
            "control_type": decoded.type_name,
            "control_type_id": decoded.type_id,
            "coordinator_epoch": decoded.coordinator_epoch,
            **({} if decoded.fields is None else {"fields": decoded.fields}),
        }
    if isinstance(decoded, LaterRecord):
        return decoded.document()
    if isinstance(decoded, CommittedOffset):
        key, value = decoded.key, decoded.value
        return {
            "type": "offset_commit",
            "group": key.group,
            "topic": key.topic,
            "partition": key.partition,
            "is_tombstone": value is None,
            "offset": None if value is None else value.offset,
            "leader_epoch": None if value is None else value.leader_epoch,
            "metadata": None if value is None else value.metadata,
            "commit_timestamp": None if value is None else value.commit_timestamp,
            "expire_timestamp": None if value is None else value.expire_timestamp,
        }
    if isinstance(decoded, StoredGroup):
        group = {} if decoded.value is None else _group_document(decoded.value)
        name = decoded.key.group
        tombstone = decoded.value is None
        return {"type": "group_metadata", "group": name, "is_tombstone": tombstone, **group}
    transaction = {} if decoded.value is None else _transaction_document(decoded.value)
    return {
        "type": "transaction_metadata",
        "transactional_id": decoded.key.transactional_id,
        "is_tombstone": decoded.value is None,
        **transaction,
    }


def _group_document(group: GroupMetadataValue) -> Document:
    return {
        "protocol_type": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "current_state_timestamp": group.current_state_timestamp,
        "members": [_member_document(member, group.protocol_type) for member in group.members],
    }


def _member_document(member: MemberMetadata, protocol_type: str) -> Document:
    found: Document = {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout": member.rebalance_timeout,
        "session_timeout": member.session_timeout,
        "subscription_base64": base64.b64encode(member.subscription).decode(),
        "assignment_base64": base64.b64encode(member.assignment).decode(),
    }
    if protocol_type != PROTOCOL_TYPE:
        return found
    try:
        assignment = decode_blob(ConsumerProtocolAssignment, member.assignment)
    except CorruptDataError:
        return found  # The bytes stay as they are.
    found["assigned_partitions"] = [
        f"{topic.topic}-{partition}"
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]
    return found


def _transaction_document(value: TransactionLogValue) -> Document:
    status = value.transaction_status
    is_known = 0 <= status < len(TRANSACTION_STATES)
    return {
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "state": TRANSACTION_STATES[status] if is_known else str(status),
        "timeout_ms": value.transaction_timeout_ms,
        "partitions": [
            f"{topic.topic}-{partition}"
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ],
        "last_update_timestamp": value.transaction_last_update_timestamp_ms,
        "start_timestamp": value.transaction_start_timestamp_ms,
    }
