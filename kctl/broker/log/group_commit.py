"""GroupCommit: shares flushes among all appends that wait for them.

Requests that arrive while a flush runs are served together by the next one, so that the disk
determines how many share an fsync. The files are collected on the loop, fsynced in the background,
several logs in parallel, and the result is recorded on the loop.

A log with many segments that are not durable is flushed in several parts: the files of a part stay
open until it has ended.

A failed fsync is final, because the content of the disk is then unknown: `on_failure` takes the log
directory offline and nothing in it is retried.
"""

from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from typing import NamedTuple

from kctl.broker.log.local_log import FlushJob
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import StorageError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler

# Logs flushed together; each keeps files open meanwhile.
LOGS_PER_FLUSH_MAX = 256
# Segments of one log flushed together: one is written, and others were when it rolled.
SEGMENTS_PER_LOG_MAX = 16
# Segments of all logs flushed together, each of which keeps up to five files open, besides those
# that are written.
SEGMENTS_PER_FLUSH_MAX = 128


@dataclass(slots=True)
class Flushed:
    """The result of flushing logs together."""

    jobs: list[tuple[UnifiedLog, FlushJob]]
    failed: list[tuple[UnifiedLog, StorageError]]
    # How long each fsync took, if it is measured.
    seconds: list[float] = field(default_factory=list)


def flush_together(
    scheduler: Scheduler,
    logs: Iterable[UnifiedLog],
    prepare: Callable[[UnifiedLog], FlushJob],
    clock: Callable[[], float] | None = None,
) -> Future[Flushed]:
    """Run the jobs that `prepare` returns for `logs` in parallel; the caller completes them. With a
    `clock` (seconds) each is measured."""
    flushed = Flushed([], [])
    for log in logs:
        try:
            flushed.jobs.append((log, prepare(log)))
        except StorageError as error:
            flushed.failed.append((log, error))

    def run(log: UnifiedLog, job: FlushJob) -> None:
        began = 0.0 if clock is None else clock()
        try:
            job.run()
        except StorageError as error:
            flushed.failed.append((log, error))
        if clock is not None:
            flushed.seconds.append(clock() - began)

    answer = scheduler.future()
    running = scheduler.background_all([partial(run, log, job) for log, job in flushed.jobs])
    running.add_done_callback(lambda _: answer.set_result(flushed))
    return answer


class _Wait(NamedTuple):
    """Callers that wait until a log is durable up to its end at that time."""

    end: int
    future: Future[None]


# Logs that are flushed, and who waits for it.
_Batch = dict[UnifiedLog, list[_Wait]]


class GroupCommit:
    """The queue of logs to flush; one flush runs at a time."""

    def __init__(
        self,
        scheduler: Scheduler,
        is_deleted: Callable[[UnifiedLog], bool],
        on_failure: Callable[[str, str], object],
    ) -> None:
        """Create a group commit.

        `is_deleted` returns whether a log was deleted with its files; `on_failure` takes the log
        directory that failed and the reason.
        """
        self._scheduler = scheduler
        self._is_deleted = is_deleted
        self._on_failure = on_failure
        # Logs to flush, and the Future that their callers wait for.
        self._waiting: dict[UnifiedLog, Future[None]] = {}
        # Logs of which parts were flushed, and those who wait for more.
        self._unfinished: _Batch = {}
        self._is_running = False
        self._clock: Callable[[], float] | None = None
        self._observe: Callable[[float], object] | None = None

    def measure(self, clock: Callable[[], float], observe: Callable[[float], object]) -> None:
        """Call `observe` with the seconds of each fsync from now on; threads call `clock`."""
        self._clock, self._observe = clock, observe

    def flush_soon(self, log: UnifiedLog) -> Future[None]:
        """Make everything in `log` durable, together with other logs that wait for a flush.

        All callers that wait for one flush share the Future. It fails with StorageError, and the
        directory is then offline.
        """
        future = self._waiting.get(log)
        if future is None:
            future = self._waiting[log] = self._scheduler.future()
        if not self._is_running:
            self._is_running = True
            self._scheduler.call_soon(self._start)
        return future

    def _start(self) -> None:
        batch = self._take()
        logs = [log for log in batch if not log.is_closed]

        def done(flushed: Future[Flushed]) -> None:
            self._finish(batch, flushed.result())

        flushing = flush_together(self._scheduler, logs, _prepare_part, self._clock)
        flushing.add_done_callback(done)

    def _take(self) -> _Batch:
        """Return the logs to flush next; those of which a part was flushed come after others."""
        batch: _Batch = {}
        segments = 0
        for log in (*self._waiting, *self._unfinished):
            if len(batch) == LOGS_PER_FLUSH_MAX or segments >= SEGMENTS_PER_FLUSH_MAX:
                break
            if log in batch:
                continue
            batch[log] = self._unfinished.pop(log, [])
            future = self._waiting.pop(log, None)
            if future is not None:
                batch[log].append(_Wait(log.log_end_offset, future))
            segments += min(log.local.unflushed_segments, SEGMENTS_PER_LOG_MAX) - 1
        return batch

    def _finish(self, batch: _Batch, flushed: Flushed) -> None:
        if self._observe is not None:
            for seconds in flushed.seconds:
                self._observe(seconds)
        # An error of a log that was deleted meanwhile, with its directory, does not count.
        errors = {
            log.log_directory: error for log, error in flushed.failed if not self._is_deleted(log)
        }
        for log_dir, error in errors.items():
            self._on_failure(log_dir, str(error))
        for log, job in flushed.jobs:
            if log.log_directory not in errors and not log.is_closed:
                log.complete_flush(job)
        ends = {log: job.offset for log, job in flushed.jobs if job.active is None}
        for log, waits in batch.items():
            self._answer(log, waits, errors.get(log.log_directory), ends.get(log))
        if self._waiting or self._unfinished:
            self._start()
        else:
            self._is_running = False

    def _answer(
        self, log: UnifiedLog, waits: list[_Wait], error: StorageError | None, end: int | None
    ) -> None:
        """Answer those who waited for a flush of `log`, which ended at `end` if that is a part."""
        for wait in waits:
            if error is not None:
                wait.future.set_error(error)
            elif end is None or wait.end <= end or log.is_closed:
                wait.future.set_result(None)
            else:
                self._unfinished.setdefault(log, []).append(wait)


def _prepare_part(log: UnifiedLog) -> FlushJob:
    return log.prepare_flush(limit=SEGMENTS_PER_LOG_MAX)
