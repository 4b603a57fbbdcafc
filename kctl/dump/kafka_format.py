"""The text that kafka-dump-log 2.7.2 prints, byte for byte, from the values of a dump.

This covers its standard output only; its reports of mismatches, some of them false alarms, are not
repeated. Files that it does not know (checkpoints, meta.properties) yield nothing.

Kafka 2.7: kafka.tools.DumpLogSegments, GroupMetadataManager, TransactionLog
"""

import re
from collections.abc import Iterable, Iterator
from enum import Enum

from kctl.dump.control_records import ControlRecord
from kctl.dump.values import (
    DumpedBatch,
    DumpedFile,
    DumpedRecord,
    DumpedText,
    DumpItem,
    FileKind,
    TrailingBytes,
)
from kctl.records.memory_records import Batch
from kctl.records.record_batch import SEQUENCE_MAX, RecordBatch
from kctl.storage.layout import parse_metadata_snapshot_name
from kctl.storage.offset_index import OffsetPosition
from kctl.storage.producer_snapshot import ProducerSnapshotEntry
from kctl.storage.time_index import TimestampOffset
from kctl.storage.transaction_index import AbortedTransaction

TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
CODECS = ("NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD", "5", "6", "7")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_KNOWN_KINDS = {
    FileKind.LOG,
    FileKind.METADATA_SNAPSHOT,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
    FileKind.PRODUCER_SNAPSHOT,
}


class Contents(Enum):
    """How keys and values are printed."""

    NOTHING = "nothing"
    AS_TEXT = "as text"
    DECODED = "decoded"


def kafka_lines(
    items: Iterable[DumpItem], contents: Contents
) -> Iterator[str | bytes | memoryview]:
    """Yield the lines, each with its end, that kafka-dump-log would print."""
    file: DumpedFile | None = None
    entries = 0
    for item in items:
        if isinstance(item, DumpedFile):
            file, entries = item, 0
            yield from _file_lines(item)
        elif isinstance(item, DumpedText):
            yield item.text
        elif isinstance(item, DumpedBatch):
            yield batch_line(item)
        elif isinstance(item, DumpedRecord):
            yield record_line(item, contents)
        elif isinstance(item, TrailingBytes):
            if file is not None:
                yield from _trailing_lines(file, item, entries)
        else:
            entries += 1
            yield from _entry_lines(item)


def _file_lines(file: DumpedFile) -> Iterator[str]:
    if file.kind in _KNOWN_KINDS:
        yield f"Dumping {file.path}\n"
    if file.kind is FileKind.LOG:
        yield f"Starting offset: {file.base_offset}\n"
    elif file.kind is FileKind.METADATA_SNAPSHOT:
        end_offset, epoch = parse_metadata_snapshot_name(file.path.rpartition("/")[2]) or (0, 0)
        yield f"Snapshot end offset: {end_offset}, epoch: {epoch}\n"


def _trailing_lines(file: DumpedFile, trailing: TrailingBytes, entries: int) -> Iterator[str]:
    if file.kind is FileKind.LOG:
        name = file.path.rpartition("/")[2]
        yield f"Found {trailing.length} invalid bytes at the end of {name}\n"
    elif trailing.is_padding and not entries:
        # A padded index: its first entry of NULs counts as a real one.
        if file.kind is FileKind.OFFSET_INDEX:
            yield f"offset: {file.base_offset} position: 0\n"
        else:
            yield f"timestamp: 0 offset: {file.base_offset}\n"


def _entry_lines(item: DumpItem) -> Iterator[str]:
    if isinstance(item, OffsetPosition):
        yield f"offset: {item.offset} position: {item.position}\n"
    elif isinstance(item, TimestampOffset):
        yield f"timestamp: {item.timestamp} offset: {item.offset}\n"
    elif isinstance(item, AbortedTransaction):
        yield (
            f"version: 0 producerId: {item.producer_id} firstOffset: {item.first_offset} "
            f"lastOffset: {item.last_offset} lastStableOffset: {item.last_stable_offset}\n"
        )
    elif isinstance(item, ProducerSnapshotEntry):
        yield _producer_line(item)


def _producer_line(entry: ProducerSnapshotEntry) -> str:
    first = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {f'Some({first})' if first >= 0 else 'None'} "
    )
    if entry.last_offset >= 0:
        first_sequence = entry.last_sequence - entry.offset_delta
        if first_sequence < 0:
            first_sequence += SEQUENCE_MAX + 1
        line += (
            f"firstSequence: {first_sequence} lastSequence: {entry.last_sequence} "
            f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
            f"timestamp: {entry.timestamp}"
        )
    return line + "\n"


def batch_line(item: DumpedBatch) -> str:
    """Return a batch's line."""
    batch = item.batch
    if isinstance(batch, RecordBatch):
        head = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
            f"isTransactional: {_bool(batch.is_transactional)} "
            f"isControl: {_bool(batch.is_control)}"
        )
    else:
        head = f"offset: {batch.last_offset}"
    return (
        f"{head} position: {item.position} {_timestamp(batch, batch.max_timestamp)} "
        f"size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {CODECS[batch.compression_type]} crc: {batch.crc} "
        f"isvalid: {_bool(item.is_valid)}\n"
    )


def record_line(item: DumpedRecord, contents: Contents) -> str:
    """Return a record's line."""
    record = item.record
    line = (
        f"| offset: {record.offset} {_timestamp(item.batch, record.timestamp)} "
        f"keysize: {_size(record.key)} valuesize: {_size(record.value)}"
    )
    if item.message is None:
        names = ",".join([name for name, _ in record.headers])
        line += f" sequence: {item.sequence} headerKeys: [{names}]"
    else:
        line += f" crc: {item.message.crc} isvalid: {_bool(item.message.is_crc_valid())}"
    if isinstance(item.decoded, ControlRecord):
        line += _control(item.decoded)
    elif contents is Contents.DECODED and item.decoded is not None:
        from kctl.dump.decoded_format import decoded_texts

        key, payload = decoded_texts(item.decoded)
        line += "" if key is None else f" key: {key}"
        line += "" if payload is None else f" payload: {payload}"
    elif contents is Contents.AS_TEXT:
        line += _text(" key: ", record.key) + _text(" payload: ", record.value)
    return line + "\n"


def _timestamp(batch: Batch, timestamp: int) -> str:
    return f"{TIMESTAMP_TYPES[batch.timestamp_type]}: {timestamp}"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _text(name: str, data: bytes | None) -> str:
    return "" if data is None else name + java_text(data)


def java_text(data: bytes) -> str:
    """Return the string that Java makes of bytes that should be UTF-8: as Python, except for half a
    surrogate pair, which it replaces whole."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def _control(control: ControlRecord) -> str:
    if control.fields is not None:
        from kctl.dump.later_records import compact_json

        return f" {control.label} {compact_json(control.fields)}"
    if control.coordinator_epoch is None:
        return f" controlType: {control.type_name}({control.type_id})"
    return f" endTxnMarker: {control.type_name} coordinatorEpoch: {control.coordinator_epoch}"
