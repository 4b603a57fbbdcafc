"""Dumps .log files: batches, and if asked their records, over damage where it can.

After a place that is no batch the dump goes on at the next one that has a right checksum, wherever
it begins. A batch whose checksum is wrong is shown all the same, with what can be read of it.

Kafka 2.7: kafka.tools.DumpLogSegments.dumpLog
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.dump.control_records import decode_control_record
from kctl.dump.segment_walk import Window, walk
from kctl.dump.values import (
    BulkStyle,
    DumpDamage,
    DumpedBatch,
    DumpedRecord,
    DumpedText,
    DumpItem,
    TrailingBytes,
)
from kctl.errors import CorruptDataError
from kctl.records.legacy import LegacyBatch
from kctl.records.memory_records import Batch
from kctl.records.record import Record
from kctl.records.record_batch import NO_SEQUENCE, RecordBatch, increment_sequence
from kctl.storage.damage import find_valid_batch
from kctl.storage.file_records import FileRecords

if TYPE_CHECKING:
    from kctl.dump.decoders import Decode, Decoded

_PADDING_STEP_BYTES = 1024 * 1024
# From this size on it pays to load numpy.
_BULK_BYTES = 512 * 1024
# Text of larger windows leaves the caches, and its pages are made anew each time.
_BULK_WINDOW_BYTES = 2 * 1024 * 1024


def dump_log(
    records: FileRecords,
    base_offset: int,
    *,
    with_records: bool,
    decode: "Decode | None",
    bulk: BulkStyle | None = None,
    position: int = 0,
    wants: Callable[[Batch], bool] | None = None,
) -> Iterator[DumpItem]:
    """Every batch of the file in order, each followed by its records if they are wanted;
    `decode` tells what a record says that is not a control record. With `bulk`, a big file comes
    as lines, up to the first damage. `position` is where a batch begins; of batches that
    `wants` does not want the records are left out."""
    next_offset = base_offset
    if bulk is not None and with_records and decode is None and records.size >= _BULK_BYTES:
        position, next_offset = yield from _dump_lines(records, base_offset, bulk)
    while position < records.size:
        damage = None
        try:
            for at, batch in records.batches(position):
                is_wanted = wants is None or wants(batch)
                yield from _dump_batch(records.path, at, batch, with_records and is_wanted, decode)
                position = at + batch.size
                next_offset = max(next_offset, batch.next_offset)
        except CorruptDataError as error:
            damage = DumpDamage.of(records.path, position, error)
        if position >= records.size:
            return
        if _is_padding(records, position):
            yield TrailingBytes(position, records.size - position, is_padding=True)
            return
        found = find_valid_batch(records, position + 1, next_offset)
        if found is None and damage is None:
            yield TrailingBytes(position, records.size - position, is_padding=False)
            damage = DumpDamage(records.path, position, "the last batch is cut")
        yield damage or DumpDamage(records.path, position, "a batch that ends behind the file")
        if found is None:
            return
        position = found[0]


def _dump_lines(
    records: FileRecords, base_offset: int, bulk: BulkStyle
) -> Generator[DumpItem, None, tuple[int, int]]:
    """Lines up to the first damage; its position, and the offset that should be there."""
    from kctl.dump.bulk_lines import KafkaLines, TextLines, UnreadableBatchError, window_lines
    from kctl.dump.kafka_format import Contents

    style: KafkaLines | TextLines
    if bulk in (BulkStyle.KAFKA, BulkStyle.KAFKA_WITH_DATA):
        is_full = bulk is BulkStyle.KAFKA_WITH_DATA
        style = KafkaLines(Contents.AS_TEXT if is_full else Contents.NOTHING)
    else:
        style = TextLines(with_data=bulk is BulkStyle.TEXT_WITH_DATA)
    position, next_offset = 0, base_offset
    for window in walk(records, base_offset, window_bytes=_BULK_WINDOW_BYTES):
        if not isinstance(window, Window):
            break
        try:
            lines = window_lines(style, window.buffer, window.position)
            text = b"".join(it.encode() if isinstance(it, str) else it for it in lines)
        except UnreadableBatchError:
            break
        yield DumpedText(text)
        position = window.position + len(window.buffer)
        next_offset = max(next_offset, window.batches[-1].last_offset + 1)
    return position, next_offset


def _dump_batch(
    path: str, position: int, batch: Batch, with_records: bool, decode: "Decode | None"
) -> Iterator[DumpItem]:
    is_valid = batch.is_crc_valid()
    yield DumpedBatch(position, batch, is_valid)
    if not is_valid:
        yield DumpDamage(
            path,
            position,
            f"Record is corrupt (stored crc = {batch.crc}, computed crc = {batch.compute_crc()})",
        )
    if not with_records:
        return
    try:
        if isinstance(batch, RecordBatch):
            for record in batch.records():
                decoder = decode_control_record if batch.is_control else decode
                decoded, damage = _decode(path, position, record, decoder)
                yield DumpedRecord(batch, record, _sequence(batch, record), decoded=decoded)
                if damage is not None:
                    yield damage
        else:
            yield from _dump_messages(path, position, batch, decode)
    except CorruptDataError as error:
        yield DumpDamage.of(path, position, error)


def _dump_messages(
    path: str, position: int, batch: LegacyBatch, decode: "Decode | None"
) -> Iterator[DumpItem]:
    for item in dumped_messages(batch):
        decoded, damage = _decode(path, position, item.record, decode)
        yield replace(item, decoded=decoded)
        if damage is not None:
            yield damage


def dumped_messages(batch: LegacyBatch) -> Iterator[DumpedRecord]:
    """The messages of a v0 or v1 batch."""
    for message in batch.messages():
        key, value = message.key_and_value()
        record = Record(message.offset, message.timestamp, key, value)
        yield DumpedRecord(batch, record, NO_SEQUENCE, message)


def _decode(
    path: str, position: int, record: Record, decode: "Decode | None"
) -> "tuple[Decoded | None, DumpDamage | None]":
    if decode is None:
        return None, None
    try:
        return decode(record), None
    except CorruptDataError as error:
        return None, DumpDamage(path, position, f"record at offset {record.offset}: {error}")


def _sequence(batch: RecordBatch, record: Record) -> int:
    if batch.base_sequence < 0:
        return NO_SEQUENCE
    return increment_sequence(batch.base_sequence, record.offset - batch.base_offset)


def _is_padding(records: FileRecords, position: int) -> bool:
    """Whether the file holds nothing but NULs from `position` on."""
    while position < records.size:
        data = records.file.pread(min(_PADDING_STEP_BYTES, records.size - position), position)
        if not data or data.count(0) != len(data):
            return False
        position += len(data)
    return True
