"""Flusher: makes logs durable off the loop, several at once, each in the order of its appends.

Appends that come while a flush runs share the next one, so the disk determines how many share an
fsync. A failed flush is final for its log: what is on disk is unknown then.

Invariant: a log is part of one running flush at most; a Future is done when all that was appended
to its log before `flush` was called is durable and visible, or has failed.
"""

from collections.abc import Callable
from functools import partial

from kctl.broker07.log import FlushJob, Log07
from kctl.errors import StorageError
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime

# Logs flushed together.
LOGS_PER_FLUSH_MAX = 256


class Flusher:
    """The queue of logs to flush."""

    def __init__(self, runtime: Runtime, on_failure: Callable[[Log07], object]) -> None:
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._on_failure = on_failure
        self._waiting: dict[Log07, Future[None]] = {}
        self._is_running = False

    def flush(self, log: Log07) -> Future[None]:
        """Flush `log`; the Future fails with StorageError."""
        future = self._waiting.get(log)
        if future is None:
            future = self._waiting[log] = self._scheduler.future()
            self._start()
        return future

    def _start(self) -> None:
        if self._is_running or not self._waiting:
            return
        taken = list(self._waiting)[:LOGS_PER_FLUSH_MAX]
        running: list[tuple[Log07, FlushJob, Future[None]]] = []
        for log in taken:
            future = self._waiting.pop(log)
            try:
                log.check_online()
                running.append((log, log.flush_job(), future))
            except StorageError as error:
                future.set_error(error)
        errors: dict[Log07, StorageError] = {}

        def run(log: Log07, job: FlushJob) -> None:
            try:
                log.run(job)
            except StorageError as error:
                errors[log] = error

        self._is_running = True
        jobs = [partial(run, log, job) for log, job, _ in running]
        done = self._scheduler.background_all(jobs)
        done.add_done_callback(lambda _: self._finish(running, errors))

    def _finish(
        self,
        running: list[tuple[Log07, FlushJob, Future[None]]],
        errors: dict[Log07, StorageError],
    ) -> None:
        self._is_running = False
        for log, job, future in running:
            error = errors.get(log)
            if error is None:
                log.flushed(job, self._clock.wall_ms())
                future.set_result(None)
            else:
                log.failure = str(error)
                self._on_failure(log)
                future.set_error(error)
        self._start()
