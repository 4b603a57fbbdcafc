"""The values of a dump as plain documents for JSON: stable snake_case keys, bytes unambiguous.

Every document has a `type`. Bytes that are UTF-8 are text under `key`, `value`, others are base64
under `key_base64`, `value_base64`; a null is null. Timestamps are milliseconds.
"""

import base64
from collections.abc import Callable
from typing import Any

from kctl.dump.control_records import ControlRecord
from kctl.dump.kafka_format import TIMESTAMP_TYPES
from kctl.dump.shapes import Shaper, Shapes, shaped
from kctl.dump.values import (
    CheckpointedOffset,
    DumpDamage,
    DumpedBatch,
    DumpedFile,
    DumpedOldMessage,
    DumpedRecord,
    DumpItem,
    TrailingBytes,
)
from kctl.records.compression import CODEC_NAMES
from kctl.records.record_batch import RecordBatch
from kctl.storage.checkpoint import EpochEntry
from kctl.storage.meta_properties import MetaProperties
from kctl.storage.offset_index import OffsetPosition
from kctl.storage.producer_snapshot import ProducerSnapshotEntry
from kctl.storage.time_index import TimestampOffset
from kctl.storage.transaction_index import AbortedTransaction

Document = dict[str, Any]


def document(item: DumpItem, *, with_data: bool, shapes: Shapes | None = None) -> Document:
    """Return the document of one value; keys, values and headers of records only `with_data`.
    `shapes` determine the form of `key` and `value`."""
    if isinstance(item, DumpedRecord):
        found = _record(item, with_data=with_data)
        if with_data and shapes is not None:
            _reshape(found, "key", item.record.key, shapes.key)
            _reshape(found, "value", item.record.value, shapes.value)
        return found
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
        "compression_type": CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else str(codec),
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
        from kctl.dump.decoded_format import decoded_document

        found["decoded"] = decoded_document(item.decoded)
    return found


def _reshape(found: Document, name: str, data: bytes | None, shape: Shaper | None) -> None:
    if shape is not None:
        found.pop(f"{name}_base64", None)
        found[name] = shaped(data, shape)


def _content(name: str, data: bytes | None) -> Document:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _old_message(item: DumpedOldMessage) -> Document:
    return {
        "type": "old_message",
        "position": item.position,
        "offset": item.offset,
        "magic": item.magic,
        "compression_type": CODEC_NAMES[item.compression_type],
        "crc": item.crc,
        "is_valid": item.is_valid,
        "depth": item.depth,
        "size": len(item.payload),
        **({} if item.compression_type else _content("payload", item.payload)),
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
        "version": item.version,
        "broker_id": item.broker_id,
        "cluster_id": item.cluster_id,
        "directory_id": item.directory_id,
    }


def _fields(name: str) -> Callable[[Any], Document]:
    """Return a function that makes documents of named tuples."""
    return lambda item: {"type": name, **item._asdict()}


_MAKERS: dict[type, Callable[[Any], Document]] = {
    DumpedFile: _file,
    DumpedBatch: _batch,
    DumpedOldMessage: _old_message,
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
