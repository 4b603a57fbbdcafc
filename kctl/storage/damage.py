"""Classifies a damaged place in a segment: a write torn by a crash, or corruption.

A crash leaves the *end* of a log torn: the last batch is truncated, or sectors that never reached
the disk read as NULs, perhaps with later sectors intact after them. Corruption changes bytes that
were once valid. The difference decides what may be done: a torn tail was never durable and is
truncated; corruption affects durable records, so nothing may be truncated silently.

The rule, after the first invalid batch:
- no valid batch of a higher offset follows: a torn tail (one corrupt batch at the very end looks
  the same);
- one follows, but the damage contains a disk sector of NULs: a hole left by a crash;
- otherwise: corruption.

Below the recovery point the caller knows that everything was durable, and need not classify.

Kafka 2.7 truncates in all three cases (kafka.log.LogSegment.recover); KIP-966 explains how that
loses data.
"""

import re
from enum import Enum

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.memory_records import locate
from kctl.records.record_batch import INT64, LOG_OVERHEAD, PREFIX, RecordBatch
from kctl.storage.file_records import FileRecords

# The unit that a disk writes atomically.
SECTOR_BYTES = 512
# Bytes of a damaged segment held in memory at once.
_WINDOW_BYTES = 4 * 1024 * 1024
# Offsets of one segment differ by less than this (relative offsets are int32).
_OFFSET_SPAN = 2**31


class DamageKind(Enum):
    """The kind of damage; see the module."""

    TORN_TAIL = "torn tail"
    HOLE = "hole left by a crash"
    CORRUPTION = "corruption"


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where a segment cannot be read."""

    kind: DamageKind
    position: int
    # Where reading can continue; None if nothing valid follows.
    next_position: int | None
    next_offset: int | None


def classify_damage(records: FileRecords, position: int, expected_offset: int) -> Damage:
    """Classify the invalid batch at `position`, where a batch of `expected_offset` should be."""
    found = find_valid_batch(records, position + 1, expected_offset)
    if found is None:
        return Damage(DamageKind.TORN_TAIL, position, None, None)
    next_position, next_offset = found
    is_hole = has_lost_sector(records, position, next_position, expected_offset)
    kind = DamageKind.HOLE if is_hole else DamageKind.CORRUPTION
    return Damage(kind, position, next_position, next_offset)


def find_valid_batch(
    records: FileRecords, position: int, offset_min: int
) -> tuple[int, int] | None:
    """Return (position, base offset) of the first v2 batch at or after `position`, at any byte,
    that is whole, has a valid CRC and an offset in [offset_min, offset_min + 2^31)."""
    end = records.size
    while position < end:
        window = records.file.pread(min(_WINDOW_BYTES, end - position), position)
        for offset in _candidates(window, offset_min):
            base_offset = _valid_batch_at(records, window, offset, position + offset, offset_min)
            if base_offset is not None:
                return position + offset, base_offset
        if position + len(window) >= end:
            return None
        # A header may span two windows.
        position += len(window) - LOG_OVERHEAD - 4
    return None


def has_lost_sector(records: FileRecords, start: int, end: int, expected_offset: int) -> bool:
    """Return whether a sector between `start` and `end` is all NULs, or the damage begins with NULs
    up to a sector's end where its offset (`expected_offset` or more) or its length cannot be NULs.
    """
    first = -(-start // SECTOR_BYTES) * SECTOR_BYTES
    head = records.file.pread(max(0, min(first, end) - start), start)
    if not head.strip(b"\0"):
        should_be = INT64.pack(expected_offset)[: len(head)]
        if len(head) >= LOG_OVERHEAD or should_be.strip(b"\0"):
            return True
    for sector in range(first, end, SECTOR_BYTES):
        # The last sector ends with the file.
        data = records.file.pread(min(SECTOR_BYTES, records.size - sector), sector)
        if data and not data.strip(b"\0"):
            return True
    return False


def _candidates(window: bytes, offset_min: int) -> list[int]:
    """Return where a v2 batch could begin: an offset in the expected range, and magic 2."""
    heads = {INT64.pack(offset)[:4] for offset in (offset_min, offset_min + _OFFSET_SPAN - 1)}
    either = b"|".join(re.escape(head) for head in sorted(heads))
    pattern = re.compile(rb"(?=(?:" + either + rb").{12}\x02)", re.DOTALL)
    return [match.start() for match in pattern.finditer(window)]


def _valid_batch_at(
    records: FileRecords, window: bytes, offset: int, position: int, offset_min: int
) -> int | None:
    base_offset, length = PREFIX.unpack_from(window, offset)
    if not offset_min <= base_offset < offset_min + _OFFSET_SPAN:
        return None
    try:
        found = locate(window, offset)
    except CorruptDataError:
        return None
    if found is None or position + found.size > records.size:
        return None
    if offset + found.size <= len(window):
        batch = RecordBatch(window, offset)
    else:
        batch = RecordBatch(records.file.pread(LOG_OVERHEAD + length, position))
    return batch.base_offset if batch.is_crc_valid() else None
