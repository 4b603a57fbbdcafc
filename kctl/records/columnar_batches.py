"""BatchColumns: the headers of consecutive batches as columns, found by one walk and checked.

The walk follows lengths, the only serial part; all other fields are gathered at once. Checksums are
checked here, so the columns that leave this module hold what was written.

After damaged bytes the walk continues:
- if a checksum is wrong, and a good batch (or the end) follows where the length says: only this
  batch is left out;
- otherwise at the next v2 batch, wherever it begins, that is whole, has a valid checksum and an
  offset that may follow. A batch inside a value is taken only if there is no better candidate.

What is left out is reported with its position, its size and the rule that it breaks.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch, AbstractLegacyRecordBatch
"""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import crc32, crc32c
from kctl.records.legacy import RECORD_OVERHEAD_V0
from kctl.records.memory_records import CURRENT_MAGIC, batch_at, locate
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    INT32,
    INT64,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)

Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Bytes of batches that one step of the walk takes, so that a consumer may stop early.
WALK_BYTES = 8 * 1024 * 1024
# Offsets of one segment differ by less than this (relative offsets are int32).
_OFFSET_SPAN = 2**31


class DamageRule(StrEnum):
    """The rule that damaged bytes break."""

    # An invalid size or magic.
    HEADER = "header"
    # A checksum that does not match.
    CRC = "crc"
    # An unknown codec, or data that the codec cannot decompress.
    COMPRESSION = "compression"
    # The checksum matches, but the records disagree with their lengths or counts.
    RECORDS = "records"
    # The data end inside a batch.
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class BatchDamage:
    """Bytes that could not be read; the records before and after them were."""

    rule: DamageRule
    # Of the first damaged batch, in the caller's positions.
    position: int
    # Bytes left out.
    size: int
    # The first and the last offset that may be missing; -1 if unknown.
    offset: int
    last_offset: int
    message: str

    def __str__(self) -> str:
        return f"at position {self.position}: {self.message}"


@dataclass(slots=True)
class BatchColumns:
    """Batches of any format, a column per field; fields that v0 and v1 lack are -1 (attributes: as
    stored)."""

    # Where the batch begins in the buffer.
    positions: Int64s
    sizes: Int64s
    magics: Int64s
    # In v0 and v1 the same as the last: a wrapper's first offset is inside it.
    base_offsets: Int64s
    last_offsets: Int64s
    leader_epochs: Int64s
    attributes: Int64s
    base_timestamps: Int64s
    max_timestamps: Int64s
    producer_ids: Int64s
    producer_epochs: Int64s
    base_sequences: Int64s
    # From the header; -1 for a wrapper, which does not store it.
    record_counts: Int64s

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.positions)

    def take(self, which: Any) -> "BatchColumns":
        """Return the batches selected by a mask, a slice or indexes."""
        return BatchColumns(*(getattr(self, field.name)[which] for field in fields(self)))

    @property
    def compression_types(self) -> Int64s:
        """Return the codec of each batch."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> Mask:
        """Return which batches hold transaction markers instead of a producer's records."""
        return self._has(CONTROL_MASK)

    @property
    def is_transactional(self) -> Mask:
        """Return which batches belong to a transaction."""
        return self._has(TRANSACTIONAL_MASK)

    def _has(self, attribute: int) -> Mask:
        found: Mask = ((self.attributes & attribute) != 0) & (self.magics == CURRENT_MAGIC)
        return found

    @property
    def timestamp_types(self) -> Int64s:
        """Return 0 for CreateTime, 1 for LogAppendTime, -1 for none (v0)."""
        types: Int64s = ((self.attributes & TIMESTAMP_TYPE_MASK) != 0).astype(np.int64)
        types[self.magics == 0] = -1
        return types

    @property
    def ends(self) -> Int64s:
        """Return the end positions of the batches."""
        return self.positions + self.sizes


@dataclass(slots=True)
class ScannedBatches:
    """One step of the walk."""

    batches: BatchColumns
    damages: list[BatchDamage]
    # Where the walk continues; after the last step, the first byte that was not read.
    end: int


