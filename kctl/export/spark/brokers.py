"""Connection: how an executor's task, or the driver's planner, connects to live brokers.

A task runs in a separate process, so it creates its own runtime for the time it reads. The
connection's settings are a plain value that can be pickled.
"""

from collections.abc import Coroutine, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.export.export import Task
from kctl.export.live import LiveReader, RecordsGoneError, write_live_split
from kctl.export.live_plan import LiveSplit
from kctl.export.manifest import ManifestRow
from kctl.export.options import ExportOptions
from kctl.export.spark.bounds import SKIP_HINT, DataLossError
from kctl.lazy_dataclass import dataclass
from kctl.records.columnar import RecordColumns

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.runtime.real import RealRuntime

__all__ = ["Connection", "WorkOnBrokers"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Connection:
    """The brokers' addresses and Apache Kafka's client settings, as `AdminClient.connect` takes
    them."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    timeout_ms: int
    # May contain secrets.
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def open(self) -> "OpenConnection":
        """Create a client, which connects on first use and must be closed."""
        from kctl.admin.admin_client import AdminClient

        runtime = new_runtime()
        admin = AdminClient.connect(
            runtime, self.bootstrap_servers, self.timeout_ms, dict(self.properties)
        )
        return OpenConnection(runtime, admin)


def new_runtime() -> "RealRuntime":
    """Return a runtime for a task; its scheduler must be closed."""
    from kctl.runtime.real import make_runtime
    from kctl.runtime.trace import NullTrace

    return make_runtime(NullTrace())


class OpenConnection:
    """A client and the loop that drives it; a context manager."""

    def __init__(self, runtime: "RealRuntime", admin: "AdminClient") -> None:
        self.runtime = runtime
        self.admin = admin

    def __enter__(self) -> "OpenConnection":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to completion and return its result."""
        scheduler = self.runtime.scheduler
        return scheduler.run_until(scheduler.spawn(work))

    def close(self) -> None:
        """Close the client's connections and the loop."""
        self.admin.close()
        self.runtime.scheduler.close()


@dataclass(frozen=True, slots=True)
class WorkOnBrokers:
    """The function that `spark_runner` sends to executors: it fetches a split and writes its
    files."""

    connection: Connection

    def __call__(self, task: Task, item: tuple[int, LiveSplit]) -> list[ManifestRow]:
        """Return the rows of one split."""
        number, split = item

        async def write(admin: "AdminClient") -> list[ManifestRow]:
            attempt = f"{task.run}-{number}"
            rows = write_live_split(admin.router, split, task.options, task.out, attempt)
            return [row async for row in rows]

        with self.connection.open() as opened:
            return opened.run(write(opened.admin))


def fetched(
    connection: Connection, split: LiveSplit, options: ExportOptions, *, skips_deleted: bool
) -> Iterator[RecordColumns]:
    """Yield the records of a split; DataLossError if some no longer exist, unless it
    `skips_deleted`."""
    with connection.open() as opened:
        reader = LiveReader(opened.admin.router, split, options, skips_deleted=skips_deleted)
        try:
            while reader.position < reader.end:
                yield from opened.run(reader.next())
        except RecordsGoneError as error:
            raise DataLossError(str(error), hint=SKIP_HINT) from None
        finally:
            reader.close()
