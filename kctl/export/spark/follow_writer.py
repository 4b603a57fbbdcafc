"""SparkWriter: has Spark's executors write the splits of a Follower's rounds.

The Follower decides what a round contains and commits it, as without Spark; the splits that it
hands over at once are the tasks of one job. A task writes its split as WriterHere writes it in the
driver, so failures that pass are reported to the Follower instead of failing the job. Each attempt
of Spark's writes under a name of its own, and only one of them is reported and committed.

A cancelled Follower cancels the job. What its tasks completed stays in tmp, where the next run
finds it.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kctl.export.export import ExportRequest
from kctl.export.follow import FollowSource, Outcome, WriterHere
from kctl.export.follow_sources import BrokerSource, DirectorySource
from kctl.export.live_plan import LiveSplit
from kctl.export.spark.brokers import Connection, new_runtime
from kctl.export.spark.runner import task_error
from kctl.export.splits import Split
from kctl.lazy_dataclass import dataclass
from kctl.runtime.future import CancelledError

if TYPE_CHECKING:
    from kctl.runtime.scheduler import Scheduler

__all__ = ["SparkWriter"]

_JOB = "kctl export --follow"


class SparkWriter:
    """Writes as many splits at once as Spark has cores; `spark.default.parallelism` sets another
    number."""

    def __init__(
        self, session: Any, scheduler: "Scheduler", connection: Connection | None = None
    ) -> None:
        """Without a `connection` the splits are of files, which all executors must see."""
        self._context = session.sparkContext
        self._scheduler = scheduler
        self._connection = connection

    def width(self) -> int:
        """See SplitWriter."""
        return int(self._context.defaultParallelism)

    async def write(
        self, request: ExportRequest, splits: Sequence[Split | LiveSplit], attempt: str
    ) -> AsyncIterator[Outcome]:
        """See SplitWriter. KctlError if the job fails."""
        # The registry is the driver's; the options have the schemas of this round.
        tasks = _Tasks(replace(request, schemas=None), attempt, self._connection)
        job = self._scheduler.background(lambda: self._collect(tasks, list(splits), attempt))
        try:
            outcomes = await job
        except CancelledError:
            # The driver's JVM may have ended by the same signal.
            with suppress(Exception):
                self._context.cancelJobGroup(attempt)
            raise
        except Exception as error:
            raise task_error(error) from error
        yield Outcome(
            [row for each in outcomes for row in each.rows],
            [it for each in outcomes for it in each.postponed],
        )

    def _collect(
        self, tasks: "_Tasks", splits: list[Split | LiveSplit], group: str
    ) -> list[Outcome]:
        self._context.setJobGroup(group, _JOB, interruptOnCancel=True)
        given = self._context.parallelize(splits, len(splits))
        found: list[Outcome] = given.mapPartitionsWithIndex(tasks).collect()
        return found


@dataclass(frozen=True)
class _Tasks:
    """Writes splits on an executor; pickled to it."""

    request: ExportRequest
    attempt: str
    connection: Connection | None

    def __call__(self, number: int, splits: Iterable[Split | LiveSplit]) -> Iterator[Outcome]:
        from pyspark import TaskContext

        context = TaskContext.get()
        run = context.taskAttemptId() if context is not None else 0
        for split in splits:
            yield self._written(split, f"{self.attempt}-{number}-{run}")

    def _written(self, split: Split | LiveSplit, attempt: str) -> Outcome:
        with self._open() as (source, scheduler):

            async def write() -> list[Outcome]:
                outcomes = WriterHere(source).write(self.request, [split], attempt)
                return [each async for each in outcomes]

            found: list[Outcome] = scheduler.run_until(scheduler.spawn(write()))
        return Outcome(
            [row for each in found for row in each.rows],
            [it for each in found for it in each.postponed],
        )

    @contextmanager
    def _open(self) -> Iterator[tuple[FollowSource, Any]]:
        if self.connection is not None:
            with self.connection.open() as opened:
                yield BrokerSource(opened.admin), opened.runtime.scheduler
            return
        scheduler = new_runtime().scheduler
        try:
            yield DirectorySource(), scheduler
        finally:
            scheduler.close()
