"""LogLoader: opens a partition's directory and decides which of its files to trust.

Steps:

1. Leftovers: `.deleted` and `.cleaned` files are removed. A `.swap` segment is complete and
   replaces its sources, unless a `.cleaned` of a lower or equal offset shows that a split was
   interrupted (KAFKA-6264): then the swap is removed and the old segment stays.
2. Segments: an index without a .log is removed; a segment without an offset index is recovered.
3. After an unclean shutdown: every segment from the recovery point on is recovered
   (`segment_recovery`); segments after a truncated one are removed.
4. The log end offset, read from the last index entry on. If it is below the log start offset,
   the log starts over there.
5. Leader epochs are truncated to the log; producer state comes from the latest snapshot and the
   batches after it.

After a clean shutdown nothing is written and little is read: one directory listing, the sizes, the
last batches, the epochs, one snapshot. A second run changes nothing. Raises
DurableCorruptionError when durable records are damaged; the directory is then unchanged from
that segment on.
Kafka 2.7: kafka.log.Log (`loadSegments`, `recoverLog`, `loadProducerState`); trunk's LogLoader
"""

from collections.abc import Sequence

from kctl.broker.log.leader_epoch_file_cache import LeaderEpochFileCache
from kctl.broker.log.local_log import segment_options
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.log_segments import LogSegments
from kctl.broker.log.open_segments import OpenSegments
from kctl.broker.log.producer_replay import replay_segments
from kctl.broker.log.producer_state_manager import DEFAULT_EXPIRATION_MS, ProducerStateManager
from kctl.broker.log.segment_recovery import (
    DurableCorruptionError,
    recover_segment,
)
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk
from kctl.runtime.trace import Trace
from kctl.storage.checkpoint import EpochEntry
from kctl.storage.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRUNCATION_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from kctl.storage.offset_index import RELATIVE_OFFSET_MAX

UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The parameters for opening a log's directory."""

    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    # From the checkpoints; 0 and UNKNOWN_OFFSET if they do not mention the log.
    recovery_point: int
    log_start_offset: int
    had_clean_shutdown: bool
    now_ms: int
    # Below this offset the log may have been compacted, so that missing offsets are expected.
    gaps_allowed_below: int = 0
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS
    # The directory has just been created, and is empty.
    is_new: bool = False


@dataclass(slots=True)
class LoadedLog:
    """The result of LogLoader."""

    segments: LogSegments
    log_start_offset: int
    recovery_point: int
    log_end_offset: int
    producers: ProducerStateManager
    epochs: LeaderEpochFileCache
    # Announced truncations, which may not be in a checkpoint yet.
    announced: Sequence[int]


