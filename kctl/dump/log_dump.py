"""Dumps .log files: batches, and if asked their records, over damage where it can.

After a place that is no batch the dump goes on at the next one that has a right checksum, wherever
it begins. A batch whose checksum is wrong is shown all the same, with what can be read of it.

Kafka 2.7: kafka.tools.DumpLogSegments.dumpLog
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.dump.control_records import decode_control_record
from kctl.dump.values import (
    BulkStyle,
    DumpDamage,
    DumpedBatch,
    DumpedRecord,
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

# What is shown of a batch at a position.
Show = Callable[[int, Batch], Iterator[DumpItem]]

_PADDING_STEP_BYTES = 1024 * 1024
# From this size on it pays to load numpy.
_BULK_BYTES = 512 * 1024
# Behind damage this much is dumped one batch at a time, then lines are laid out in bulk again.
_SLOW_BYTES = 1024 * 1024


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
    as lines where it has no damage. `position` is where a batch begins; of batches that `wants`
    does not want the records are left out."""
    next_offset = base_offset

    def show(at: int, batch: Batch) -> Iterator[DumpItem]:
        is_wanted = with_records and (wants is None or wants(batch))
        return _dump_batch(records.path, at, batch, is_wanted, decode)

    while position < records.size:
        end = records.size
        if bulk is not None and decode is None and records.size - position >= _BULK_BYTES:
            from kctl.dump.bulk_lines import dump_lines

            position, next_offset = yield from dump_lines(
                records, position, next_offset, bulk, with_records=with_records
            )
            end = min(end, position + _SLOW_BYTES)
        position, next_offset = yield from _dump_stretch(records, position, end, next_offset, show)


def _dump_stretch(
    records: FileRecords, position: int, end: int, next_offset: int, show: Show
) -> Generator[DumpItem, None, tuple[int, int]]:
    """Batches that begin before `end`, over damage; where the next begins, or the file's end, and
    what its offset should be."""
    while position < end:
        damage = None
        try:
            for at, batch in records.batches(position):
                if at >= end:
                    break
                yield from show(at, batch)
                position = at + batch.size
                next_offset = max(next_offset, batch.next_offset)
        except CorruptDataError as error:
            damage = DumpDamage.of(records.path, position, error)
        if position >= end:
            break
        if _is_padding(records, position):
            yield TrailingBytes(position, records.size - position, is_padding=True)
            return records.size, next_offset
        found = find_valid_batch(records, position + 1, next_offset)
        if found is None and damage is None:
            yield TrailingBytes(position, records.size - position, is_padding=False)
            damage = DumpDamage(records.path, position, "the last batch is cut")
        yield damage or DumpDamage(records.path, position, "a batch that ends behind the file")
        position = records.size if found is None else found[0]
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
