"""Finds the next batch behind a damaged place, of any format, wherever it begins.

Plausible is what has a length that fits the file, a known magic, a right checksum, and an offset
not below what came before. Text that merely looks like a header fails the checksum, and a batch
copied into a record's value is not reached as long as the chain of lengths holds: callers try the
place where the damaged batch should end first.
"""

import re

from kctl.errors import CorruptDataError
from kctl.records.memory_records import batch_at, locate
from kctl.records.record_batch import INT64, LOG_OVERHEAD, MAGIC_OFFSET
from kctl.storage.file_records import FileRecords

# Longer "batches" are damage: no Kafka takes as much in one request.
BATCH_BYTES_MAX = 256 * 1024 * 1024
_WINDOW_BYTES = 4 * 1024 * 1024
# Offsets of one segment differ by less than this (relative offsets are int32).
_OFFSET_SPAN = 2**31
_NULS = re.compile(rb"\0*")


def find_plausible(records: FileRecords, position: int, offset_min: int) -> int | None:
    """The position of the first valid batch at or behind `position`; None: none follows."""
    pattern = _pattern(offset_min)
    while position < records.size:
        window = records.file.pread(min(_WINDOW_BYTES, records.size - position), position)
        at = 0
        while (match := pattern.search(window, at)) is not None:
            at = match.start()
            if is_valid_at(records, position + at, offset_min):
                return position + at
            at = _next_place(window, at)
        if position + len(window) >= records.size or len(window) <= MAGIC_OFFSET:
            return None
        # A header may lie across the windows' border.
        position += len(window) - MAGIC_OFFSET
    return None


def is_valid_at(records: FileRecords, position: int, offset_min: int) -> bool:
    """Whether a plausible batch begins exactly at `position`."""
    head = records.file.pread(MAGIC_OFFSET + 1, position)
    try:
        found = locate(head, 0, min(BATCH_BYTES_MAX, records.size - position))
    except CorruptDataError:
        return False
    if found is None or not offset_min <= found.offset < offset_min + _OFFSET_SPAN:
        return False
    try:
        return batch_at(records.file.pread(found.size, position)).is_crc_valid()
    except CorruptDataError:
        return False


def _pattern(offset_min: int) -> re.Pattern[bytes]:
    """Where a batch could begin: its offset in the right region, its magic in its place."""
    heads = {INT64.pack(offset)[:4] for offset in (offset_min, offset_min + _OFFSET_SPAN - 1)}
    either = b"|".join(re.escape(head) for head in sorted(heads))
    return re.compile(rb"(?:" + either + rb")(?=.{12}[\x00-\x02])", re.DOTALL)


def _next_place(window: bytes, at: int) -> int:
    """Where to look on; a run of NULs, of which every byte looks like a header, is passed."""
    run = _NULS.match(window, at)
    end = run.end() if run is not None else at
    # An offset below 2^24 begins with NULs itself.
    return max(at + 1, end - LOG_OVERHEAD)
