"""LogCleaner: cleans one log after the other, in the background.

The bytes are worked through slice by slice in `scheduler.background`, in turn with the fsyncs that
appends wait for, so a slice is short. Between slices the loop looks whether the log is still the
one that was begun with; if not, what was made is thrown away. A finished segment takes the place
of those it was made of at once, on the loop; who reads those keeps their files.

Order: what the log has is made durable, for younger records and markers are why older ones go,
and a power loss must not take both; `.cleaned` files durable; renamed to `.swap`; the old ones
renamed to `.deleted`; the new ones get their names; last of all the cleaned offset goes into a
checkpoint. Before the `.swap` is durable a crash leaves the old segments, after that a start
completes the swap.

Failures: StorageError takes the log directory offline, as everywhere; a damaged batch makes the
partition uncleanable, with one line.

Kafka 2.7: kafka.log.LogCleaner; KIP-58, KIP-354
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kctl.broker.log.cleaner import Cleaner, CleaningPlan, LastRecord, SourceSegment
from kctl.broker.log.cleaner_manager import CleanerManager, CleaningMove, CleaningState, LogToClean
from kctl.broker.log.cleaner_output import CleanedSegment
from kctl.broker.log.local_log import segment_options
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import CorruptDataError, StorageError
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk
from kctl.runtime.future import Future, Task, sleep
from kctl.runtime.runtime import Runtime
from kctl.storage.layout import CLEANED_SUFFIX, SEGMENT_SUFFIXES, file_name

# What waits for the same thread, an fsync above all, waits no longer than a slice.
SLICE_MS_MAX = 5


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker's settings; defaults are Kafka's."""

    # log.cleaner.enable
    is_enabled: bool = True
    # log.cleaner.backoff.ms
    backoff_ms: int = 15_000
    # log.cleaner.dedupe.buffer.size
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    # log.cleaner.io.buffer.load.factor
    load_factor: float = 0.9
    # log.cleaner.io.buffer.size: bytes that a slice works through, at least.
    io_buffer_bytes: int = 512 * 1024
    # log.cleaner.io.max.bytes.per.second
    bytes_per_second: float = float(2**63)


class _AbortedError(Exception):
    """The log is not the one any more that was begun with."""


