"""CleanerManager: which log is cleaned next, from where to where, and what each one's state is.

    idle --begin--> cleaning --finish--> idle
                    cleaning --abort---> aborted --let go--> idle
                    cleaning --give up-> uncleanable --forget--> idle

A log that is cleaned is aborted when its records are cut or deleted, when it goes away, or when
its topic is compacted no longer (KAFKA-12840): aborted until the cleaner has let go of its files.
One with a damaged batch is uncleanable until its records are cut or it is gone.

From where: the first dirty offset, as it is known to the log itself (`LocalLog.cleaned_offset`),
but not below the log's start (KAFKA-9133). To where: the segment of the last stable offset
(KAFKA-13194), the active segment, the first segment younger than `min.compaction.lag.ms`; never
below from where (KAFKA-9826). Due: the dirty part is more than `min.cleanable.dirty.ratio` of it
all, or has a batch older than `max.compaction.lag.ms`; the dirtiest first.

Kafka 2.7: kafka.log.LogCleanerManager; KIP-58, KIP-354
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kctl.broker.log.log_config import LONG_MAX
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.unified_log import UnifiedLog
from kctl.model import TopicPartition


class CleaningState(Enum):
    """See the module."""

    IDLE = "idle"
    CLEANING = "cleaning"
    ABORTED = "aborted"
    UNCLEANABLE = "uncleanable"


class CleaningMove(Enum):
    """What changes a state."""

    BEGIN = "begin"
    FINISH = "finish"
    ABORT = "abort"
    LET_GO = "let go"
    GIVE_UP = "give up"
    FORGET = "forget"


_TABLE = {
    (CleaningState.IDLE, CleaningMove.BEGIN): CleaningState.CLEANING,
    (CleaningState.CLEANING, CleaningMove.FINISH): CleaningState.IDLE,
    (CleaningState.CLEANING, CleaningMove.ABORT): CleaningState.ABORTED,
    (CleaningState.CLEANING, CleaningMove.GIVE_UP): CleaningState.UNCLEANABLE,
    (CleaningState.ABORTED, CleaningMove.LET_GO): CleaningState.IDLE,
    (CleaningState.UNCLEANABLE, CleaningMove.FORGET): CleaningState.IDLE,
}


@dataclass(frozen=True, slots=True)
class LogToClean:
    """What of a log is clean, and what may be cleaned now."""

    log: UnifiedLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    # Of segments below the first dirty offset; of those from there up to the uncleanable one.
    clean_bytes: int
    cleanable_bytes: int
    # A batch has waited for longer than `max.compaction.lag.ms`.
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of what is dirty."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is worth to be cleaned now."""
        if self.first_uncleanable_offset <= self.first_dirty_offset or not self.cleanable_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio

    @property
    def segments(self) -> list[LogSegment]:
        """Those below the first uncleanable offset."""
        end = self.first_uncleanable_offset
        return [segment for segment in self.log.segments[:-1] if segment.base_offset < end]


def look_at(log: UnifiedLog, now_ms: int) -> LogToClean:
    """What of the log may be cleaned at `now_ms`."""
    config = log.config
    first_dirty = max(log.local.cleaned_offset, log.log_start_offset)
    *inactive, active = log.segments
    dirty = [
        segment
        for segment, following in zip(inactive, log.segments[1:], strict=True)
        if following.base_offset > first_dirty
    ]
    unstable = (
        segment.base_offset
        for segment, following in zip(inactive, log.segments[1:], strict=True)
        if following.base_offset > log.last_stable_offset
    )
    first_uncleanable = next(unstable, active.base_offset)
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        young = (it.base_offset for it in dirty if it.largest_timestamp > youngest_ms)
        first_uncleanable = min(first_uncleanable, next(young, first_uncleanable))
    first_uncleanable = max(first_uncleanable, first_dirty)
    return LogToClean(
        log,
        first_dirty,
        first_uncleanable,
        sum(it.size for it in inactive[: len(inactive) - len(dirty)]),
        sum(it.size for it in dirty if it.base_offset < first_uncleanable),
        _is_overdue(log, dirty, now_ms),
    )


def _is_overdue(log: UnifiedLog, dirty: Iterable[LogSegment], now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return False
    first_timestamps = (segment.first_timestamp for segment in dirty)
    return any(0 < timestamp < now_ms - lag_ms for timestamp in first_timestamps)


class CleanerManager:
    """The states of all logs; see the module. Those that are idle are not kept."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, CleaningState] = {}
        # Of uncleanable ones: the log, and how often it had been truncated.
        self._damaged: dict[TopicPartition, tuple[UnifiedLog, int]] = {}

    def state(self, topic_partition: TopicPartition) -> CleaningState:
        """The state of a partition's log."""
        return self._states.get(topic_partition, CleaningState.IDLE)

    def move(self, log: UnifiedLog, move: CleaningMove) -> CleaningState:
        """Make a move; ValueError, and nothing changed, if the state does not allow it."""
        topic_partition = log.topic_partition
        before = self.state(topic_partition)
        after = _TABLE.get((before, move))
        if after is None:
            raise ValueError(f"{topic_partition} is {before.value}: it cannot {move.value}")
        self._states[topic_partition] = after
        if after is CleaningState.IDLE:
            del self._states[topic_partition]
            self._damaged.pop(topic_partition, None)
        elif after is CleaningState.UNCLEANABLE:
            self._damaged[topic_partition] = (log, log.truncations)
        return after

    def filthiest(self, logs: Iterable[UnifiedLog], now_ms: int) -> LogToClean | None:
        """The log to clean next, if any is due."""
        due = []
        for log in logs:
            self._forgive(log)
            if not log.config.is_compacted or log.topic_partition in self._states:
                continue
            found = look_at(log, now_ms)
            if found.is_due:
                due.append(found)
        return max(due, key=lambda it: it.dirty_ratio, default=None)

    def _forgive(self, log: UnifiedLog) -> None:
        """What was damaged may be gone."""
        known = self._damaged.get(log.topic_partition)
        if known is not None and known != (log, log.truncations):
            self.move(log, CleaningMove.FORGET)
