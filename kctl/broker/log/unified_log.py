"""UnifiedLog: one replica's log as the rest of the broker sees it.

It combines a LocalLog with validation of appended records, producer state, leader epochs, the log
start offset, the high watermark and the last stable offset.

    log start <= last stable <= high watermark <= log end

An append checks and numbers the records, rejects what the producer state forbids, records the
leader epoch, writes, and then changes memory, in this order. An error before the write changes
nothing; a failed write leaves at most bytes that the next append overwrites.

Invariants: the order above; every offset except the high watermark only increases, unless records
are truncated; the producer state ends at the log end offset.

Kafka 2.7: kafka.log.Log; KIP-98, KIP-101, KIP-107, KIP-279, KIP-360
"""

from collections.abc import Callable, Mapping, Sequence

from kctl.broker.log import retention
from kctl.broker.log.fetch_data import (
    FetchDataInfo,
    FetchIsolation,
    LogAppendInfo,
    appended_before,
    nothing_appended,
)
from kctl.broker.log.follower_records import check_follower_records, start_of_first_batch
from kctl.broker.log.leader_epoch_file_cache import LeaderEpochFileCache
from kctl.broker.log.local_log import ALL_SEGMENTS, FlushJob, LocalLog, LogOffsetMetadata
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_loader import LoadedLog
from kctl.broker.log.log_reader import find_by_timestamp, nothing_at, read_up_to
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.log_validator import CheckedRecords, validate_records
from kctl.broker.log.producer_replay import apply_batch, marker_of
from kctl.broker.log.producer_state import ProducerBatch, ProducerState, producer_batch_of
from kctl.broker.log.producer_state_manager import ProducerStateManager
from kctl.broker.log.truncation import PreparedTruncation, prepare_truncation
from kctl.broker.log.validation_rules import AppendOrigin, ValidatedRecords
from kctl.model import TopicPartition
from kctl.protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
from kctl.records.memory_records import Batch
from kctl.records.record_batch import LOG_APPEND_TIME, NO_TIMESTAMP, RecordBatch
from kctl.runtime.clock import Clock
from kctl.runtime.disk import DiskFile
from kctl.work import ClaimingWork, Work, at_once


