"""LogCleaner: cleans logs one at a time, in the background.

The bytes are processed in slices in `scheduler.background`, which also runs the fsyncs that appends
wait for, so slices are short. Between slices the loop checks whether the log has changed since
cleaning began; if so, the output is discarded. A finished segment replaces its sources at once, on
the loop; readers of the sources keep their files open.

Order: the log is flushed, because newer records and markers justify the removal of older ones, and
a power loss must not remove both; the `.cleaned` files are made durable and renamed to `.swap`; the
old segments are renamed to `.deleted`; the new ones get their names; finally the cleaned offset
goes into a checkpoint. A crash before the `.swap` is durable leaves the old segments; after that,
the next start completes the swap.

Failures: a StorageError takes the log directory offline, as elsewhere; a damaged batch makes the
partition uncleanable and logs one line.

Kafka 2.7: kafka.log.LogCleaner; KIP-58, KIP-354
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from kctl.broker.log.cleaner import Cleaner, CleaningPlan, LastRecord, SourceSegment
from kctl.broker.log.cleaner_manager import (
    CleanerManager,
    CleaningMove,
    CleaningState,
    LogToClean,
    cleanable_part,
)
from kctl.broker.log.cleaner_output import CleanedSegment
from kctl.broker.log.local_log import segment_options
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import CorruptDataError, StorageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk
from kctl.runtime.future import Future, Task, sleep
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import done_in_turns
from kctl.storage.layout import CLEANED_SUFFIX, SEGMENT_SUFFIXES, file_name
from kctl.work import Work, parts

# Maximum delay for other work on the same thread, mainly fsyncs.
SLICE_MS_MAX = 5
# Producers of a log whose state is copied in one turn of the loop, about 2 ms.
PRODUCERS_PER_TURN = 2_000


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker's settings; the defaults are Kafka's."""

    # log.cleaner.enable
    is_enabled: bool = True
    # log.cleaner.backoff.ms
    backoff_ms: int = 15_000
    # log.cleaner.dedupe.buffer.size
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    # log.cleaner.io.buffer.load.factor
    load_factor: float = 0.9
    # log.cleaner.io.buffer.size: minimum bytes that a slice processes.
    io_buffer_bytes: int = 512 * 1024
    # log.cleaner.io.max.bytes.per.second
    bytes_per_second: float = float(2**63)


@dataclass(frozen=True, slots=True)
class CleaningFigures:
    """What one cleaning of a log read and wrote, in bytes, and how long it took."""

    bytes_before: int = 0
    bytes_after: int = 0
    took_ms: int = 0
    # The share (0 to 1) of the dedupe buffer that its keys took.
    buffer_share: float = 0.0

    @property
    def recopy_percent(self) -> float:
        """Return the bytes written, in percent of those read (cleaner-recopy-percent)."""
        return 100 * self.bytes_after / self.bytes_before if self.bytes_before else 0.0


class _AbortedError(Exception):
    """The log has changed since cleaning began."""


