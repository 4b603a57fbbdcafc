"""Connection: live brokers as an executor's task, or the driver's planner, reaches them.

A task is a process of its own, so it makes its runtime itself, for as long as it reads. What is
needed for that is a plain value which pickles.
"""

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.export.export import Task
from kctl.export.live import LiveReader, write_live_split
from kctl.export.live_plan import LiveSplit
from kctl.export.manifest import ManifestRow
from kctl.export.options import ExportOptions
from kctl.records.columnar import RecordColumns

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.runtime.real import RealRuntime

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Connection:
    """Where brokers are, and Apache's client settings, as `AdminClient.connect` takes them."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    timeout_ms: int
    properties: tuple[tuple[str, str], ...] = ()

    def open(self) -> "OpenConnection":
        """Nothing is sent yet; it must be closed."""
        from kctl.admin.admin_client import AdminClient
        from kctl.runtime.real import make_runtime
        from kctl.runtime.trace import NullTrace

        runtime = make_runtime(NullTrace())
        admin = AdminClient.connect(
            runtime, self.bootstrap_servers, self.timeout_ms, dict(self.properties)
        )
        return OpenConnection(runtime, admin)


class OpenConnection:
    """A client and the loop that drives it; a context manager."""

    def __init__(self, runtime: "RealRuntime", admin: "AdminClient") -> None:
        self._runtime = runtime
        self.admin = admin

    def __enter__(self) -> "OpenConnection":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Drive `work` to its end."""
        scheduler = self._runtime.scheduler
        return scheduler.run_until(scheduler.spawn(work))

    def close(self) -> None:
        """Hang up."""
        self.admin.close()
        self._runtime.scheduler.close()


@dataclass(frozen=True, slots=True)
class WorkOnBrokers:
    """What `spark_runner` gives to executors: fetch a split and write its files."""

    connection: Connection

    def __call__(self, task: Task, item: tuple[int, LiveSplit]) -> list[ManifestRow]:
        """The rows of one split."""
        number, split = item

        async def write(admin: "AdminClient") -> list[ManifestRow]:
            attempt = f"{task.run}-{number}"
            rows = write_live_split(admin.router, split, task.options, task.out, attempt)
            return [row async for row in rows]

        with self.connection.open() as opened:
            return opened.run(write(opened.admin))


def fetched(
    connection: Connection, split: LiveSplit, options: ExportOptions
) -> Iterator[RecordColumns]:
    """The records of a split."""
    with connection.open() as opened:
        reader = LiveReader(opened.admin.router, split, options)
        try:
            while reader.position < reader.end:
                yield from opened.run(reader.next())
        finally:
            reader.close()
