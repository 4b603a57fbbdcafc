"""The values of a dump as plain documents for JSON: stable snake_case keys, bytes unambiguous.

Every document has a `type`. Bytes that are UTF-8 stand as text under `key`, `value`, others in
base64 under `key_base64`, `value_base64`; a null is null. Timestamps are milliseconds.
"""

import base64
from collections.abc import Callable
from typing import Any

from kctl.dump.decoders import CommittedOffset, ControlRecord, Decoded, StoredGroup
from kctl.dump.kafka_format import TIMESTAMP_TYPES, TRANSACTION_STATES
from kctl.dump.values import (
    CheckpointedOffset,
    DumpDamage,
    DumpedBatch,
    DumpedFile,
    DumpedRecord,
    DumpItem,
    TrailingBytes,
)
from kctl.errors import CorruptDataError
from kctl.protocol.internal.consumer_offsets import GroupMetadataValue, MemberMetadata
from kctl.protocol.internal.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    decode_blob,
)
from kctl.protocol.internal.transaction_state import TransactionLogValue
from kctl.records.record_batch import RecordBatch
from kctl.storage.checkpoint import EpochEntry
from kctl.storage.meta_properties import MetaProperties
from kctl.storage.offset_index import OffsetPosition
from kctl.storage.producer_snapshot import ProducerSnapshotEntry
from kctl.storage.time_index import TimestampOffset
from kctl.storage.transaction_index import AbortedTransaction

Document = dict[str, Any]

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def document(item: DumpItem, *, with_data: bool) -> Document:
    """The document of one value; keys, values and headers of records only `with_data`."""
    if isinstance(item, DumpedRecord):
        return _record(item, with_data=with_data)
    return _MAKERS[type(item)](item)


def _file(file: DumpedFile) -> Document:
    return {
        "type": "file",
        "path": file.path,
        "kind": file.kind.value,
        "base_offset": file.base_offset,
        "size": file.size,
    }


def _batch(item: DumpedBatch) -> Document:
    batch = item.batch
    codec = batch.compression_type
    common: Document = {
        "type": "batch",
        "position": item.position,
        "size": batch.size,
        "magic": batch.magic,
        "last_offset": batch.last_offset,
        "compression_type": _CODECS[codec] if codec < len(_CODECS) else str(codec),
        "timestamp_type": TIMESTAMP_TYPES[batch.timestamp_type],
        "max_timestamp": batch.max_timestamp,
        "crc": batch.crc,
        "is_valid": item.is_valid,
    }
    if not isinstance(batch, RecordBatch):
        return common
    return common | {
        "base_offset": batch.base_offset,
        "count": batch.count,
        "base_timestamp": batch.base_timestamp,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
    }


def _record(item: DumpedRecord, *, with_data: bool) -> Document:
    record = item.record
    found: Document = {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
    }
    if item.message is None:
        found["sequence"] = item.sequence
    else:
        found |= {"crc": item.message.crc, "is_valid": item.message.is_crc_valid()}
    if with_data:
        found |= _content("key", record.key) | _content("value", record.value)
        found["headers"] = [
            {"name": name, **_content("value", value)} for name, value in record.headers
        ]
    if isinstance(item.decoded, ControlRecord) or (with_data and item.decoded is not None):
        found["decoded"] = _decoded(item.decoded)
    return found


def _content(name: str, data: bytes | None) -> Document:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _decoded(decoded: Decoded) -> Document:
    if isinstance(decoded, ControlRecord):
        return {
            "type": "control",
            "control_type": decoded.type_name,
            "control_type_id": decoded.type_id,
            "coordinator_epoch": decoded.coordinator_epoch,
        }
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
        group = {} if decoded.value is None else _group(decoded.value)
        name = decoded.key.group
        tombstone = decoded.value is None
        return {"type": "group_metadata", "group": name, "is_tombstone": tombstone, **group}
    transaction = {} if decoded.value is None else _transaction(decoded.value)
    return {
        "type": "transaction_metadata",
        "transactional_id": decoded.key.transactional_id,
        "is_tombstone": decoded.value is None,
        **transaction,
    }


def _group(group: GroupMetadataValue) -> Document:
    return {
        "protocol_type": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "current_state_timestamp": group.current_state_timestamp,
        "members": [_member(member, group.protocol_type) for member in group.members],
    }


def _member(member: MemberMetadata, protocol_type: str) -> Document:
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
        return found  # The bytes are there as they are.
    found["assigned_partitions"] = [
        f"{topic.topic}-{partition}"
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    ]
    return found


def _transaction(value: TransactionLogValue) -> Document:
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


def _checkpointed(item: CheckpointedOffset) -> Document:
    return {
        "type": "checkpointed_offset",
        "topic": item.topic_partition.topic,
        "partition": item.topic_partition.partition,
        "offset": item.offset,
    }


def _trailing(item: TrailingBytes) -> Document:
    return {
        "type": "trailing_bytes",
        "position": item.position,
        "length": item.length,
        "is_padding": item.is_padding,
    }


def _damage(item: DumpDamage) -> Document:
    return {
        "type": "damage",
        "path": item.path,
        "position": item.position,
        "reason": item.reason,
    }


def _meta_properties(item: MetaProperties) -> Document:
    return {
        "type": "meta_properties",
        "broker_id": item.broker_id,
        "cluster_id": item.cluster_id,
    }


def _fields(name: str) -> Callable[[Any], Document]:
    """A maker for entries that are named tuples."""
    return lambda item: {"type": name, **item._asdict()}


_MAKERS: dict[type, Callable[[Any], Document]] = {
    DumpedFile: _file,
    DumpedBatch: _batch,
    OffsetPosition: _fields("offset_index_entry"),
    TimestampOffset: _fields("time_index_entry"),
    AbortedTransaction: _fields("aborted_transaction"),
    ProducerSnapshotEntry: _fields("producer"),
    EpochEntry: _fields("leader_epoch"),
    CheckpointedOffset: _checkpointed,
    MetaProperties: _meta_properties,
    TrailingBytes: _trailing,
    DumpDamage: _damage,
}
