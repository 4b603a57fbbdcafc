"""Reads a LocalLog up to a bound, finds aborted transactions, and searches by timestamp.

Kafka 2.7: kafka.log.Log (`read`, `collectAbortedTransactions`, `fetchOffsetByTimestamp`); KIP-98
"""

from typing import Final

from kctl.broker.log.fetch_data import FetchDataInfo
from kctl.broker.log.local_log import LocalLog, LogOffsetMetadata
from kctl.broker.log.log_segment import LogSegment
from kctl.storage.transaction_index import AbortedTransaction
from kctl.work import ClaimingWork

# Segments that a search examines in one step; each may have its time index read.
SEGMENTS_PER_STEP: Final = 50


def read_up_to(
    log: LocalLog,
    start_offset: int,
    max_bytes: int,
    bound: int,
    *,
    min_one_message: bool,
    is_committed: bool,
) -> FetchDataInfo:
    """Return records in [start_offset, bound), both in the log.

    `is_committed`: with the aborted transactions among them.
    """
    end = None if bound == log.log_end_offset else log.locate(bound)
    for segment in log.segments.since(start_offset):
        is_last = end is not None and end.segment_base_offset == segment.base_offset
        size = end.relative_position if end is not None and is_last else segment.size
        found = segment.read(start_offset, max_bytes, size, min_one_message=min_one_message)
        if found is not None:
            position, records, is_incomplete = found
            where = LogOffsetMetadata(start_offset, segment.base_offset, position)
            info = FetchDataInfo(start_offset, where, records, is_incomplete)
            if is_committed:
                info.aborted_transactions = _aborted(log, segment, info)
            return info
        if is_last:
            break
    # Compaction removed everything from here on; the log continues at its end.
    return nothing_at(log, start_offset, log.log_end_offset, is_committed=is_committed)


def nothing_at(
    log: LocalLog, start_offset: int, offset: int, *, is_committed: bool
) -> FetchDataInfo:
    """Return a result without records; the reader waits at `offset`."""
    aborted = () if is_committed else None
    return FetchDataInfo(start_offset, log.locate(offset), None, aborted_transactions=aborted)


def find_by_timestamp(
    log: LocalLog, timestamp: int, start_offset: int
) -> ClaimingWork[tuple[int, int, int] | None]:
    """Return (timestamp, offset, leader epoch) of the first record at or above `start_offset` whose
    timestamp is at least `timestamp`, or None; in steps of bounded work."""
    number = max(0, log.segments.floor_index(start_offset))
    looked_at = 0
    while number < len(log.segments.all):
        segment = log.segments.all[number]
        base_offset = segment.base_offset
        if segment.largest_timestamp >= timestamp:
            found = yield from segment.find_by_timestamp(timestamp, start_offset)
            if found is not None:
                return found
        looked_at += 1
        if looked_at % SEGMENTS_PER_STEP == 0:
            yield None
        # Segments may have been deleted, cleaned or added since, or all of them replaced.
        number = log.segments.floor_index(base_offset) + 1
    return None


def _aborted(log: LocalLog, segment: LogSegment, info: FetchDataInfo) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap the records read from `segment`."""
    later = log.segments.since(segment.base_offset)
    length = len(info.records) if info.records is not None else 0
    upper = segment.upper_bound_offset(info.position.relative_position, length)
    if upper is None:
        upper = later[1].base_offset if len(later) > 1 else log.log_end_offset
    found: list[AbortedTransaction] = []
    for candidate in later:
        if candidate.transaction_index.collect(info.fetch_offset, upper, found):
            break
    return found
