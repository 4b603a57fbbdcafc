"""LogRemoval: takes directories of partitions, and files of logs, out of use and removes them
later.

    rename to NAME.UUID-delete -> fsync of the log directory -> after file.delete.delay.ms: remove

A rename that is not durable is undone by a power loss. The broker would then have a replica that
its controller knows to be deleted, and a topic of the same name would begin with its records; so a
deletion is confirmed only after `make_durable`.

Kafka 2.7 (which does not wait for the fsync): kafka.log.LogManager.asyncDelete
"""

from collections.abc import Callable, Iterator, Sequence

from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.storage.layout import delete_directory_name

# Files that one background job removes: half a millisecond, more where they are large.
FILES_PER_JOB = 16


class LogRemoval:
    """The directories and files of a broker that are about to be removed."""

    def __init__(self, runtime: Runtime, on_failure: Callable[[str, str], object]) -> None:
        """Take `on_failure(log directory, reason)`, called if an fsync fails."""
        self._runtime = runtime
        self._disk = runtime.disk
        self._on_failure = on_failure
        # Log directory -> renames in it; only those with renames that may not be durable.
        self._renames: dict[str, int] = {}

    def rename_away(self, topic_partition: TopicPartition, path: str) -> str:
        """Return the new path of a partition's directory. Raise StorageError."""
        uuid_hex = self._runtime.entropy.random_bytes(16).hex()
        parent = path.rpartition("/")[0]
        renamed = f"{parent}/{delete_directory_name(topic_partition, uuid_hex)}"
        self._disk.rename(path, renamed)
        self._renames[parent] = self._renames.get(parent, 0) + 1
        return renamed

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files or directories in the background, few in each job: flushes that appends wait
        for take their turns between. A failure is only logged."""
        scheduler = self._runtime.scheduler
        removal = self._removing(paths)

        def remove_some() -> bool:
            return next(removal, False)

        def go_on() -> None:
            scheduler.background(remove_some).add_done_callback(report)

        def report(done: Future[bool]) -> None:
            error = done.error()
            if error is not None:
                self._runtime.trace.warning(f"cannot remove {paths[0]}: {error}")
            elif done.result():
                go_on()

        scheduler.call_later(delay_ms, go_on)

    def _removing(self, paths: Sequence[str]) -> Iterator[bool]:
        """Remove files or directories; yield True after every FILES_PER_JOB."""
        disk, removed = self._disk, 0
        for path in paths:
            names = disk.list(path) if disk.is_directory(path) else []
            files = [f"{path}/{name}" for name in names]
            for each in (*(it for it in files if not disk.is_directory(it)), path):
                if removed == FILES_PER_JOB:
                    yield True
                    removed = 0
                removed += 1
                if each == path and disk.is_directory(path):
                    disk.remove_tree(path)
                else:
                    disk.remove(each)

    def make_durable(self) -> Future[bool]:
        """Make all renames so far durable; the result is False if a log directory failed."""
        renames = dict(self._renames)
        future: Future[bool] = self._runtime.scheduler.future()

        def fsync() -> list[tuple[str, str]]:
            failures = []
            for path in renames:
                try:
                    self._disk.fsync_directory(path)
                except StorageError as error:
                    failures.append((path, str(error)))
            return failures

        def done(found: Future[list[tuple[str, str]]]) -> None:
            failures = found.result()
            for path, reason in failures:
                self._on_failure(path, reason)
            for path, count in renames.items():
                if self._renames.get(path) == count:
                    del self._renames[path]
            future.set_result(not failures)

        if renames:
            self._runtime.scheduler.background(fsync).add_done_callback(done)
        else:
            future.set_result(True)
        return future
