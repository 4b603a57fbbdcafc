"""The bulk decoder: batches in a buffer become columns, without a Python object per record.

    for columns in decode_chunks(mapped_file):
        columns.offsets, columns.timestamps      # int64 arrays, an element per record
        columns.to_arrow(("key", "value"))       # a pyarrow.RecordBatch
        columns.damages                          # what could not be read, and why

It reads all formats and codecs in steps, a module each: `columnar_batches` walks the headers and
checks checksums; the caller's `keep` may drop batches (by offset, time or transaction);
`columnar_sections` decompresses; `columnar_lockstep` finds where records begin; `columnar_fields`
and `columnar_legacy` find their fields. Keys and values stay in place until `columnar_arrow`
gathers the requested ones.

Invariant: the records are those that the reader of `memory_records` yields, in its order. Doubtful
batches are read by that reader, one record at a time. So a batch with a valid checksum and invalid
records yields the records before the first invalid one, and a damage. Batches with invalid
checksums yield only a damage.

Importing numpy takes longer than a short command may, and pyarrow twice as long: modules of this
family are imported where they are used, never at the start of another command.

Kafka 2.7: org.apache.kafka.common.record.MemoryRecords, DefaultRecordBatch
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer
from kctl.records.columnar_batches import (
    BatchColumns,
    BatchDamage,
    DamageRule,
    Int64s,
    Mask,
    ScannedBatches,
    scan_batches,
)
from kctl.records.columnar_fields import HeaderColumns, RecordFields, Words, record_fields
from kctl.records.columnar_legacy import MessageReader
from kctl.records.columnar_lockstep import record_starts
from kctl.records.columnar_sections import Payload, Sections, sections
from kctl.records.compression import DEFAULT_DECOMPRESSED_BYTES_MAX
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record import decode_records
from kctl.records.record_batch import LOG_APPEND_TIME
from kctl.records.varint import read_varint

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["RecordColumns", "decode_chunks", "decode_columns", "decode_scanned"]

# Bytes of records decoded together: large enough to make calls cheap, small enough for caches.
CHUNK_BYTES = 8 * 1024 * 1024

# Selects the batches to decode (in the order of the buffer).
Keep = Callable[[BatchColumns, memoryview], Mask]


@dataclass(slots=True)
class RecordColumns:
    """Records as columns, an element each; a length of -1 is a null key or value."""

    # The bytes that hold keys, values and headers; a view of the buffer if nothing was compressed.
    payload: Payload
    offsets: Int64s
    # Milliseconds since 1970; -1: none.
    timestamps: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s
    # The number of headers of each record.
    header_counts: Int64s
    headers: HeaderColumns
    # Each record's batch in `batches`.
    batch_indexes: Int64s
    # The batches that were decoded, also those without a record.
    batches: BatchColumns
    damages: list[BatchDamage]
    # The position after the last batch that these columns cover.
    end: int

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offsets)

    def take(self, which: Mask) -> "RecordColumns":
        """Return the records selected by a mask; batches and damages stay."""
        if which.all():
            return self
        headers = self.headers
        if len(headers.key_starts):
            headers = headers.take(np.repeat(which, self.header_counts))
        return replace(
            self, headers=headers, **{name: getattr(self, name)[which] for name in _PER_RECORD}
        )

    def key(self, index: int) -> bytes | None:
        """Return one key, for tests and samples."""
        return self._bytes(self.key_starts, self.key_lengths, index)

    def value(self, index: int) -> bytes | None:
        """Return one value, for tests and samples."""
        return self._bytes(self.value_starts, self.value_lengths, index)

    def header_pairs(self, index: int) -> list[tuple[str, bytes | None]]:
        """Return one record's headers, for tests and samples."""
        first = int(self.header_counts[:index].sum())
        found = []
        for at in range(first, first + int(self.header_counts[index])):
            key = self._bytes(self.headers.key_starts, self.headers.key_lengths, at) or b""
            value = self._bytes(self.headers.value_starts, self.headers.value_lengths, at)
            found.append((key.decode("utf-8", "replace"), value))
        return found

    def _bytes(self, starts: Int64s, lengths: Int64s, index: int) -> bytes | None:
        start, length = int(starts[index]), int(lengths[index])
        return None if length < 0 else bytes(self.payload[start : start + length])

    def to_arrow(
        self, names: Sequence[str] = ("key", "value", "offset", "timestamp")
    ) -> "pa.RecordBatch":
        """Return the named columns: key, value, headers, offset, timestamp, timestampType,
        leaderEpoch, producerId, producerEpoch, position (of the batch).
        """
        from kctl.records.columnar_arrow import to_arrow

        return to_arrow(self, names)


_PER_RECORD = (
    "offsets", "timestamps", "key_starts", "key_lengths", "value_starts", "value_lengths",
    "header_counts", "batch_indexes",
)  # fmt: skip


def without_control(batches: BatchColumns, _view: memoryview) -> Mask:
    """Select all batches except transaction markers: the `keep` for reading uncommitted records."""
    return ~batches.is_control


