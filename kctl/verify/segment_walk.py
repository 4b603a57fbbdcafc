"""Reads a segment file in spite of damage: windows of valid batches, and the damage between.

Every batch in a window is whole and has a valid checksum. The rest are DamagedStretches: from the
first invalid byte to the next plausible batch. All windows share one buffer, so memory is bounded
by the window and the largest batch; a window's bytes are valid until the next iteration.

Damage is classified as follows: only NULs are a zero block, or a zero tail at the file's end; a
header with a wrong checksum is a damaged batch; a length that does not lead to the next batch is a
damaged length; a batch or header truncated by the file's end is a torn tail; the rest is garbage.
"""

import struct
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from kctl.counts import are
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.checksum import crc32c
from kctl.records.legacy import LegacyBatch
from kctl.records.memory_records import locate
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    PREFIX,
    RECORD_BATCH_OVERHEAD,
)
from kctl.storage.damage import SECTOR_BYTES
from kctl.storage.file_records import FileRecords
from kctl.verify.resync import BATCH_BYTES_MAX, find_plausible, is_valid_at
from kctl.verify.rules import Rule

WINDOW_BYTES = 1024 * 1024
_STEP_BYTES = 1024 * 1024
# Offsets of a segment differ by less than this (relative offsets are int32).
_NEAR = 2**31


class WalkedBatch(NamedTuple):
    """The header of a valid batch; fields that v0 and v1 lack are -1 or 0."""

    position: int
    size: int
    magic: int
    # In a v0 or v1 wrapper equal to last_offset: the first offset is inside.
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    # 1 for a v0 or v1 message, and for a wrapper, which does not store it.
    record_count: int
    crc: int

    @property
    def is_wrapper(self) -> bool:
        """Return whether it is a compressed v0 or v1 message."""
        return self.magic < 2 and bool(self.attributes & COMPRESSION_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)


class Window(NamedTuple):
    """Valid batches and the contiguous bytes that hold them."""

    position: int
    buffer: memoryview
    batches: list[WalkedBatch]


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """Bytes without a valid batch."""

    rule: Rule
    position: int
    # Exclusive.
    end: int
    reason: str
    # What should have begun here.
    expected_offset: int
    # Of the next batch; None without one.
    next_offset: int | None


_new_batch = partial(tuple.__new__, WalkedBatch)


def walk(
    records: FileRecords, base_offset: int, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window | DamagedStretch]:
    """Yield windows and damage in file order; `base_offset` is the lowest offset of the file."""
    buffer = memoryview(bytearray(max(1, min(window_bytes, records.size))))
    position = 0
    next_offset = base_offset
    while position < records.size:
        want = min(len(buffer), records.size - position)
        got = records.file.pread_into(buffer[:want], position)
        if got == 0:
            return
        batches, used, trouble = _scan(buffer[:got], position)
        if batches:
            if not position and batches[0].base_offset < base_offset:
                # The file has the name of another segment.
                base_offset = next_offset = batches[0].base_offset
            if batches[-1].last_offset < base_offset + _NEAR:
                next_offset = max(next_offset, batches[-1].last_offset + 1)
            yield Window(position, buffer[:used], batches)
            position += used
        if isinstance(trouble, str):
            stretch = _damage(records, position, trouble, base_offset, next_offset)
            yield stretch
            position = stretch.end
        elif used == 0:
            if trouble <= got:
                return  # Another process has truncated the file.
            # One batch is larger than the window.
            if trouble > min(BATCH_BYTES_MAX, records.size - position):
                there = records.size - position
                reason = f"a batch of {trouble} bytes or more, {there} {are(there)} there"
                stretch = _damage(records, position, reason, base_offset, next_offset)
                yield stretch
                position = stretch.end
            else:
                buffer = memoryview(bytearray(trouble))


def _scan(view: memoryview, start: int) -> tuple[list[WalkedBatch], int, int | str]:
    """Return the valid batches at the view's start, their bytes, and why it ends there: the number
    of bytes that the next batch needs, or what is wrong with it."""
    batches: list[WalkedBatch] = []
    add = batches.append
    unpack = HEADER.unpack_from
    end = len(view)
    at = 0
    while at + RECORD_BATCH_OVERHEAD <= end:
        (base, length, epoch, magic, crc, attributes, delta, _, max_timestamp, producer_id,
         producer_epoch, sequence, count) = unpack(view, at)  # fmt: skip
        if magic != 2:
            break
        size = length + LOG_OVERHEAD
        if size < RECORD_BATCH_OVERHEAD:
            return batches, at, f"a batch length of {length} is impossible"
        if at + size > end:
            return batches, at, size
        if crc32c(view[at + ATTRIBUTES_OFFSET : at + size]) != crc:
            return batches, at, _crc_message(crc, crc32c(view[at + ATTRIBUTES_OFFSET : at + size]))
        add(_new_batch((
            start + at, size, 2, base, base + delta, max_timestamp, epoch, attributes,
            producer_id, producer_epoch, sequence, count, crc,
        )))  # fmt: skip
        at += size
    else:
        if at == end:
            return batches, at, 0
    legacy, used, trouble = _scan_legacy(view, start, at)
    if not legacy:
        return batches, at, trouble
    return batches + legacy, used, trouble


