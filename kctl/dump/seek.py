"""Finds offsets and times in a partition's directory by its indexes, as a broker does.

An index only shows where to begin the search, so a missing or damaged one costs time and never
correctness: the search then begins at the segment's start.

Kafka 2.7: kafka.log.Log.fetchOffsetByTimestamp, kafka.log.LogSegment.translateOffset
"""

from collections import deque
from collections.abc import Iterator

from kctl.errors import CorruptDataError, StorageError
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileBatch
from kctl.storage.segment_files import SegmentFiles, segment_base_offsets


def start_position(disk: Disk, directory: str, base_offset: int, offset: int) -> int:
    """Return a position at or before the batch with `offset` in that segment."""
    if offset <= base_offset:
        return 0
    segment = SegmentFiles.open(disk, directory, base_offset)
    try:
        position = segment.offset_index.lookup(offset).position
        header = segment.records.header_at(position)
        # If the index points to a wrong position, the start is always right.
        is_right = header is not None and header.base_offset <= offset
        return position if is_right else 0
    except (CorruptDataError, StorageError):
        return 0
    finally:
        segment.records.close()


def end_offset(disk: Disk, directory: str) -> int:
    """Return the offset after the last readable batch."""
    for base in reversed(segment_base_offsets(disk, directory)):
        position = start_position(disk, directory, base, base + 2**31 - 1)
        headers = deque(_headers(SegmentFiles.open(disk, directory, base), position), maxlen=1)
        if headers:
            return headers[0].last_offset + 1
        if base:
            return base
    return 0


def offset_at_time(disk: Disk, directory: str, timestamp_ms: int) -> int | None:
    """Return the offset of the first record at or after that time; None if there is none."""
    bases = segment_base_offsets(disk, directory)
    for base in bases:
        segment = SegmentFiles.open(disk, directory, base)
        if base != bases[-1] and _is_older(segment, timestamp_ms):
            continue
        position = _position_before(segment, timestamp_ms)
        for header in _headers(segment, position):
            if header.max_timestamp >= timestamp_ms:
                found = _first_record_at(segment, header, timestamp_ms)
                if found is not None:
                    return found
    return None


def _is_older(segment: SegmentFiles, timestamp_ms: int) -> bool:
    """Return whether all records of the closed segment are older, by its last time index entry."""
    try:
        last = segment.time_index.last()
    except (CorruptDataError, StorageError):
        return False
    return 0 <= last.timestamp < timestamp_ms


def _position_before(segment: SegmentFiles, timestamp_ms: int) -> int:
    try:
        offset = segment.time_index.lookup(timestamp_ms).offset
        position = segment.offset_index.lookup(offset).position
        header = segment.records.header_at(position)
        return position if header is not None and header.base_offset <= offset else 0
    except (CorruptDataError, StorageError):
        return 0


def _headers(segment: SegmentFiles, position: int) -> Iterator[FileBatch]:
    """Yield the headers up to the first damaged place."""
    try:
        yield from segment.records.headers(position)
    except CorruptDataError:
        return


def _first_record_at(segment: SegmentFiles, header: FileBatch, timestamp_ms: int) -> int | None:
    try:
        for record in segment.records.batch(header).records():
            if record.timestamp >= timestamp_ms:
                return record.offset
    except CorruptDataError:
        return header.base_offset
    return None
