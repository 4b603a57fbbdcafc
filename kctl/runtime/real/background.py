"""BackgroundThread: runs jobs off the loop, one after the other, in the order given.

The thread starts with the first job and is a daemon: a process that must end does not wait for
a job, a process that ends in good order calls `close`, which does.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

# A job that runs Python code must not hold the interpreter from the loop for the usual 5 ms.
SWITCH_INTERVAL_SECONDS = 0.0005

Job = Callable[[], object]


class BackgroundThread:
    """A queue of jobs and the thread that empties it."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

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

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


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
