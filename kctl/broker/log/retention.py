"""Retention: determines the oldest segments that a log need not keep.

By time: no record in the segment is younger than `retention.ms`. By size: without it the log still
has `retention.bytes`. By start: it lies below the log start offset. In all cases it lies wholly
below the high watermark, and no older segment is kept.

Kafka 2.7: kafka.log.Log (`deletableSegments`, `deleteRetentionMsBreachedSegments`, ...)
"""

from collections.abc import Callable, Sequence

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_segment import LogSegment

# Segments deleted in one turn of the loop: four files of each are renamed.
DELETED_AT_ONCE = 8
# Takes a segment and the one that follows it.
IsDue = Callable[[LogSegment, LogSegment | None], bool]


def deletable(
    segments: Sequence[LogSegment], log_end_offset: int, high_watermark: int, is_due: IsDue
) -> list[LogSegment]:
    """Return the oldest segments, at most DELETED_AT_ONCE, that are due and wholly below the high
    watermark; none of an empty log."""
    found: list[LogSegment] = []
    for number, segment in enumerate(segments[:DELETED_AT_ONCE]):
        following = segments[number + 1] if number + 1 < len(segments) else None
        end = following.base_offset if following is not None else log_end_offset
        is_empty_last = following is None and not segment.size
        if high_watermark < end or is_empty_last or not is_due(segment, following):
            break
        found.append(segment)
    return found


def too_old(config: LogConfig, now_ms: int) -> IsDue:
    """Return the check for `retention.ms`."""
    limit_ms = config.retention_ms
    return lambda segment, _: 0 <= limit_ms < now_ms - segment.largest_timestamp


def over_size(config: LogConfig, size: int) -> IsDue:
    """Return the check for `retention.bytes` in a log of `size` bytes; it counts the segments it
    allows."""
    limit = config.retention_bytes
    excess = size - limit

    def is_due(segment: LogSegment, _: LogSegment | None) -> bool:
        nonlocal excess
        if limit < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return is_due


def below_start(log_start_offset: int) -> IsDue:
    """Return the check for the log start offset."""
    return lambda _, following: following is not None and following.base_offset <= log_start_offset
