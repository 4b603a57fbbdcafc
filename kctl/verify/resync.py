"""Finds the next batch of any format after damage, at any position.

A batch is plausible if its length fits the file, its magic is known, its checksum is valid, and its
offset can belong to the log. Text that looks like a header fails the checksum. A batch inside a
record's value is not found while the chain of lengths holds: callers first try the position where
the damaged batch should end.
"""

import re

from kctl.errors import CorruptDataError
from kctl.records.memory_records import batch_at, locate
from kctl.records.record_batch import INT64, LOG_OVERHEAD, MAGIC_OFFSET
from kctl.storage.file_records import FileRecords

# Larger "batches" are damage: no Kafka accepts as much in one request.
BATCH_BYTES_MAX = 256 * 1024 * 1024
_WINDOW_BYTES = 4 * 1024 * 1024
# Offsets of one segment differ by less than 2^31 (relative offsets are int32); batches of
# neighbouring segments may be in this file.
_OFFSET_SPAN = 2**32
_NULS = re.compile(rb"\0*")


def find_plausible(records: FileRecords, position: int, offset_min: int) -> int | None:
    """Return the position of the first valid batch at or after `position`, None without one."""
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
        # A header may span two windows.
        position += len(window) - MAGIC_OFFSET
    return None


def is_valid_at(records: FileRecords, position: int, offset_min: int) -> bool:
    """Return whether a plausible batch begins exactly at `position`."""
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
    """Return a pattern for the start of a batch: a possible offset, and a known magic."""
    heads = {INT64.pack(offset)[:4] for offset in (offset_min, offset_min + _OFFSET_SPAN - 1)}
    either = b"|".join(re.escape(head) for head in sorted(heads))
    return re.compile(rb"(?:" + either + rb")(?=.{12}[\x00-\x02])", re.DOTALL)


def _next_place(window: bytes, at: int) -> int:
    """Return where to continue the search; a run of NULs, which look like headers, is skipped."""
    run = _NULS.match(window, at)
    end = run.end() if run is not None else at
    # An offset below 2^24 begins with NULs itself.
    return max(at + 1, end - LOG_OVERHEAD)
