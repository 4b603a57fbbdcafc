"""Dumps .log files: batches, and optionally their records, skipping damage where possible.

After bytes that are no batch the dump continues at the next batch with a valid checksum, wherever
it begins. A batch with a wrong checksum is still shown, with its readable parts.

Kafka 2.7: kafka.tools.DumpLogSegments.dumpLog
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.dump.control_records import decode_control_record
from kctl.dump.legacy_messages import dumped_messages
from kctl.dump.values import (
    BulkStyle,
    DumpDamage,
    DumpedBatch,
    DumpedRecord,
    DumpItem,
    TrailingBytes,
)
from kctl.errors import CorruptDataError
from kctl.records.bulk import can_decode_in_bulk
from kctl.records.legacy import LegacyBatch
from kctl.records.memory_records import Batch
from kctl.records.record import Record
from kctl.records.record_batch import NO_SEQUENCE, RecordBatch, increment_sequence
from kctl.storage.damage import find_valid_batch
from kctl.storage.file_records import FileRecords

if TYPE_CHECKING:
    from kctl.dump.decoders import Decode, Decoded

# Returns the items of a batch at a position.
Show = Callable[[int, Batch], Iterator[DumpItem]]

_PADDING_STEP_BYTES = 1024 * 1024
# From this size on loading numpy pays off.
_BULK_BYTES = 512 * 1024
# After damage this much is dumped one batch at a time, before lines are formatted in bulk again.
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
    """Yield every batch of the file in order, each followed by its records if requested.

    `decode` decodes records other than control records. With `bulk`, a large file is returned as
    lines where it has no damage. `position` is where a batch begins; records are left out of
    batches that `wants` rejects.
    """
    next_offset = base_offset

    def show(at: int, batch: Batch) -> Iterator[DumpItem]:
        is_wanted = with_records and (wants is None or wants(batch))
        return _dump_batch(records.path, at, batch, is_wanted, decode)

    while position < records.size:
        end = records.size
        is_large = records.size - position >= _BULK_BYTES
        if bulk is not None and decode is None and is_large and can_decode_in_bulk():
            from kctl.dump.bulk_lines import dump_lines

            position, next_offset = yield from dump_lines(
                records, position, next_offset, bulk, with_records=with_records
            )
            end = min(end, position + _SLOW_BYTES)
        position, next_offset = yield from _dump_stretch(records, position, end, next_offset, show)


def _dump_stretch(
    records: FileRecords, position: int, end: int, next_offset: int, show: Show
) -> Generator[DumpItem, None, tuple[int, int]]:
    """Yield batches that begin before `end`, skipping damage; return where the next begins, or the
    file's end, and its expected offset."""
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
            damage = DumpDamage(records.path, position, "the last batch is truncated")
        yield damage or DumpDamage(records.path, position, "a batch that ends beyond the file")
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
                decoder = _control_decoder(decode) if batch.is_control else decode
                decoded, damage = _decode(path, position, record, decoder)
                yield DumpedRecord(batch, record, _sequence(batch, record), decoded=decoded)
                if damage is not None:
                    yield damage
        else:
            yield from _dump_messages(path, position, batch, decode)
    except CorruptDataError as error:
        yield DumpDamage.of(path, position, error)


def _control_decoder(decode: "Decode | None") -> "Decode":
    """Return the decoder for control records of a log whose other records `decode` reads."""
    if decode is not None:
        from kctl.dump.later_records import decode_kraft_control_record, decode_metadata_record

        if decode is decode_metadata_record:
            return decode_kraft_control_record
    return decode_control_record


def _dump_messages(
    path: str, position: int, batch: LegacyBatch, decode: "Decode | None"
) -> Iterator[DumpItem]:
    for item in dumped_messages(batch):
        decoded, damage = _decode(path, position, item.record, decode)
        yield replace(item, decoded=decoded)
        if damage is not None:
            yield damage


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
    """Return whether the file contains only NULs from `position` on."""
    while position < records.size:
        data = records.file.pread(min(_PADDING_STEP_BYTES, records.size - position), position)
        if not data or data.count(0) != len(data):
            return False
        position += len(data)
    return True