class LogCleaner:
    """The background task that cleans compacted logs."""

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
        """Create a cleaner.

        `logs` is LogManager's mapping, as it changes; `settings` is called before every log;
        `flush` makes a log durable; `on_failure` takes the log directory that failed and the
        reason; `is_held` returns whether a log must not be cleaned now.
        """
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
        # Of the last log that was cleaned to its end.
        self.last = CleaningFigures()
        self._looked_ms = runtime.clock.monotonic_ms()
        self._is_stopping = False
        self._running: Task[None] | None = None
        # Set while the cleaner waits for work.
        self._resting: Future[None] | None = None

    # --- when --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start cleaning, if the settings enable it."""
        if self._settings().is_enabled:
            self._running = self._scheduler.spawn(self._run(), "log-cleaner")

    async def stop(self) -> None:
        """Abort the current cleaning and release all files."""
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

    @property
    def is_dead(self) -> bool:
        """Return whether it has ended although nothing stopped it."""
        return self._running is not None and self._running.done and not self._is_stopping

    def looked_ms_ago(self) -> int:
        """Return how long ago it last looked for a log to clean."""
        return self._clock.monotonic_ms() - self._looked_ms

    def is_cleaning(self, log: UnifiedLog) -> bool:
        """Return whether the log is being cleaned, so that its segments should not be deleted
        now."""
        return self.manager.state(log.topic_partition) is CleaningState.CLEANING

    # --- one log -----------------------------------------------------------------------------

    async def clean_one(self) -> bool:
        """Clean the dirtiest log; return False if none is due."""
        logs = [log for tp, log in self._logs.items() if not self._is_held(tp)]
        self._looked_ms = self._clock.monotonic_ms()
        found = await done_in_turns(
            self._scheduler, self.manager.filthiest(logs, self._clock.wall_ms())
        )
        if found is None:
            return False
        log = found.log
        if not self._is_stopping and not self._is_stale(log, None):
            # Its segments may be others than those that were looked at.
            due = cleanable_part(log, self._clock.wall_ms())
            if due.is_due:
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
                # The files were deleted or truncated.
                self.manager.move(log, CleaningMove.ABORT)
            elif isinstance(error, CorruptDataError):
                self._mark_uncleanable(log, str(error))
            else:
                self.manager.move(log, CleaningMove.FINISH)
                self._on_failure(log.log_directory, str(error))
        else:
            self.manager.move(log, CleaningMove.FINISH)
        if work is not None:
            await self._release(log, work)
        if self.manager.state(log.topic_partition) is CleaningState.ABORTED:
            self.manager.move(log, CleaningMove.RELEASE)

    async def _clean_all(self, work: "_Work") -> None:
        log, cleaner = work.due.log, work.cleaner
        began_ms = self._clock.monotonic_ms()
        await self._drive(cleaner.build_map(), work)
        # Of this moment: what a producer writes from now on is not cleaned.
        last_records = await done_in_turns(self._scheduler, _last_records(log))
        for group in await self._scheduler.background(cleaner.groups):
            base_offset = group[0].base_offset
            sources = work.take(len(group))
            target = await self._scheduler.background(partial(work.create, base_offset))
            await self._drive(cleaner.clean(group, target, last_records), work, sources)
            log.local.replace_segments(target.segment, sources, self._clock.wall_ms())
            work.target = None
            work.bytes_after += target.segment.size
        log.local.cleaned_offset = max(log.local.cleaned_offset, cleaner.end_offset)
        self.last = CleaningFigures(
            work.bytes_before,
            work.bytes_after,
            self._clock.monotonic_ms() - began_ms,
            cleaner.buffer_share,
        )
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
        """Run a walk slice by slice, at the configured rate."""
        settings = self._settings()

        def run_slice() -> int | None:
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
            done = await self._scheduler.background(run_slice)
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
        """Return whether the log has changed since cleaning began."""
        if self._logs.get(log.topic_partition) is not log or log.is_closed:
            return True
        if not log.config.is_compacted or self._is_held(log.topic_partition):
            return True
        if work is None:
            return False
        there = {id(segment) for segment in log.segments}
        needed = [*work.sources, *(sources or [])]
        return log.truncations != work.truncations or any(id(it) not in there for it in needed)

    def _mark_uncleanable(self, log: UnifiedLog, reason: str) -> None:
        self.manager.move(log, CleaningMove.GIVE_UP)
        self._trace.warning(f"{log.topic_partition} can no longer be compacted: {reason}")
        self._trace.event("log_uncleanable", partition=log.topic_partition, message=reason)

    async def _release(self, log: UnifiedLog, work: "_Work") -> None:
        """Remove unfinished files; if this fails, the next start removes them."""
        try:
            await self._scheduler.background(work.discard)
        except StorageError as error:
            self._trace.warning(
                f"{log.topic_partition}: temporary files of the cleaner remain: {error}"
            )


class _Work:
    """The progress of cleaning one log."""

    def __init__(self, disk: Disk, due: LogToClean, plan: CleaningPlan) -> None:
        self._disk = disk
        self._plan = plan
        self.due = due
        self.cleaner = Cleaner(disk, plan)
        self.truncations = due.log.truncations
        # Segments still to clean.
        self.sources = due.segments
        self.bytes_before = sum(segment.size for segment in self.sources)
        self.bytes_after = 0
        # Base offset of the unfinished segment.
        self.target: int | None = None

    def take(self, count: int) -> list[LogSegment]:
        """Remove and return the next segments to clean."""
        taken, self.sources = self.sources[:count], self.sources[count:]
        return taken

    def create(self, base_offset: int) -> CleanedSegment:
        """Create the segment to write to."""
        self.target = base_offset
        return CleanedSegment(self._disk, self._plan.directory, base_offset, self._plan.options)

    def discard(self) -> None:
        """Remove the files of an unfinished segment."""
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
        tuple(
            segment.transaction_index.content()
            for segment in log.segments
            if not segment.transaction_index.is_empty()
        ),
        config.segment_bytes,
        segment_options(config),
        config.delete_retention_ms,
        now_ms,
        settings.dedupe_buffer_bytes,
        settings.load_factor,
    )


def _last_records(log: UnifiedLog) -> Work[dict[int, LastRecord]]:
    """Return the state of active producers that cleaning must preserve, with a `yield` after every
    PRODUCERS_PER_TURN."""
    found: dict[int, LastRecord] = {}
    for part in parts(list(log.producers.items()), PRODUCERS_PER_TURN):
        if found:
            yield
        for producer_id, state in part:
            last_offset = state.batches[-1].last_offset if state.batches else None
            found[producer_id] = LastRecord(last_offset, state.producer_epoch)
    return found
