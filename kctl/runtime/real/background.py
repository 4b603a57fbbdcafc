"""BackgroundThread: runs jobs off the loop, one after the other, in the order given.

A job may be many that wait for the disk side by side, with threads of their own: what is fsynced
together shares the flushes of the disk's cache, of which each takes as long as all of them.

The thread starts with the first job and is a daemon: a process that must end does not wait for
a job, a process that ends in good order calls `close`, which does.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

# A job that runs Python code must not hold the interpreter from the loop for the usual 5 ms.
SWITCH_INTERVAL_SECONDS = 0.0005
# Jobs that wait for the disk at the same time.
SIDE_BY_SIDE_MAX = 8

Job = Callable[[], object]


class BackgroundThread:
    """A queue of jobs and the thread that empties it."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pool = JobPool()

    def submit(self, job: Job) -> None:
        """Run `job` after all that were submitted before; it must catch its own errors."""
        if self._thread is None:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_SECONDS))
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
        """Run `jobs`, which catch their own errors, and wait for all; part of a submitted job."""
        self._pool.run(jobs)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class JobPool:
    """Threads for jobs side by side; they start when there are jobs for them."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(self, jobs: Sequence[Job]) -> None:
        """Run `jobs` and wait for all; one thread may call it, and takes its part."""
        own, others = jobs[:1], jobs[1:]
        while len(self._threads) < min(len(others), SIDE_BY_SIDE_MAX - 1):
            thread = threading.Thread(target=self._work, name="background", daemon=True)
            thread.start()
            self._threads.append(thread)
        for job in others:
            self._jobs.put(job)
        for job in own:
            job()
        for _ in others:
            self._done.get()

    def close(self) -> None:
        """End the threads; nothing runs any more."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            self._done.put(None)


def run_aside(job: Job, name: str) -> None:
    """Run one job that may block for long (a name look-up) on a thread of its own."""
    threading.Thread(target=job, name=name, daemon=True).start()


@contextmanager
def repeated(job: Job, seconds: float) -> Iterator[None]:
    """Run `job` every so often on a thread of its own while the block goes on, which may wait."""
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
