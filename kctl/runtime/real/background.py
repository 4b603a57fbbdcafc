"""BackgroundThread: runs jobs off the loop, one at a time, in the order given.

A job may consist of many jobs that wait for the disk in parallel, on their own threads: concurrent
fsyncs share the flushes of the disk's cache, each of which takes as long as all of them together.

The thread starts with the first job and is a daemon: a process that must end does not wait for a
job; a process that ends cleanly calls `close`, which does.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

# A job that runs Python code must not block the loop for the interpreter's usual 5 ms.
SWITCH_INTERVAL_SECONDS = 0.0005
# Jobs that wait for the disk in parallel.
SIDE_BY_SIDE_MAX = 8
# Threads that compute: one core is left to the loop.
COMPUTE_THREADS_MAX = max(1, min(4, (os.cpu_count() or 1) - 1))

Job = Callable[[], object]


class BackgroundThread:
    """A queue of jobs and the thread that runs them."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pool = JobPool()

    def submit(self, job: Job) -> None:
        """Run `job` after all that were submitted before; it must catch its own errors."""
        if self._thread is None:
            _switch_often()
            self._thread = threading.Thread(target=self._run, name="background", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """Wait until all jobs are done and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
            self._pool.close()

    def run_side_by_side(self, jobs: Sequence[Job]) -> None:
        """Run `jobs`, which catch their own errors, and wait for all; called by a submitted job."""
        self._pool.run(jobs)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class JobPool:
    """Threads for parallel jobs; they start when there are jobs for them."""

    def __init__(self) -> None:
        self._workers = _Workers("background")
        self._done: SimpleQueue[None] = SimpleQueue()

    def run(self, jobs: Sequence[Job]) -> None:
        """Run `jobs` and wait for all; only one thread calls it, and also runs jobs."""
        own, others = jobs[:1], jobs[1:]
        self._workers.grow(min(len(others), SIDE_BY_SIDE_MAX - 1))
        for job in others:
            self._workers.submit(partial(self._run_one, job))
        for job in own:
            job()
        for _ in others:
            self._done.get()

    def close(self) -> None:
        """End the threads; no job runs afterwards."""
        self._workers.close()

    def _run_one(self, job: Job) -> None:
        job()
        self._done.put(None)


class ComputeThreads:
    """Threads for jobs that compute without the interpreter's lock, in any order."""

    def __init__(self) -> None:
        self._workers = _Workers("compute")

    def submit(self, job: Job) -> None:
        """Run `job`, which catches its own errors, on one of the threads."""
        if self._workers.count < COMPUTE_THREADS_MAX:
            _switch_often()
            self._workers.grow(self._workers.count + 1)
        self._workers.submit(job)

    def close(self) -> None:
        """Wait until all jobs are done and end the threads."""
        self._workers.close()


class _Workers:
    """Threads that take jobs from one queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def count(self) -> int:
        """Return the number of threads."""
        return len(self._threads)

    def grow(self, count: int) -> None:
        """Start threads until there are `count`."""
        while len(self._threads) < count:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, job: Job) -> None:
        """Add a job, which catches its own errors, to the queue."""
        self._jobs.put(job)

    def close(self) -> None:
        """Wait until all jobs are done and end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _switch_often() -> None:
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_SECONDS))


def run_aside(job: Job, name: str) -> None:
    """Run one job that may block for long (a name look-up) on a separate thread."""
    threading.Thread(target=job, name=name, daemon=True).start()


@contextmanager
def repeated(job: Job, seconds: float) -> Iterator[None]:
    """Run `job` at intervals on a separate thread while the block runs, which may wait."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            job()

    thread = threading.Thread(target=run, name="repeated", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
