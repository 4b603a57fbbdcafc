"""IndexFileMaker: creates the empty index files of new segments in the background.

On a busy disk each takes a millisecond, and none is needed before its segment is closed. Those of
many new logs are created after the logs, a few at a time, so that flushes are not delayed.
"""

from collections.abc import Iterable

from kctl.runtime.disk import Disk
from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler
from kctl.storage.layout import LOG_SUFFIX

# Index files created by one background job.
_FILES_PER_JOB = 32
# How long no segment is created before index files are, and how many files wait for that.
DELAY_MS = 20
FILES_MAX = 20_000


class IndexFileMaker:
    """One for the logs of a broker."""

    def __init__(self, scheduler: Scheduler, disk: Disk) -> None:
        self._scheduler = scheduler
        self._disk = disk
        # Files that have not been created yet.
        self._paths: list[str] = []

    def make_soon(self, paths: Iterable[str]) -> None:
        """Create `paths`, which have the names of their segments, unless they exist."""
        if not self._paths:
            self._scheduler.call_later(DELAY_MS, self._make_if_quiet, 0)
        self._paths += paths

    def _make_if_quiet(self, known: int) -> None:
        """Create the files, or wait on while there are more than `known`."""
        count = len(self._paths)
        if count < FILES_MAX and count > known:
            self._scheduler.call_later(DELAY_MS, self._make_if_quiet, count)
        else:
            self._make_some()

    def _make_some(self) -> None:
        paths = self._paths[:_FILES_PER_JOB]

        def make() -> None:
            for path in paths:
                # The log may have been deleted meanwhile.
                if self._disk.exists(path.rpartition(".")[0] + LOG_SUFFIX):
                    self._disk.open(path, create=True).close()

        def done(_: Future[None]) -> None:
            # A failure recurs, and is handled, when the index is saved.
            del self._paths[: len(paths)]
            if self._paths:
                self._make_some()

        self._scheduler.background(make).add_done_callback(done)