def _scan_legacy(view: memoryview, start: int, at: int) -> tuple[list[WalkedBatch], int, int | str]:
    """Return the same for messages of v0 and v1, up to the first other batch."""
    batches: list[WalkedBatch] = []
    end = len(view)
    while at < end:
        if at + HEADER_SIZE_UP_TO_MAGIC > end:
            return batches, at, HEADER_SIZE_UP_TO_MAGIC
        try:
            found = locate(view, at)
        except CorruptDataError as error:
            return batches, at, str(error)
        assert found is not None
        if at + found.size > end:
            return batches, at, found.size
        if found.magic > 1:
            # Leave it to the fast path.
            return batches, at, 0 if batches else RECORD_BATCH_OVERHEAD
        batch = LegacyBatch(view, at)
        if not batch.is_crc_valid():
            return batches, at, _crc_message(batch.crc, batch.compute_crc())
        batches.append(
            WalkedBatch(
                start + at, found.size, found.magic, found.offset, found.offset, batch.timestamp,
                -1, batch.attributes, -1, -1, -1, 1, batch.crc,
            )
        )  # fmt: skip
        at += found.size
    return batches, at, 0


def _crc_message(stored: int, computed: int) -> str:
    return f"its checksum is wrong (stored {stored}, computed {computed})"


def _damage(
    records: FileRecords, position: int, reason: str, base_offset: int, expected: int
) -> DamagedStretch:
    """Classify the damage at `position` and find its end."""
    head = records.file.pread(RECORD_BATCH_OVERHEAD, position)
    claimed_end = _claimed_end(head, position)
    found = None
    # Any batch that another segment of the log could hold is accepted, so that a batch in the wrong
    # place is not lost.
    offset_min = max(0, base_offset - _NEAR)
    # The end that the damaged batch states is the best place to continue: a copy of a batch in a
    # record's value cannot be mistaken for it.
    is_inside = claimed_end is not None and claimed_end < records.size
    if is_inside and claimed_end and is_valid_at(records, claimed_end, offset_min):
        found = claimed_end
    if found is None:
        found = find_plausible(records, position + 1, offset_min)
    is_cut = claimed_end is not None and claimed_end > records.size
    if found is None and offset_min > 0 and not is_cut:
        # Perhaps the segment's name is wrong.
        found = find_plausible(records, position + 1, 0)
    end = records.size if found is None else found
    rule = _name(records, position, end, head, claimed_end, expected, is_tail=found is None)
    if rule in (Rule.TORN_TAIL, Rule.ZERO_TAIL, Rule.ZERO_BLOCK):
        reason = "" if rule is not Rule.TORN_TAIL else reason
    next_offset = None
    if found is not None:
        next_offset = PREFIX.unpack(records.file.pread(PREFIX.size, found))[0]
    return DamagedStretch(rule, position, end, reason, expected, next_offset)


def _claimed_end(head: bytes, position: int) -> int | None:
    if len(head) < PREFIX.size:
        return None
    length: int = PREFIX.unpack_from(head)[1]
    return position + LOG_OVERHEAD + length if 0 < length <= BATCH_BYTES_MAX else None


def _name(
    records: FileRecords, position: int, end: int, head: bytes, claimed_end: int | None,
    expected: int, *, is_tail: bool,
) -> Rule:  # fmt: skip
    if _is_zero(records, position, end):
        return Rule.ZERO_TAIL if is_tail else Rule.ZERO_BLOCK
    if len(head) < HEADER_SIZE_UP_TO_MAGIC:
        return Rule.TORN_TAIL
    offset = struct.unpack_from(">q", head)[0]
    is_near = expected - _NEAR < offset < expected + _NEAR
    is_known = head[16] <= 2
    if is_tail:
        if is_near and is_known and claimed_end is not None and claimed_end > end:
            return Rule.TORN_TAIL
        if is_near and _is_zero(records, max(position, end - SECTOR_BYTES), end):
            # The batch's length was written, its last sectors were not.
            return Rule.TORN_TAIL
    if is_near and claimed_end == end:
        return Rule.BATCH_CRC if is_known else Rule.BATCH_MAGIC
    if offset == expected and is_known:
        return Rule.BATCH_SIZE
    return Rule.NONSENSE


def _is_zero(records: FileRecords, position: int, end: int) -> bool:
    while position < end:
        data = records.file.pread(min(_STEP_BYTES, end - position), position)
        if not data or data.count(0) != len(data):
            return False
        position += len(data)
    return True


def valid_batches(records: FileRecords, base_offset: int) -> Iterator[WalkedBatch]:
    """Yield every valid batch and skip damage."""
    for item in walk(records, base_offset):
        if isinstance(item, Window):
            yield from item.batches
