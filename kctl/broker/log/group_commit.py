"""GroupCommit: whoever wants a log to be durable waits for a flush that many share.

What is asked for while a flush runs is served together by the next one, so the disk decides how
many share an fsync. The files are named on the loop, fsynced in `scheduler.background`, and what
that made durable is noted on the loop again.

A failed fsync is final: nobody knows what is on the disk then, so `on_failure` takes the log
directory offline and nothing in it is tried again.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from kctl.broker.log.local_log import FlushJob
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import StorageError
from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler

# Logs flushed together; each keeps files open meanwhile.
LOGS_PER_FLUSH_MAX = 256

# Logs to be flushed, and the Future of whoever waits for each.
_Waiting = dict[UnifiedLog, Future[None]]


class GroupCommit:
    """See the module."""

    def __init__(
        self,
        scheduler: Scheduler,
        is_deleted: Callable[[UnifiedLog], bool],
        on_failure: Callable[[str, str], object],
    ) -> None:
        """`is_deleted` tells whether a log has gone and taken its files along; `on_failure` gets
        the log directory that failed, and why."""
        self._scheduler = scheduler
        self._is_deleted = is_deleted
        self._on_failure = on_failure
        self._waiting: _Waiting = {}
        self._is_running = False

    def flush_soon(self, log: UnifiedLog) -> Future[None]:
        """Make all that `log` has now durable, together with whatever else waits for that.

        The Future is the same for all who wait for one flush. It fails with StorageError, and the
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
        batch = dict(islice(self._waiting.items(), LOGS_PER_FLUSH_MAX))
        for log in batch:
            del self._waiting[log]
        jobs: list[tuple[UnifiedLog, FlushJob]] = []
        failed: list[tuple[UnifiedLog, StorageError]] = []
        for log in batch:
            try:
                if not log.is_closed:
                    jobs.append((log, log.prepare_flush()))
            except StorageError as error:
                failed.append((log, error))

        def run() -> None:
            for log, job in jobs:
                try:
                    job.run()
                except StorageError as error:
                    failed.append((log, error))

        def done(_: Future[None]) -> None:
            # A log that was deleted meanwhile has taken its directory along.
            kept = [(log, error) for log, error in failed if not self._is_deleted(log)]
            self._finish(batch, jobs, kept)

        self._scheduler.background(run).add_done_callback(done)

    def _finish(
        self,
        batch: _Waiting,
        jobs: Sequence[tuple[UnifiedLog, FlushJob]],
        failed: Sequence[tuple[UnifiedLog, StorageError]],
    ) -> None:
        errors = {log.log_directory: error for log, error in reversed(failed)}
        for log_dir, error in errors.items():
            self._on_failure(log_dir, str(error))
        for log, job in jobs:
            if log.log_directory not in errors and not log.is_closed:
                log.complete_flush(job)
        for log, future in batch.items():
            error_of_log = errors.get(log.log_directory)
            if error_of_log is None:
                future.set_result(None)
            else:
                future.set_error(error_of_log)
        if self._waiting:
            self._start()
        else:
            self._is_running = False
