"""GroupCommit: whoever wants a log to be durable waits for a flush that many share.

What is asked for while a flush runs is served together by the next one, so the disk decides how
many share an fsync. The files are named on the loop, fsynced in `scheduler.background`, and what
that made durable is noted on the loop again.

A failed fsync is final: nobody knows what is on the disk then, so `on_failure` takes the log
directory offline and nothing in it is tried again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kctl.broker.log.local_log import FlushJob
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import StorageError
from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler


@dataclass(slots=True)
class _Batch:
    """Logs that wait for the next flush, and who waits for it."""

    logs: dict[UnifiedLog, None] = field(default_factory=dict)
    waiting: list[Future[None]] = field(default_factory=list)


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
        self._next = _Batch()
        self._is_running = False

    def flush_soon(self, log: UnifiedLog) -> Future[None]:
        """Make all that `log` has now durable, together with whatever else waits for that.

        The Future fails with StorageError, and the directory is then offline.
        """
        future: Future[None] = self._scheduler.future()
        self._next.logs[log] = None
        self._next.waiting.append(future)
        if not self._is_running:
            self._is_running = True
            self._scheduler.call_soon(self._start)
        return future

    def _start(self) -> None:
        batch, self._next = self._next, _Batch()
        jobs: list[tuple[UnifiedLog, FlushJob]] = []
        failed: list[tuple[UnifiedLog, StorageError]] = []
        for log in batch.logs:
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
        batch: _Batch,
        jobs: Sequence[tuple[UnifiedLog, FlushJob]],
        failed: Sequence[tuple[UnifiedLog, StorageError]],
    ) -> None:
        bad = {log.log_directory for log, _ in failed}
        for log, error in failed:
            self._on_failure(log.log_directory, str(error))
        for log, job in jobs:
            if log.log_directory not in bad and not log.is_closed:
                log.complete_flush(job)
        for future in batch.waiting:
            if failed:
                future.set_error(failed[0][1])
            else:
                future.set_result(None)
        if self._next.logs:
            self._start()
        else:
            self._is_running = False