def everything(batches: BatchColumns, _view: memoryview) -> Mask:
    """Select all batches, including markers."""
    return np.ones(len(batches), np.bool_)


def decode_chunks(
    buffer: Buffer,
    *,
    position: int = 0,
    end: int | None = None,
    keep: Keep = without_control,
    check_crc: bool = True,
    is_complete: bool = True,
    expected_offset: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
    batch_bytes_max: int = DEFAULT_DECOMPRESSED_BYTES_MAX,
) -> Iterator[RecordColumns]:
    """Yield the records of the batches in buffer[position:end], in chunks of about `chunk_bytes`.

    Each batch that `keep` selects and each damage is in one of the chunks. With `is_complete` a
    batch truncated by the end is damage, otherwise the last chunk's `end` is before it. A batch
    that decompresses to more than `batch_bytes_max` is damage.
    """
    view = memoryview(buffer)
    for scanned in scan_batches(
        view, position, end, check_crc=check_crc, is_complete=is_complete,
        expected_offset=expected_offset,
    ):  # fmt: skip
        yield from decode_scanned(
            view, scanned, keep=keep, chunk_bytes=chunk_bytes, batch_bytes_max=batch_bytes_max
        )


def decode_scanned(
    view: memoryview,
    scanned: ScannedBatches,
    *,
    keep: Keep = without_control,
    chunk_bytes: int = CHUNK_BYTES,
    batch_bytes_max: int = DEFAULT_DECOMPRESSED_BYTES_MAX,
) -> Iterator[RecordColumns]:
    """Yield the records of one step of `scan_batches`, as `decode_chunks` does."""
    wanted = scanned.batches.take(keep(scanned.batches, view))
    damages = scanned.damages
    for group in sections(view, wanted, chunk_bytes=chunk_bytes, batch_bytes_max=batch_bytes_max):
        group.damages += damages
        damages = []
        columns = _decode(group)
        columns.end = min(columns.end, scanned.end)
        yield columns
    # Batches that were not selected, damages and padding move the end too.
    yield without_records(damages, scanned.end)


def decode_columns(buffer: Buffer, **options: Any) -> RecordColumns:
    """Return all records of the buffer in one piece, which must fit in memory; see
    `decode_chunks`."""
    return concatenated(list(decode_chunks(buffer, **options)))


def concatenated(chunks: Sequence[RecordColumns]) -> RecordColumns:
    """Return the chunks as one, with their payloads joined."""
    filled = [chunk for chunk in chunks if len(chunk.batches)]
    damages = [damage for chunk in chunks for damage in chunk.damages]
    end = chunks[-1].end if chunks else 0
    if len(filled) < 2:
        return replace(filled[0] if filled else without_records([], end), damages=damages, end=end)
    payload_starts = np.cumsum([0] + [len(chunk.payload) for chunk in filled]).tolist()
    batch_starts = np.cumsum([0] + [len(chunk.batches) for chunk in filled]).tolist()
    moves = {"key_starts": payload_starts, "value_starts": payload_starts,
             "batch_indexes": batch_starts}  # fmt: skip

    def joined(part: Callable[[RecordColumns], Any], name: str) -> Int64s:
        shifts = moves.get(name)
        columns = [getattr(part(chunk), name) for chunk in filled]
        if shifts:
            columns = [column + by for column, by in zip(columns, shifts, strict=False)]
        whole: Int64s = np.concatenate(columns)
        return whole

    return RecordColumns(
        payload=b"".join(chunk.payload for chunk in filled),
        headers=HeaderColumns(
            *(joined(lambda chunk: chunk.headers, field.name) for field in fields(HeaderColumns))
        ),
        batches=BatchColumns(
            *(joined(lambda chunk: chunk.batches, field.name) for field in fields(BatchColumns))
        ),
        damages=damages,
        end=end,
        **{name: joined(lambda chunk: chunk, name) for name in _PER_RECORD},
    )


def without_records(damages: list[BatchDamage], end: int) -> RecordColumns:
    """Return columns of no records that cover the bytes up to `end`."""
    empty = np.zeros(0, np.int64)
    return RecordColumns(
        b"", empty, empty, empty, empty, empty, empty, empty, HeaderColumns.none(), empty,
        BatchColumns(*(empty for _ in fields(BatchColumns))), damages, end,
    )  # fmt: skip


def _decode(group: Sections) -> RecordColumns:
    """Return the columns of one payload."""
    is_current = group.batches.magics == CURRENT_MAGIC
    if is_current.all():
        return _decode_current(group, np.arange(len(group.batches)))
    legacy = _decode_legacy(group, np.flatnonzero(~is_current))
    if not is_current.any():
        return legacy
    current = _decode_current(group, np.flatnonzero(is_current))
    order = np.argsort(np.concatenate((legacy.batch_indexes, current.batch_indexes)), kind="stable")
    # Only v2 records have headers, and they keep their order.
    columns: dict[str, Any] = {
        name: np.concatenate((getattr(legacy, name), getattr(current, name)))[order]
        for name in _PER_RECORD
    }
    return replace(current, **columns)


