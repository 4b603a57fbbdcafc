"""Prepares a truncation: what a log knows of the records that remain, found in steps.

The producers of the remaining records and their largest timestamp have to be read from the log, up
to a segment of batches. This happens before anything changes: a truncation that is given up, or a
crash, leaves the log as it was. The records below the new end do not change meanwhile, except by
another truncation or by the cleaner; then the preparation is outdated.

Kafka 2.7: kafka.log.Log (`truncateTo`, `rebuildProducerState`)
"""

from kctl.broker.log.local_log import LocalLog
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.producer_replay import replay_in_steps
from kctl.broker.log.producer_state_manager import ProducerStateManager
from kctl.lazy_dataclass import dataclass
from kctl.storage.time_index import TimestampOffset
from kctl.work import Work


@dataclass(frozen=True, slots=True)
class PreparedTruncation:
    """What a log knows of its records below `end_offset`."""

    end_offset: int
    # The log's number of truncations, and the segment that becomes the last one.
    truncations: int
    segment: LogSegment | None
    max_timestamp: TimestampOffset | None
    producers: ProducerStateManager

    def is_valid(self, local: LocalLog, end_offset: int) -> bool:
        """Return whether `local` can be truncated to `end_offset` with it."""
        return (
            end_offset == self.end_offset
            and local.truncations == self.truncations
            and local.segments.floor(end_offset) is self.segment
        )


def prepare_truncation(
    local: LocalLog,
    producers: ProducerStateManager,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> Work[PreparedTruncation]:
    """Return what the log in [start, end) will know; change neither `local` nor `producers`."""
    while True:
        truncations, segment = local.truncations, local.segments.floor(end_offset)
        # Every batch of a producer that has not expired is in the state.
        has_none = not producers.producers
        start = min(log_start_offset, end_offset)
        remaining = yield from producers.loaded_until(start, end_offset, now_ms)
        if has_none:
            # A replay would read all headers since the last snapshot, up to a whole segment.
            remaining.map_end_offset = end_offset
        else:
            yield from replay_in_steps(local.segments, remaining, end_offset)
        latest = None
        # The cleaner may have replaced it, and removed its files, between two steps.
        if segment is not None and local.segments.floor(end_offset) is segment:
            latest = yield from segment.max_timestamp_before(end_offset)
        prepared = PreparedTruncation(end_offset, truncations, segment, latest, remaining)
        if prepared.is_valid(local, end_offset) or local.log_end_offset <= end_offset:
            return prepared