def scan_batches(
    buffer: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    is_complete: bool = True,
    expected_offset: int = 0,
) -> Iterator[ScannedBatches]:
    """Yield the batches in buffer[position:end], some megabytes a step.

    With `is_complete` nothing follows the buffer, so a batch truncated by its end is damage;
    otherwise the walk ends before it. NULs up to the end (a preallocated file) end the walk
    silently. When the walk must search for the next batch, it takes none with an offset below
    `expected_offset`.
    """
    view = memoryview(buffer)
    if end is not None:
        view = view[:end]
    while position < len(view):
        start = position
        positions, position = _walk(view, start, start + WALK_BYTES)
        batches = _gather(view, np.array(positions, np.int64))
        batches, damages, position = _checked(
            view, batches, position, check_crc=check_crc, is_complete=is_complete
        )
        if len(batches):
            expected_offset = max(expected_offset, int(batches.last_offsets[-1]) + 1)
        is_stuck = not len(batches) and not damages
        if is_stuck or (damages and damages[-1].size < 0):
            position = _go_on(view, position, damages, expected_offset, is_complete=is_complete)
        yield ScannedBatches(batches, damages, position)
        if is_stuck and not damages:
            return


def _walk(view: memoryview, position: int, stop: int) -> tuple[list[int], int]:
    """Return the positions of whole batches according to their lengths, up to `stop`, and where the
    walk ended."""
    positions: list[int] = []
    add = positions.append
    length_at = INT32.unpack_from
    end = len(view)
    last = end - LOG_OVERHEAD - RECORD_OVERHEAD_V0
    while position <= last and position < stop:
        length = length_at(view, position + 8)[0]
        following = position + LOG_OVERHEAD + length
        if length < RECORD_OVERHEAD_V0 or following > end:
            break
        add(position)
        position = following
    return positions, position


def _gather(view: memoryview, positions: Int64s) -> BatchColumns:
    """Return the header fields at `positions`; v2 fields only where there is room for them."""
    size = len(view)

    def column(kind: str, offset: int, which: Int64s) -> Int64s:
        dtype = np.dtype(kind)
        cells: NDArray[Any] = np.ndarray(
            (max(size - dtype.itemsize + 1, 0),), dtype, buffer=view, strides=(1,)
        )
        gathered: Int64s = cells[which + offset].astype(np.int64)
        return gathered

    magics = column("u1", MAGIC_OFFSET, positions)
    sizes = column(">i4", 8, positions) + LOG_OVERHEAD
    offsets = column(">i8", 0, positions)
    is_new = (magics == CURRENT_MAGIC) & (sizes >= RECORD_BATCH_OVERHEAD)
    if is_new.all():
        return BatchColumns(
            positions, sizes, magics, offsets, offsets + column(">i4", 23, positions),
            column(">i4", 12, positions), column(">i2", ATTRIBUTES_OFFSET, positions),
            column(">i8", 27, positions), column(">i8", 35, positions),
            column(">i8", 43, positions), column(">i2", 51, positions),
            column(">i4", 53, positions), column(">i4", 57, positions),
        )  # fmt: skip
    count = len(positions)
    found = BatchColumns(
        positions, sizes, magics, offsets, offsets.copy(), *(np.full(count, -1) for _ in range(8))
    )
    found.attributes[:] = column("i1", MAGIC_OFFSET + 1, positions)
    found.record_counts[:] = np.where(found.attributes & COMPRESSION_MASK, -1, 1)
    # Every message up to the magic has room for a timestamp, if its size says so.
    has_time = (magics == 1) & (sizes >= LOG_OVERHEAD + 22)
    found.max_timestamps[has_time] = column(">i8", 18, positions[has_time])
    found.base_timestamps[:] = NO_TIMESTAMP
    new = _gather(view, positions[is_new]) if is_new.any() else None
    if new is not None:
        for field in fields(new):
            getattr(found, field.name)[is_new] = getattr(new, field.name)
    return found


def _checked(
    view: memoryview, batches: BatchColumns, position: int, *, check_crc: bool, is_complete: bool
) -> tuple[BatchColumns, list[BatchDamage], int]:
    """Return the valid batches, the damaged ranges, and where to continue.

    A last range with a negative size extends to the next valid batch.
    """
    is_odd = (batches.magics > CURRENT_MAGIC) | (
        (batches.magics == CURRENT_MAGIC) & (batches.sizes < RECORD_BATCH_OVERHEAD)
    )
    if is_odd.any():
        first = int(np.argmax(is_odd))
        position = int(batches.positions[first])
        batches = batches.take(slice(0, first))
    if not check_crc or not len(batches):
        return batches, [], position
    is_right = _right_checksums(view, batches)
    if is_right.all():
        return batches, [], position
    damages: list[BatchDamage] = []
    for index in np.flatnonzero(~is_right).tolist():
        at, end = int(batches.positions[index]), int(batches.ends[index])
        follows = index + 1 < len(batches) and bool(is_right[index + 1])
        is_alone = follows or _may_go_on(view, end, is_complete=is_complete)
        damages.append(
            BatchDamage(
                DamageRule.CRC, at, end - at if is_alone else -1,
                int(batches.base_offsets[index]), int(batches.last_offsets[index]),
                _crc_message(view, at),
            )
        )  # fmt: skip
        if not is_alone:
            is_right[index:] = False
            position = at
            break
    return batches.take(is_right), damages, position