def _decode_legacy(group: Sections, indexes: Int64s) -> RecordColumns:
    reader = MessageReader(group.payload, group.batches)
    readable = _readable_wrappers(group, indexes)
    messages = reader.read(readable, group.starts[readable], group.ends[readable])
    for index, message in reader.failures:
        offset = int(group.batches.base_offsets[index])
        group.damages.append(_records_damage(group.batches, index, offset, message))
    count = len(messages.offsets)
    return RecordColumns(
        group.payload, messages.offsets, messages.timestamps, messages.key_starts,
        messages.key_lengths, messages.value_starts, messages.value_lengths,
        np.zeros(count, np.int64), HeaderColumns.none(), messages.batch_indexes, group.batches,
        group.damages, int(group.batches.ends[-1]),
    )  # fmt: skip


def _decode_current(group: Sections, indexes: Int64s) -> RecordColumns:
    words = Words(group.payload)
    batches = group.batches if len(indexes) == len(group.batches) else group.batches.take(indexes)
    starts, ends = group.starts[indexes], group.ends[indexes]
    failed = {damage.position for damage in group.damages}
    counts = batches.record_counts
    if failed:
        counts = np.where(np.isin(batches.positions, list(failed)), 0, counts)
    at, proved = record_starts(words, starts, ends, counts)
    if not proved.all():
        at = _with_doubtful(group, at, indexes, np.flatnonzero(~proved))
    found = record_fields(words, at)
    if not found.is_right.all():
        # A batch with wrong lengths has invalid fields: read it again, one record at a time.
        numbers = np.unique(np.searchsorted(ends, at[~found.is_right], side="right"))
        is_doubtful = np.isin(np.searchsorted(ends, at, side="right"), numbers)
        at = _with_doubtful(group, at[~is_doubtful], indexes, numbers)
        found = record_fields(words, at)
    numbers = np.searchsorted(ends, at, side="right")
    return _columns_of(group, indexes, batches, found, numbers)


def _columns_of(
    group: Sections, indexes: Int64s, batches: BatchColumns, found: RecordFields, numbers: Int64s
) -> RecordColumns:
    """Return columns with absolute offsets and timestamps; `numbers` are the records' batches among
    `batches`."""
    offsets = batches.base_offsets[numbers]
    offsets += found.offset_deltas
    is_append_time = batches.timestamp_types == LOG_APPEND_TIME
    timestamps = np.where(is_append_time, batches.max_timestamps, batches.base_timestamps)[numbers]
    if is_append_time.any():
        found.timestamp_deltas[is_append_time[numbers]] = 0
    timestamps += found.timestamp_deltas
    return RecordColumns(
        group.payload, offsets, timestamps, found.key_starts, found.key_lengths,
        found.value_starts, found.value_lengths, found.header_counts, found.headers,
        indexes[numbers], group.batches, group.damages, int(group.batches.ends[-1]),
    )  # fmt: skip


def _with_doubtful(group: Sections, at: Int64s, indexes: Int64s, numbers: Int64s) -> Int64s:
    """Return `at` with the starts of the readable records in the batches `numbers`; the rest of
    these batches is damage."""
    found = [at]
    failed = {damage.position for damage in group.damages}
    for index in indexes[numbers].tolist():
        if int(group.batches.positions[index]) in failed:
            continue
        found.append(np.array(_one_by_one(group, index), np.int64))
    return np.sort(np.concatenate(found))


def _one_by_one(group: Sections, index: int) -> list[int]:
    """Return the starts of the records that the reader yields before it finds damage."""
    start, end = int(group.starts[index]), int(group.ends[index])
    data = bytes(group.payload[start:end])
    count = int(group.batches.record_counts[index])
    starts: list[int] = []
    position = 0
    next_offset = int(group.batches.base_offsets[index])
    try:
        if count < 0:
            raise CorruptDataError(f"Found invalid record count {count} in magic v2 batch")
        for record in decode_records(data, count, next_offset, 0):
            starts.append(start + position)
            size, body = read_varint(data, position)
            position = body + size
            next_offset = record.offset + 1
    except CorruptDataError as error:
        group.damages.append(_records_damage(group.batches, index, next_offset, str(error)))
    return starts


def _records_damage(batches: BatchColumns, index: int, offset: int, message: str) -> BatchDamage:
    return BatchDamage(
        DamageRule.RECORDS, int(batches.positions[index]), int(batches.sizes[index]), offset,
        int(batches.last_offsets[index]), message,
    )  # fmt: skip


def _readable_wrappers(group: Sections, indexes: Int64s) -> Int64s:
    """Return `indexes` without empty wrappers, which are reported as damage unless they already
    are."""
    is_empty = group.ends[indexes] == group.starts[indexes]
    if not is_empty.any():
        return indexes
    failed = {damage.position for damage in group.damages}
    for index in indexes[is_empty].tolist():
        if int(group.batches.positions[index]) not in failed:
            message = "Found invalid compressed record set with no inner records"
            offset = int(group.batches.base_offsets[index])
            group.damages.append(_records_damage(group.batches, index, offset, message))
    readable: Int64s = indexes[~is_empty]
    return readable
