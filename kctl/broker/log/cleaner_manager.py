"""CleanerManager: selects the log to clean next and the range to clean, and keeps each log's state.

    idle --begin--> cleaning --finish--> idle
                    cleaning --abort---> aborted --release--> idle
                    cleaning --give up-> uncleanable --forget--> idle

Cleaning of a log is aborted when records are truncated or deleted, when the log goes away, or when
its topic is no longer compacted (KAFKA-12840); the log is aborted until the cleaner has released
its files. A log with a damaged batch is uncleanable until records are truncated or it is gone.

The range begins at the first dirty offset, which the log keeps (`LocalLog.cleaned_offset`), but not
below the log start offset (KAFKA-9133). It ends at the segment of the last stable offset
(KAFKA-13194), the active segment, or the first segment younger than `min.compaction.lag.ms`,
whichever is first, but never below its begin (KAFKA-9826). A log is due if its dirty part exceeds
`min.cleanable.dirty.ratio` of the total, or has a batch older than `max.compaction.lag.ms`; the
dirtiest log comes first.

Kafka 2.7: kafka.log.LogCleanerManager; KIP-58, KIP-354
"""

from collections.abc import Iterable
from enum import Enum

from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.unified_log import UnifiedLog
from kctl.configs.config_key import LONG_MAX
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.work import Work

# Logs that are considered for cleaning in one turn.
LOOKED_AT_PER_TURN = 200


class CleaningState(Enum):
    """The cleaning state of a log; the module docstring shows the moves."""

    IDLE = "idle"
    CLEANING = "cleaning"
    ABORTED = "aborted"
    UNCLEANABLE = "uncleanable"


class CleaningMove(Enum):
    """The moves between states."""

    BEGIN = "begin"
    FINISH = "finish"
    ABORT = "abort"
    RELEASE = "release"
    GIVE_UP = "give up"
    FORGET = "forget"


_TABLE = {
    (CleaningState.IDLE, CleaningMove.BEGIN): CleaningState.CLEANING,
    (CleaningState.CLEANING, CleaningMove.FINISH): CleaningState.IDLE,
    (CleaningState.CLEANING, CleaningMove.ABORT): CleaningState.ABORTED,
    (CleaningState.CLEANING, CleaningMove.GIVE_UP): CleaningState.UNCLEANABLE,
    (CleaningState.ABORTED, CleaningMove.RELEASE): CleaningState.IDLE,
    (CleaningState.UNCLEANABLE, CleaningMove.FORGET): CleaningState.IDLE,
}


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with its clean and cleanable parts."""

    log: UnifiedLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    # Bytes of the segments below the first dirty offset, and from there to the uncleanable one.
    clean_bytes: int
    cleanable_bytes: int
    # For how long the oldest batch has waited beyond `max.compaction.lag.ms`; 0: it has not.
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        """Return the dirty share of the log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Return whether it should be cleaned now."""
        if self.first_uncleanable_offset <= self.first_dirty_offset or not self.cleanable_bytes:
            return False
        return self.overdue_ms > 0 or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio

    @property
    def segments(self) -> list[LogSegment]:
        """Return the segments below the first uncleanable offset."""
        end = self.first_uncleanable_offset
        return [segment for segment in self.log.segments[:-1] if segment.base_offset < end]


def cleanable_part(log: UnifiedLog, now_ms: int) -> LogToClean:
    """Return the part of the log that may be cleaned at `now_ms`."""
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
        _overdue_ms(log, dirty, now_ms),
    )


def _overdue_ms(log: UnifiedLog, dirty: Iterable[LogSegment], now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return 0
    timestamps = (segment.first_timestamp for segment in dirty)
    oldest = min((it for it in timestamps if it > 0), default=now_ms)
    return max(now_ms - lag_ms - oldest, 0)


class CleanerManager:
    """The cleaning states of all logs; idle ones are not stored."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, CleaningState] = {}
        # Of uncleanable logs: the log, and its number of truncations at that time.
        self._damaged: dict[TopicPartition, tuple[UnifiedLog, int]] = {}
        # The largest dirty share (0 to 1) of the logs that `filthiest` last looked at.
        self.dirtiest_ratio = 0.0
        # Of the most overdue of these logs.
        self.overdue_ms = 0

    def uncleanable(self, directories: Iterable[str]) -> dict[str, int]:
        """Return the number of uncleanable logs of each log directory, also of one without any."""
        counts = dict.fromkeys(directories, 0)
        for log, _ in self._damaged.values():
            counts[log.log_directory] = counts.get(log.log_directory, 0) + 1
        return counts

    def uncleanable_bytes(self, directories: Iterable[str], now_ms: int) -> dict[str, int]:
        """Return the bytes of each log directory that would be cleaned but for damage."""
        sizes = dict.fromkeys(directories, 0)
        for log, _ in self._damaged.values():
            if not log.is_closed:
                waiting = cleanable_part(log, now_ms).cleanable_bytes
                sizes[log.log_directory] = sizes.get(log.log_directory, 0) + waiting
        return sizes

    def state(self, topic_partition: TopicPartition) -> CleaningState:
        """Return the state of a partition's log."""
        return self._states.get(topic_partition, CleaningState.IDLE)

    def move(self, log: UnifiedLog, move: CleaningMove) -> CleaningState:
        """Make a move; raise ValueError and change nothing if the state does not allow it."""
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

    def filthiest(self, logs: Iterable[UnifiedLog], now_ms: int) -> Work[LogToClean | None]:
        """Return the log to clean next, or None if none is due; it may have changed since its
        turn."""
        due = []
        dirtiest = 0.0
        overdue_ms = 0
        for number, log in enumerate(logs):
            if number and number % LOOKED_AT_PER_TURN == 0:
                yield
            self._reset_if_changed(log)
            if not log.config.is_compacted or log.topic_partition in self._states:
                continue
            found = cleanable_part(log, now_ms)
            dirtiest = max(dirtiest, found.dirty_ratio)
            overdue_ms = max(overdue_ms, found.overdue_ms)
            if found.is_due:
                due.append(found)
        self.dirtiest_ratio, self.overdue_ms = dirtiest, overdue_ms
        return max(due, key=lambda it: it.dirty_ratio, default=None)

    def _reset_if_changed(self, log: UnifiedLog) -> None:
        """Reset an uncleanable log whose damage may be gone."""
        known = self._damaged.get(log.topic_partition)
        if known is not None and known != (log, log.truncations):
            self.move(log, CleaningMove.FORGET)