def _right_checksums(view: memoryview, batches: BatchColumns) -> Mask:
    is_new = batches.magics == CURRENT_MAGIC
    starts = (batches.positions + np.where(is_new, ATTRIBUTES_OFFSET, MAGIC_OFFSET)).tolist()
    ends = batches.ends.tolist()
    if is_new.all():
        computed = [crc32c(view[start:end]) for start, end in zip(starts, ends, strict=True)]
    elif not is_new.any():
        computed = [crc32(view[start:end]) for start, end in zip(starts, ends, strict=True)]
    else:
        computed = [
            (crc32c if new else crc32)(view[start:end])
            for start, end, new in zip(starts, ends, is_new.tolist(), strict=True)
        ]
    stored: NDArray[Any] = np.ndarray((len(view) - 3,), ">u4", buffer=view, strides=(1,))
    places = batches.positions + np.where(is_new, 17, LOG_OVERHEAD)
    is_right: Mask = np.array(computed, np.uint32) == stored[places]
    return is_right


def _crc_message(view: memoryview, position: int) -> str:
    batch = batch_at(view, position)
    return f"Record is corrupt (stored crc = {batch.crc}, computed crc = {batch.compute_crc()})"


def _go_on(
    view: memoryview,
    position: int,
    damages: list[BatchDamage],
    expected_offset: int,
    *,
    is_complete: bool,
) -> int:
    """Search for a good batch after `position`, where none can be read; add the damage, or complete
    the open one."""
    end = len(view)
    open_damage = damages.pop() if damages else None
    if open_damage is None:
        rule, message = _what_is_wrong(view, position)
        if rule is DamageRule.CUT and not is_complete:
            return position
        if not any(view[position : position + 4096]) and not any(view[position:]):
            return end if is_complete else position
        open_damage = BatchDamage(rule, position, -1, expected_offset, -1, message)
    found = _find_good_batch(view, position + 1, expected_offset)
    following, last_offset = (end, -1)
    if found is not None:
        following, last_offset = found, INT64.unpack_from(view, found)[0] - 1
    damages.append(replace(open_damage, size=following - position, last_offset=last_offset))
    return following


def _what_is_wrong(view: memoryview, position: int) -> tuple[DamageRule, str]:
    try:
        found = locate(view, position)
    except CorruptDataError as error:
        return DamageRule.HEADER, str(error)
    left = len(view) - position
    if found is None:
        return DamageRule.CUT, f"The last batch is cut: {left} bytes are no header"
    return DamageRule.CUT, f"The last batch is cut: {left} bytes of {found.size}"


def _may_go_on(view: memoryview, position: int, *, is_complete: bool) -> bool:
    """Return whether the bytes at `position` are a batch, or the end of the data."""
    if position == len(view) or _is_good_batch(view, position, None):
        return True
    if is_complete:
        return False
    try:
        found = locate(view, position)
    except CorruptDataError:
        return False
    return found is None or position + found.size > len(view)


def _find_good_batch(view: memoryview, position: int, offset_min: int) -> int | None:
    """Return the position of the first v2 batch that is whole and valid and may follow."""
    heads = {INT64.pack(offset)[:4] for offset in (offset_min, offset_min + _OFFSET_SPAN - 1)}
    either = b"|".join(re.escape(head) for head in sorted(heads))
    pattern = re.compile(rb"(?=(?:" + either + rb").{12}\x02)", re.DOTALL)
    for match in pattern.finditer(view, position):
        if _is_good_batch(view, match.start(), offset_min):
            return match.start()
    return None


def _is_good_batch(view: memoryview, position: int, offset_min: int | None) -> bool:
    """Return whether there is a whole batch with a valid checksum and an acceptable offset."""
    try:
        found = locate(view, position)
    except CorruptDataError:
        return False
    if found is None or position + found.size > len(view):
        return False
    if offset_min is not None and not offset_min <= found.offset < offset_min + _OFFSET_SPAN:
        return False
    return batch_at(view, position, found.magic).is_crc_valid()