class LogCleaner:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        logs: Mapping[TopicPartition, UnifiedLog],
        settings: Callable[[], CleanerSettings],
        flush: Callable[[UnifiedLog], Future[None]],
        on_failure: Callable[[str, str], object],
        *,
        is_held: Callable[[TopicPartition], bool],
    ) -> None:
        """`logs` is LogManager's mapping, as it changes; `settings` are asked before every log;
        `flush` makes durable what a log has; `on_failure` gets the log directory that failed, and
        why; `is_held` tells which logs are to stay as they are."""
        self._disk: Disk = runtime.disk
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._logs = logs
        self._settings = settings
        self._flush = flush
        self._on_failure = on_failure
        self._is_held = is_held
        self.manager = CleanerManager()
        self._is_stopping = False
        self._running: Task[None] | None = None
        # Set while the cleaner waits for something to do.
        self._resting: Future[None] | None = None

    # --- when --------------------------------------------------------------------------------

    def start(self) -> None:
        """Clean from now on, if the settings say so."""
        if self._settings().is_enabled:
            self._running = self._scheduler.spawn(self._run(), "log-cleaner")

    async def stop(self) -> None:
        """Give up what is under way, and let go of all files."""
        self._is_stopping = True
        if self._resting is not None:
            self._resting.set_result(None)
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        while not self._is_stopping:
            if not await self.clean_one():
                await self._rest(self._settings().backoff_ms)

    async def _rest(self, delay_ms: int) -> None:
        resting = self._resting = self._scheduler.future()

        def wake() -> None:
            if not resting.done:
                resting.set_result(None)

        timer = self._scheduler.call_later(delay_ms, wake)
        await resting
        timer.cancel()
        self._resting = None

    def is_cleaning(self, log: UnifiedLog) -> bool:
        """Whether its segments had better stay for now."""
        return self.manager.state(log.topic_partition) is CleaningState.CLEANING

    # --- one log -----------------------------------------------------------------------------

    async def clean_one(self) -> bool:
        """Clean the log that needs it most; False if none is due."""
        logs = [log for tp, log in self._logs.items() if not self._is_held(tp)]
        due = self.manager.filthiest(logs, self._clock.wall_ms())
        if due is None:
            return False
        await self._clean(due)
        return True

    async def _clean(self, due: LogToClean) -> None:
        log = due.log
        self.manager.move(log, CleaningMove.BEGIN)
        work: _Work | None = None
        try:
            work = _Work(self._disk, due, _plan(due, self._settings(), self._clock.wall_ms()))
            await self._flush(log)
            await self._clean_all(work)
        except _AbortedError:
            self.manager.move(log, CleaningMove.ABORT)
        except (CorruptDataError, StorageError) as error:
            if self._is_stale(log, work):
                # The files went away, or were cut.
                self.manager.move(log, CleaningMove.ABORT)
            elif isinstance(error, CorruptDataError):
                self._give_up(log, str(error))
            else:
                self.manager.move(log, CleaningMove.FINISH)
                self._on_failure(log.log_directory, str(error))
        else:
            self.manager.move(log, CleaningMove.FINISH)
        if work is not None:
            await self._let_go(log, work)
        if self.manager.state(log.topic_partition) is CleaningState.ABORTED:
            self.manager.move(log, CleaningMove.LET_GO)

    async def _clean_all(self, work: "_Work") -> None:
        log, cleaner = work.due.log, work.cleaner
        await self._drive(cleaner.build_map(), work)
        for group in await self._scheduler.background(cleaner.groups):
            base_offset = group[0].base_offset
            sources = work.take(len(group))
            target = await self._scheduler.background(partial(work.create, base_offset))
            await self._drive(cleaner.clean(group, target, _last_records(log)), work, sources)
            log.local.replace_segments(target.segment, sources, self._clock.wall_ms())
            work.target = None
            work.bytes_after += target.segment.size
        log.local.cleaned_offset = max(log.local.cleaned_offset, cleaner.end_offset)
        self._trace.event(
            "log_cleaned",
            partition=log.topic_partition,
            first_offset=work.due.first_dirty_offset,
            end_offset=cleaner.end_offset,
            bytes_before=work.bytes_before,
            bytes_after=work.bytes_after,
        )

    async def _drive(
        self, walk: Iterator[int], work: "_Work", sources: list[LogSegment] | None = None
    ) -> None:
        """Let a walk go on, slice by slice, as fast as it may."""
        settings = self._settings()

        def slice_of_it() -> int | None:
            done, until_ms = 0, self._clock.monotonic_ms() + SLICE_MS_MAX
            for size in walk:
                done += size
                if self._is_stopping:
                    return done
                if done >= settings.io_buffer_bytes or self._clock.monotonic_ms() >= until_ms:
                    return done
            return None

        began_ms, total = self._clock.monotonic_ms(), 0
        while True:
            done = await self._scheduler.background(slice_of_it)
            if self._is_stopping or self._is_stale(work.due.log, work, sources or []):
                raise _AbortedError
            if done is None:
                return
            total += done
            due_ms = began_ms + int(total * 1000 / settings.bytes_per_second)
            if due_ms > self._clock.monotonic_ms():
                await sleep(self._scheduler, due_ms - self._clock.monotonic_ms())

    def _is_stale(
        self, log: UnifiedLog, work: "_Work | None", sources: list[LogSegment] | None = None
    ) -> bool:
        """Whether the log is not what it was when the cleaner began."""
        if self._logs.get(log.topic_partition) is not log or log.is_closed:
            return True
        if not log.config.is_compacted or self._is_held(log.topic_partition):
            return True
        if work is None:
            return False
        there = {id(segment) for segment in log.segments}
        needed = [*work.sources, *(sources or [])]
        return log.truncations != work.truncations or any(id(it) not in there for it in needed)

    def _give_up(self, log: UnifiedLog, reason: str) -> None:
        self.manager.move(log, CleaningMove.GIVE_UP)
        self._trace.warning(f"{log.topic_partition} is compacted no longer: {reason}")
        self._trace.event("log_uncleanable", partition=log.topic_partition, message=reason)

    async def _let_go(self, log: UnifiedLog, work: "_Work") -> None:
        """Remove what was not finished; if it cannot be, the next start does."""
        try:
            await self._scheduler.background(work.discard)
        except StorageError as error:
            self._trace.warning(f"{log.topic_partition}: leftovers of cleaning stay: {error}")


class _Work:
    """One log's cleaning, as far as it got."""

    def __init__(self, disk: Disk, due: LogToClean, plan: CleaningPlan) -> None:
        self._disk = disk
        self._plan = plan
        self.due = due
        self.cleaner = Cleaner(disk, plan)
        self.truncations = due.log.truncations
        # Those that are still to be cleaned.
        self.sources = due.segments
        self.bytes_before = sum(segment.size for segment in self.sources)
        self.bytes_after = 0
        # The base offset of the segment in the making.
        self.target: int | None = None

    def take(self, count: int) -> list[LogSegment]:
        """The next segments to clean."""
        taken, self.sources = self.sources[:count], self.sources[count:]
        return taken

    def create(self, base_offset: int) -> CleanedSegment:
        """The segment to write to."""
        self.target = base_offset
        return CleanedSegment(self._disk, self._plan.directory, base_offset, self._plan.options)

    def discard(self) -> None:
        """Remove the files of a segment that was not finished."""
        if self.target is not None:
            for suffix in SEGMENT_SUFFIXES:
                name = file_name(self.target, suffix + CLEANED_SUFFIX)
                self._disk.remove(f"{self._plan.directory}/{name}")


def _plan(due: LogToClean, settings: CleanerSettings, now_ms: int) -> CleaningPlan:
    log = due.log
    config = log.config
    return CleaningPlan(
        log.directory,
        tuple(SourceSegment(segment.base_offset, segment.size) for segment in due.segments),
        due.first_dirty_offset,
        due.first_uncleanable_offset,
        tuple(it for segment in log.segments for it in segment.transaction_index.entries()),
        config.segment_bytes,
        segment_options(config),
        config.delete_retention_ms,
        now_ms,
        settings.dedupe_buffer_bytes,
        settings.load_factor,
    )


def _last_records(log: UnifiedLog) -> dict[int, LastRecord]:
    """What of the active producers must not be lost."""
    return {
        producer_id: LastRecord(
            state.batches[-1].last_offset if state.batches else None, state.producer_epoch
        )
        for producer_id, state in log.producers.items()
    }