class UnifiedLog:
    """One replica's log. It belongs to the broker's single thread."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log_directory: str,
        local: LocalLog,
        loaded: LoadedLog,
        clock: Clock,
        on_rolled: "Callable[[UnifiedLog], object]",
    ) -> None:
        """Create a log from the result of LogLoader. `log_directory` is the broker's log directory
        with the partition's one. `on_rolled` is called after each roll of a segment."""
        self.topic_partition = topic_partition
        self.log_directory = log_directory
        self._local = local
        self._clock = clock
        self._producers = loaded.producers
        self._epochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        # The first offset that committed readers must not pass, if any.
        self.first_unstable_offset: int | None = None
        self._on_rolled = on_rolled
        self.last_flush_ms = clock.wall_ms()
        self.is_closed = False
        self._take_config(local.config)
        self._refresh_first_unstable_offset()

    # --- facts -------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """Return the partition's own directory."""
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        """Return the topic's configs; assign new ones to change them."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._take_config(config)

    def _take_config(self, config: LogConfig) -> None:
        self._config = config
        self._local.config = config
        self._rules = config.validation_rules(self.topic_partition)
        if self._rules.magic < 2:
            # A leader whose log has no epochs cannot compare them with those of its followers, so
            # that theirs have to go as well.
            self._epochs.forget()
        self._flush_messages = config.flush_messages
        # flush.messages=1: an append is acknowledged once it is durable; see LogManager.flush_soon.
        self.is_write_through = config.flush_messages == 1
        self._segment_bytes = config.segment_bytes
        self._is_append_time = config.timestamp_type == LOG_APPEND_TIME

    @property
    def size(self) -> int:
        """Return the bytes of all segments."""
        return self._local.segments.size

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """Return the current segments, oldest first."""
        return self._local.segments.all

    @property
    def recovery_point(self) -> int:
        """Return the offset below which everything is durable."""
        return self._local.recovery_point

    @property
    def latest_epoch(self) -> int:
        """Return the newest leader epoch in the log, or -1."""
        return self._epochs.latest_epoch

    @property
    def last_stable_offset(self) -> int:
        """Return the end (exclusive) for readers of committed data."""
        first_unstable = self.first_unstable_offset
        if first_unstable is not None and first_unstable < self.high_watermark:
            return first_unstable
        return self.high_watermark

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """Return the high watermark with its position."""
        return self._local.locate(self.high_watermark)

    @property
    def producer_state(self) -> ProducerStateManager:
        """Return the state behind `producers`."""
        return self._producers

    @property
    def producers(self) -> Mapping[int, ProducerState]:
        """Return the producers known to the log, by id."""
        return self._producers.producers

    @property
    def local(self) -> LocalLog:
        """Return the local log, for the cleaner."""
        return self._local

    # --- append ------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer | CheckedRecords,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        now_ms: int,
    ) -> LogAppendInfo:
        """Check, number and append a producer's records; the buffer is numbered in place. Raise
        ApiError for the producer, StorageError, or ValidationInTurns if the check takes several
        turns."""
        first_offset = self.log_end_offset
        found = validate_records(
            records, self._rules,
            origin=origin, next_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms,
        )  # fmt: skip
        if not found.count:
            return nothing_appended(self.log_start_offset)
        producer = None
        if found.producer_id >= 0:
            producer = _producer_batch(found)
            duplicate = self._check_producer(producer, origin)
            if duplicate is not None:
                return duplicate
        data = found.records
        length = len(data)
        last_offset = found.last_offset
        segment = self._segment_for(length, first_offset, last_offset, found.max_timestamp, now_ms)
        magic = self._rules.magic
        epochs = self._epochs
        if magic < 2:
            segment.forget_tail()
        elif leader_epoch != epochs.latest_epoch:
            epochs.assign(leader_epoch, first_offset)
        if not epochs.is_saved:
            epochs.save()
        position = self._local.append(
            segment, (data,), length, last_offset, found.max_timestamp,
            found.offset_of_max_timestamp,
        )  # fmt: skip
        self.log_end_offset = last_offset + 1
        if magic == 2:
            segment.remember(first_offset, last_offset, position)
        if producer is not None:
            self._update_producer(producer, segment)
        self._producers.map_end_offset = last_offset + 1
        unflushed = last_offset + 1 - self._local.recovery_point
        if unflushed >= self._flush_messages and not self.is_write_through:
            self.flush()
        return LogAppendInfo(
            first_offset,
            last_offset,
            found.max_timestamp,
            found.offset_of_max_timestamp,
            now_ms if self._is_append_time else NO_TIMESTAMP,
            self.log_start_offset,
        )

    def append_as_follower(self, records: Buffer) -> LogAppendInfo:
        """Append a leader's batches unchanged, with their offsets and epochs. Raise ApiError if
        they are damaged or already in the log."""
        now_ms = self._clock.wall_ms()
        if self.log_start_offset == self.log_end_offset:
            begin = start_of_first_batch(records, self.log_end_offset)
            if begin < self.log_end_offset:
                self.truncate_fully_and_start_at(begin)
        found = check_follower_records(records, self.topic_partition, self.log_end_offset)
        if not found.batches:
            return nothing_appended(self.log_start_offset)
        whole = memoryview(records)
        if found.length <= self._segment_bytes:
            self._append_batches(
                whole[: found.length], found.batches, found.max_timestamp,
                found.offset_of_max_timestamp, now_ms,
            )  # fmt: skip
        else:
            for batch in found.batches:
                data = whole[batch.position : batch.position + batch.size]
                self._append_batches(data, [batch], batch.max_timestamp, batch.last_offset, now_ms)
        if self.log_end_offset - self._local.recovery_point >= self._flush_messages:
            self.flush()
        return LogAppendInfo(
            found.first_offset, found.last_offset, found.max_timestamp,
            found.offset_of_max_timestamp, NO_TIMESTAMP, self.log_start_offset,
        )  # fmt: skip

    def _append_batches(
        self,
        data: memoryview,
        batches: Sequence[Batch],
        max_timestamp: int,
        offset_of_max_timestamp: int,
        now_ms: int,
    ) -> None:
        first = batches[0]
        first_offset = first.base_offset if isinstance(first, RecordBatch) else self.log_end_offset
        last_offset = batches[-1].last_offset
        length = len(data)
        segment = self._segment_for(length, first_offset, last_offset, max_timestamp, now_ms)
        for batch in batches:
            if batch.magic < 2:
                self._epochs.clear()
            elif self._rules.magic == 2:
                self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        self._epochs.save()
        position = self._local.append(
            segment, (data,), length, last_offset, max_timestamp, offset_of_max_timestamp
        )
        self.log_end_offset = last_offset + 1
        for batch in batches:
            if isinstance(batch, RecordBatch):
                segment.remember(batch.base_offset, batch.last_offset, position)
                if batch.has_producer_id:
                    self._update_producer(producer_batch_of(batch, marker_of(batch)), segment)
            else:
                segment.forget_tail()
            position += batch.size
        self._producers.map_end_offset = last_offset + 1

    def _segment_for(
        self, length: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> LogSegment:
        """Return the segment to append to, rolling the log if necessary."""
        if length > self._segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {length} bytes in append to partition "
                f"{self.topic_partition}, which exceeds the maximum configured segment size of "
                f"{self._segment_bytes}.",
            )
        segment = self._local.segment_for(length, last_offset, max_timestamp, now_ms)
        return segment if segment is not None else self._roll(now_ms, first_offset)

    def _check_producer(self, batch: ProducerBatch, origin: AppendOrigin) -> LogAppendInfo | None:
        """Return the result for a repeated batch, else None; raise ApiError for an invalid one."""
        if origin is AppendOrigin.CLIENT:
            known = self._producers.find_duplicate(batch)
            if known is not None:
                return appended_before(known, self.log_start_offset)
        self._producers.check(batch, origin)
        return None

    def _update_producer(self, batch: ProducerBatch, segment: LogSegment) -> None:
        """Update the producer's state and the first unstable offset for a batch in `segment`."""
        is_end = apply_batch(self._producers, batch, segment.transaction_index.append)
        if is_end or batch.is_transactional:
            self._refresh_first_unstable_offset()

    # --- read --------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: FetchIsolation,
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """Return records from the batch that holds `start_offset` on, as a slice of the file. Raise
        ApiError (OFFSET_OUT_OF_RANGE) outside [log start, log end]. The result has at most
        `max_bytes`, but with `min_one_message` at least one batch."""
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {start_offset} for partition "
                f"{self.topic_partition}, but we only have log segments in the range "
                f"{self.log_start_offset} to {self.log_end_offset}.",
            )
        is_committed = isolation is FetchIsolation.TXN_COMMITTED
        if isolation is FetchIsolation.LOG_END:
            bound = self.log_end_offset
        elif is_committed:
            bound = self.last_stable_offset
        else:
            bound = self.high_watermark
        if start_offset >= bound:
            return nothing_at(self._local, start_offset, start_offset, is_committed=is_committed)
        return read_up_to(
            self._local,
            start_offset,
            max_bytes,
            bound,
            min_one_message=min_one_message,
            is_committed=is_committed,
        )

    def fetch_offset_by_timestamp(
        self, timestamp: int
    ) -> ClaimingWork[tuple[int, int, int] | None]:
        """Return (timestamp, offset, leader epoch) of the first record with at least that
        timestamp, or None; in steps. LATEST_TIMESTAMP and EARLIEST_TIMESTAMP return the log's end
        and start."""
        if timestamp == EARLIEST_TIMESTAMP:
            first = self._epochs.earliest
            start = self.log_start_offset
            is_known = first is not None and first.start_offset <= start
            return NO_TIMESTAMP, start, self._epochs.epoch_at(start) if is_known else -1
        if timestamp == LATEST_TIMESTAMP:
            return NO_TIMESTAMP, self.log_end_offset, self._epochs.latest_epoch
        if self._rules.magic < 1:
            raise ApiError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"Cannot search offsets based on timestamp because message format version for "
                f"partition {self.topic_partition} is {self._config.message_format_version} "
                "which is earlier than the minimum required version 0.10.0-IV0",
            )
        return (yield from find_by_timestamp(self._local, timestamp, self.log_start_offset))

    # --- leader epochs -----------------------------------------------------------------------

    def maybe_assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        """Record that a leader of `leader_epoch` begins at `start_offset` (KIP-101)."""
        self._producers.begin_leading()
        if self._rules.magic == 2:
            self._epochs.assign(leader_epoch, start_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return (the largest epoch not beyond `leader_epoch`, its end offset), or None if
        unknown."""
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # --- high watermark and log start --------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, within the log; return the new one."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.first_unstable_offset is not None:
            self._producers.on_high_watermark(offset)
            self._refresh_first_unstable_offset()
        return offset

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`; return whether it rose."""
        before = self.high_watermark
        return offset > before and self.update_high_watermark(offset) > before

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start offset and return whether it rose. Raise ApiError
        (OFFSET_OUT_OF_RANGE) beyond the high watermark."""
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition "
                f"{self.topic_partition} since it is larger than the high watermark "
                f"{self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self._epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self._producers.truncate_head(offset)
        self._refresh_first_unstable_offset()
        return True

    def _refresh_first_unstable_offset(self) -> None:
        first = self._producers.first_unstable_offset
        self.first_unstable_offset = None if first is None else max(first, self.log_start_offset)

    def remove_expired_producers(self, now_ms: int) -> Work[int]:
        """Remove producers that have been inactive for too long, in turns; return how many were
        looked at in the last one."""
        return (yield from self._producers.remove_expired(now_ms))

    # --- roll, flush, retention --------------------------------------------------------------

    def roll(self, now_ms: int | None = None) -> LogSegment:
        """Start a new segment at the log's end."""
        return self._roll(self._clock.wall_ms() if now_ms is None else now_ms, 0)

    def _roll(self, now_ms: int, expected_offset: int) -> LogSegment:
        before = self._local.segments.active
        segment = self._local.roll(now_ms, expected_offset)
        if segment is not before:
            # Recovery of the new segment then needs no batch of the old ones.
            producers = self._producers
            producers.map_end_offset = max(producers.map_end_offset, segment.base_offset)
            producers.take_snapshot()
            self._on_rolled(self)
        return segment

    def prepare_flush(self, *, is_closing: bool = False, limit: int = ALL_SEGMENTS) -> FlushJob:
        """Return a job that makes the next `limit` segments durable; run it anywhere, then call
        `complete_flush`. `is_closing` includes the indexes of the active one."""
        others: list[DiskFile] = []
        end = self._local.flush_end(limit)
        self._producers.add_to_flush(others, end)
        self._epochs.add_to_flush(others)
        return self._local.prepare_flush(others, end, is_closing=is_closing)

    def complete_flush(self, job: FlushJob) -> None:
        """Record that the job has run without an error."""
        self._local.complete_flush(job)
        self.last_flush_ms = self._clock.wall_ms()

    def flush(self) -> None:
        """Make everything durable now; a StorageError is final: never retry a failed fsync."""
        job = self.prepare_flush()
        job.run()
        self.complete_flush(job)

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete segments beyond the topic's limits or below the log start offset; return how many.
        Only segments wholly below the high watermark are deleted."""
        count = 0
        if self._config.is_deleted:
            count += self._delete_due(retention.too_old(self._config, now_ms), now_ms)
            count += self._delete_due(retention.over_size(self._config, self.size), now_ms)
        return count + self._delete_due(retention.below_start(self.log_start_offset), now_ms)

    def _delete_due(self, is_due: retention.IsDue, now_ms: int) -> int:
        segments = self._local.segments.all
        due = retention.deletable(segments, self.log_end_offset, self.high_watermark, is_due)
        if due:
            if len(due) == len(segments):
                self._roll(now_ms, 0)
            self._local.delete_segments(due)
            self.maybe_increment_log_start_offset(self._local.segments.all[0].base_offset)
        return len(due)

    # --- truncation --------------------------------------------------------------------------

    def prepare_truncation(self, offset: int) -> Work[PreparedTruncation | None]:
        """Return what `truncate_to` needs in order to be short, or None if it is short anyway; in
        steps, which change nothing."""
        if not 0 <= offset < self.log_end_offset or self._is_emptied_by(offset):
            return None
        return (yield from self._prepare(self._local.batch_start(offset)))

    def _prepare(self, end: int) -> Work[PreparedTruncation]:
        now_ms = self._clock.wall_ms()
        return prepare_truncation(self._local, self._producers, self.log_start_offset, end, now_ms)

    def _is_emptied_by(self, offset: int) -> bool:
        """Return whether a truncation to `offset` leaves no record, or none that may be read."""
        if offset < self._local.segments.all[0].base_offset:
            return True
        return self._local.batch_start(offset) < self.log_start_offset < offset

    def truncate_to(self, offset: int, prepared: PreparedTruncation | None = None) -> bool:
        """Remove all records from `offset` on; return whether there were any. A batch that contains
        `offset` is removed whole, and the log ends where it began: records after a gap would look
        lost. `prepared` is the result of `prepare_truncation`; without it, or if the log has
        changed since, this takes as long as the preparation."""
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to {offset}")
        if offset >= self.log_end_offset:
            # An epoch may have begun here without records; the new leader decides.
            self._epochs.truncate_from_end(offset)
            return False
        if self._is_emptied_by(offset):
            self.truncate_fully_and_start_at(min(offset, self.log_start_offset))
            return True
        offset = self._local.batch_start(offset)
        if prepared is None or not prepared.is_valid(self._local, offset):
            prepared = at_once(self._prepare(offset))
        if offset < self.log_start_offset:
            self._local.announce(offset)
        self._local.truncate_to(offset, self._clock.wall_ms(), prepared.max_timestamp)
        self._epochs.truncate_from_end(offset)
        self._truncated(min(offset, self.log_start_offset), offset)
        self._producers.adopt(prepared.producers, self.log_start_offset)
        self._producers.on_high_watermark(self.high_watermark)
        self._refresh_first_unstable_offset()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and continue at `offset`."""
        if offset < self.log_start_offset:
            self._local.announce(offset)
        self._local.truncate_fully_and_start_at(offset, self._clock.wall_ms())
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(offset)
        self._truncated(offset, offset)
        self._refresh_first_unstable_offset()

    def _truncated(self, log_start_offset: int, log_end_offset: int) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = max(log_start_offset, min(self.high_watermark, log_end_offset))

    # --- end ---------------------------------------------------------------------------------

    def claim_recovery_point(self) -> int:
        """Return the recovery point for a checkpoint that is made now."""
        return self._local.claim_recovery_point()

    @property
    def truncations(self) -> int:
        """Return how often the log was truncated since it was loaded."""
        return self._local.truncations

    def recovery_point_saved(self, truncations: int) -> Work[None]:
        """Remove, in steps, what a checkpoint replaces that was made after so many truncations."""
        if truncations == self._local.truncations and self._local.announced:
            self._local.withdraw()
        # No recovery needs snapshots before these.
        oldest = max(self._local.oldest_recovery_start, self.log_start_offset)
        yield from self._producers.delete_snapshots_before(oldest)

    def close(self) -> None:
        """Save indexes and producers, make everything durable, close the files."""
        if not self.is_closed:
            job = self.prepare_close()
            job.run()
            self.complete_close(job)

    def prepare_close(self) -> FlushJob:
        """Save indexes and producers; return the job that comes before `complete_close`."""
        self._producers.take_snapshot()
        self._local.complete_indexes()
        return self.prepare_flush(is_closing=True)

    def complete_close(self, job: FlushJob) -> None:
        """Close the files after the job has run without an error; nothing was appended since."""
        self.complete_flush(job)
        self._local.close()
        self.is_closed = True

    def release(self, directory: str) -> tuple[ProducerStateManager, LeaderEpochFileCache]:
        """Return the state of this closed log, for the one that continues in `directory`."""
        return self._producers.moved_to(directory), self._epochs.moved_to(directory)

    def abandon(self) -> None:
        """Close the files without writing, because the directory failed or is deleted."""
        self._local.abandon()
        self.is_closed = True


def _producer_batch(found: ValidatedRecords) -> ProducerBatch:
    batch = RecordBatch(found.records)
    return producer_batch_of(batch, marker_of(batch) if found.is_control else None)


__all__ = ["AppendOrigin", "FetchDataInfo", "FetchIsolation", "LogAppendInfo", "UnifiedLog"]