class LogLoader:
    """Loads one directory; used once."""

    def __init__(
        self, disk: Disk, trace: Trace, open_segments: OpenSegments, request: LoadRequest
    ) -> None:
        self._disk = disk
        self._trace = trace
        self._open_segments = open_segments
        self._request = request
        self._directory = request.directory
        # Names in the directory, updated on removal.
        self._names: set[str] = set()
        self._segments = LogSegments()
        self._log_start_offset = 0
        self._recovery_point = request.recovery_point
        self._announced: list[int] = []
        self._are_epochs_rebuilt = False
        self._needs_recovery = not request.had_clean_shutdown

    def load(self) -> LoadedLog:
        """Load the directory."""
        request = self._request
        self._names = set() if request.is_new else set(self._disk.list(self._directory))
        swaps = self._clear_leftovers()
        self._epochs = self._load_epochs()
        self._producers = self._make_producers()
        damaged = self._load_segments()
        log_start_offset = min([request.log_start_offset, *self._announced])
        self._log_start_offset = max(log_start_offset, self._first_offset(swaps))
        for base_offset in damaged:
            self._recover_one(base_offset)
        for base_offset in swaps:
            self._complete_swap(base_offset)
        log_end_offset = self._recover()
        # Keep an epoch that begins at the very end without records, unless it was read from batches
        # that recovery has removed.
        self._epochs.truncate_from_end(log_end_offset + (not self._are_epochs_rebuilt))
        self._epochs.truncate_from_start(self._log_start_offset)
        self._load_producers(log_end_offset)
        return LoadedLog(
            self._segments,
            self._log_start_offset,
            min(self._recovery_point, log_end_offset),
            log_end_offset,
            self._producers,
            self._epochs,
            self._announced,
        )

    # --- 1. leftovers ------------------------------------------------------------------------

    def _clear_leftovers(self) -> list[int]:
        """Remove the files of interrupted operations; return the base offsets of swaps to
        complete."""
        lowest_cleaned: int | None = None
        swaps: list[int] = []
        for name in sorted(self._names):
            parsed = parse_file_name(name)
            if name.endswith((DELETED_SUFFIX, ".tmp")):
                self._remove(name)
            elif parsed is None:
                continue
            elif parsed[1] == TRUNCATION_SUFFIX:
                self._announced.append(parsed[0])
                self._recovery_point = min(self._recovery_point, parsed[0])
            elif parsed[1].endswith(CLEANED_SUFFIX):
                lowest_cleaned = parsed[0] if lowest_cleaned is None else lowest_cleaned
                self._remove(name)
            elif parsed[1] == LOG_SUFFIX + SWAP_SUFFIX:
                swaps.append(parsed[0])
            elif parsed[1].endswith(SWAP_SUFFIX):
                # The indexes of a swap segment are rebuilt.
                self._remove(name)
        if lowest_cleaned is None:
            return swaps
        for base_offset in [offset for offset in swaps if offset >= lowest_cleaned]:
            self._remove(file_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX))
            swaps.remove(base_offset)
        return swaps

    def _first_offset(self, swaps: list[int]) -> int:
        """Return the first offset of the log's files; the first segment may exist as a swap
        only."""
        return min([*swaps, *(it.base_offset for it in self._segments.all)], default=0)

    def _complete_swap(self, base_offset: int) -> None:
        """Replace the segments that a complete swap segment covers."""
        swap = self._open_segment(base_offset, SWAP_SUFFIX)
        # The producer state of a compacted segment differs from that of the log.
        producers, self._producers = self._producers, self._make_producers()
        self._bring_producers_to(base_offset)
        self._recover_segment(swap, base_offset + RELATIVE_OFFSET_MAX + 1)
        self._producers = producers
        _flush_indexes(swap)
        next_offset = swap.read_next_offset()
        replaced = [
            segment
            for segment in self._segments.all
            if segment.base_offset == base_offset
            or (segment.base_offset < next_offset and segment.read_next_offset() > base_offset)
        ]
        for segment in replaced:
            self._trace.info(f"{segment.path(LOG_SUFFIX)}: replaced by a completed swap")
            self._delete_segment(segment)
        # A segment with the same offsets, without a swap to explain it, must not reappear.
        self._disk.fsync_directory(self._directory)
        swap.rename_suffix("")
        self._segments.add(swap)
        self._disk.fsync_directory(self._directory)

    # --- 2. segments -------------------------------------------------------------------------

    def _load_segments(self) -> list[int]:
        """Open every .log; return the base offsets of segments that must be recovered."""
        damaged: list[int] = []
        segments: list[LogSegment] = []
        for name in sorted(self._names):
            parsed = parse_file_name(name)
            if parsed is None:
                continue
            base_offset, suffix = parsed
            if suffix in INDEX_SUFFIXES and file_name(base_offset, LOG_SUFFIX) not in self._names:
                self._trace.warning(f"{self._directory}/{name}: removing an index without a log")
                self._remove(name)
            elif suffix == LOG_SUFFIX:
                segments.append(self._open_segment(base_offset))
                if file_name(base_offset, INDEX_SUFFIX) not in self._names:
                    damaged.append(base_offset)
        self._segments = LogSegments(segments)
        return damaged

    def _open_segment(self, base_offset: int, suffix: str = "") -> LogSegment:
        name = file_name(base_offset, LOG_SUFFIX)
        has_txn_index = file_name(base_offset, TXN_INDEX_SUFFIX) + suffix in self._names
        return LogSegment(
            self._disk,
            self._open_segments,
            self._directory,
            base_offset,
            segment_options(self._request.config),
            size=self._disk.size(f"{self._directory}/{name}{suffix}"),
            now_ms=self._request.now_ms,
            suffix=suffix,
            has_transaction_index=has_txn_index,
        )

    # --- 3. recovery -------------------------------------------------------------------------

    def _recover(self) -> int:
        """Recover from the recovery point on after an unclean shutdown; return the log end
        offset."""
        if not self._needs_recovery:
            try:
                return self._end_of_active()
            except CorruptDataError as error:
                self._trace.warning(f"{self._request.topic_partition}: {error}; recovering")
        if len(self._segments):
            self._recover_from(self._recovery_point)
        return self._end_of_active()

    def _recover_from(self, recovery_point: int) -> None:
        suspects = self._segments.since(recovery_point)
        self._bring_producers_to(suspects[0].base_offset)
        for number, segment in enumerate(suspects):
            if number:
                self._producers.map_end_offset = max(
                    self._producers.map_end_offset, segment.base_offset
                )
                self._producers.take_snapshot()
            is_last = number == len(suspects) - 1
            next_base_offset = None if is_last else suspects[number + 1].base_offset
            cut, end = self._recover_segment(segment, next_base_offset, recovery_point)
            if cut:
                self._report_cut(segment, cut)
            if not is_last and (cut or self._is_gap(end, suspects[number + 1], recovery_point)):
                for later in suspects[number + 1 :]:
                    self._trace.warning(
                        f"{later.path(LOG_SUFFIX)}: removed because it follows lost records"
                    )
                    self._delete_segment(later)
                self._disk.fsync_directory(self._directory)
                return

    def _is_gap(self, end: int, following: LogSegment, recovery_point: int) -> bool:
        """Return whether records before `following` never reached the disk although that segment
        did.

        A file may end with a whole batch because none of the later writes survived. Compaction
        leaves such gaps too, so they are accepted where the log may have been compacted.
        """
        base_offset = following.base_offset
        end = max(end, self._log_start_offset)
        if end >= base_offset or base_offset <= self._request.gaps_allowed_below:
            return False
        if end < recovery_point:
            raise DurableCorruptionError(
                f"{self._directory}: records from offset {end} on, up to segment "
                f"{base_offset}, are missing although they were durable; no file was changed",
                hint="restore this replica from another one",
            )
        return True

    def _recover_one(self, base_offset: int) -> None:
        """Recover a segment whose indexes are missing."""
        segment = next(s for s in self._segments.all if s.base_offset == base_offset)
        recovery_point = self._recovery_point
        if self._needs_recovery and segment in self._segments.since(recovery_point):
            # Everything is rebuilt later.
            return
        self._trace.warning(f"{segment.path(LOG_SUFFIX)}: its index is missing and is rebuilt")
        self._bring_producers_to(base_offset)
        following = [it.base_offset for it in self._segments.all if it.base_offset > base_offset]
        cut, _ = self._recover_segment(segment, min(following, default=None), recovery_point)
        _flush_indexes(segment)
        if cut:
            self._report_cut(segment, cut)
            self._needs_recovery = True

    def _recover_segment(
        self, segment: LogSegment, next_base_offset: int | None, trusted_end: int = 0
    ) -> tuple[int, int]:
        return recover_segment(
            segment,
            self._producers,
            self._epochs,
            self._request.config.index_entry_bytes,
            next_base_offset=next_base_offset,
            # Records below the log start offset may be missing.
            trusted_end=trusted_end if trusted_end > self._log_start_offset else 0,
        )

    def _report_cut(self, segment: LogSegment, cut: int) -> None:
        self._trace.warning(
            f"{segment.path(LOG_SUFFIX)}: {cut} bytes at the end were incompletely written "
            f"and were removed; the log continues at offset {self._producers.map_end_offset}"
        )
        self._trace.event(
            "log_truncated_by_recovery",
            partition=self._request.topic_partition,
            base_offset=segment.base_offset,
            bytes_cut=cut,
        )

    # --- 4. the end --------------------------------------------------------------------------

    def _end_of_active(self) -> int:
        """Return the log end offset; create the first segment if there is none."""
        if len(self._segments):
            end = self._segments.active.read_next_offset()
            if end >= self._log_start_offset:
                return end
            self._trace.warning(
                f"{self._request.topic_partition}: the log ends at {end}, below its start "
                f"{self._log_start_offset}; all segments are removed"
            )
            for segment in self._segments.all:
                self._delete_segment(segment)
        segment = LogSegment.create(
            self._disk,
            self._open_segments,
            self._directory,
            self._log_start_offset,
            segment_options(self._request.config),
            now_ms=self._request.now_ms,
            is_directory_new=self._request.is_new,
        )
        self._segments = LogSegments([segment])
        return self._log_start_offset

    # --- 5. epochs and producers -------------------------------------------------------------

    def _load_epochs(self) -> LeaderEpochFileCache:
        try:
            return LeaderEpochFileCache.load(
                self._disk, self._directory, exists=LEADER_EPOCH_CHECKPOINT in self._names
            )
        except CorruptDataError as error:
            # Kafka takes the directory offline; here the epochs are read from the batches, which is
            # slower.
            entries = self._epochs_of_batches()
            if entries:
                # Kafka creates the file empty: without a batch, nothing is missing in it.
                self._trace.warning(f"{error}; it is rebuilt from the log")
        self._are_epochs_rebuilt = True
        return LeaderEpochFileCache(self._disk, self._directory, entries)

    def _epochs_of_batches(self) -> list[EpochEntry]:
        entries: list[EpochEntry] = []
        bases = sorted(
            parsed[0] for parsed in map(parse_file_name, self._names)
            if parsed and parsed[1] == LOG_SUFFIX
        )  # fmt: skip
        for base_offset in bases:
            segment = self._open_segment(base_offset)
            try:
                for batch in segment.records.headers():
                    epoch = batch.partition_leader_epoch
                    if epoch > (entries[-1].epoch if entries else -1):
                        entries.append(EpochEntry(epoch, batch.base_offset))
            except CorruptDataError:
                break
            finally:
                segment.abandon()
        return entries

    def _make_producers(self) -> ProducerStateManager:
        request = self._request
        parsed = map(parse_file_name, self._names)
        return ProducerStateManager(
            self._disk,
            self._trace,
            request.topic_partition,
            self._directory,
            [found[0] for found in parsed if found and found[1] == SNAPSHOT_SUFFIX],
            request.producer_expiration_ms,
        )

    def _load_producers(self, log_end_offset: int) -> None:
        """Bring the producer state to the end of the log."""
        producers = self._producers
        producers.delete_snapshots_outside(self._log_start_offset, log_end_offset)
        is_old_format = self._request.config.magic < 2
        has_no_snapshot = not producers.snapshots and self._request.had_clean_shutdown
        if is_old_format or (has_no_snapshot and producers.map_end_offset == 0):
            # Brokers before 0.11 took no snapshots: their records have no producers.
            self._snapshot_nothing(log_end_offset)
            return
        self._bring_producers_to(log_end_offset)
        producers.map_end_offset = max(producers.map_end_offset, log_end_offset)
        producers.take_snapshot()

    def _snapshot_nothing(self, log_end_offset: int) -> None:
        """Take empty snapshots at the last two segments and the end, so that the next start scans
        nothing."""
        active = self._segments.active
        lower = self._segments.lower(active.base_offset)
        for offset in ([lower.base_offset] if lower else []) + [active.base_offset, log_end_offset]:
            self._producers.map_end_offset = offset
            if offset not in self._producers.snapshots:
                self._producers.take_snapshot()

    def _bring_producers_to(self, end_offset: int) -> None:
        """Load the best snapshot and replay the batches between it and `end_offset`."""
        producers = self._producers
        if producers.map_end_offset == end_offset and end_offset:
            return
        producers.load_best_snapshot(self._log_start_offset, end_offset, self._request.now_ms)
        replay_segments(self._segments, producers, end_offset)

    # --- helpers -----------------------------------------------------------------------------

    def _remove(self, name: str) -> None:
        self._disk.remove(f"{self._directory}/{name}")
        self._names.discard(name)

    def _delete_segment(self, segment: LogSegment) -> None:
        for path in segment.mark_deleted():
            self._disk.remove(path)
        self._segments.remove([segment])


def _flush_indexes(segment: LogSegment) -> None:
    """Make the indexes durable, because recovery skips segments below the recovery point."""
    for file in segment.index_files_to_flush():
        file.fsync()
