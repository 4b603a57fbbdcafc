"""Runs the tasks of an export on Spark: one task per split, which returns the split's manifest row.

Executors decode records and write files themselves; no record enters the JVM. Spark only schedules
tasks and retries them where an executor dies. Executors need kctl: on a cluster it is sent to them,
but numpy, pyarrow and the codecs must be installed there.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kctl.errors import CorruptDataError, KctlError
from kctl.export.export import Plan, Runner, Task, work
from kctl.export.manifest import ManifestRow
from kctl.export.spark.task_times import TaskTime
from kctl.runtime.clock import Clock

if TYPE_CHECKING:
    from kctl.export.spark.task_counter import TaskCounter

__all__ = ["make_session", "spark_runner"]

_APP_NAME = "kctl export"
# Beyond this number items share tasks: each costs the driver some memory and a few milliseconds.
_TASKS_MAX = 10_000
# What Java's classes raise under a Spark release that does not support their version.
_WRONG_JAVA = (
    "UnsupportedClassVersionError", "UnsupportedOperationException", "IllegalAccessError",
    "InaccessibleObjectException", "ExceptionInInitializerError", "NoClassDefFoundError",
)  # fmt: skip
_JAVA_HINT = (
    "Spark 4.0 runs on Java 17 and 21, later releases also on newer ones; JAVA_HOME selects one"
)
_PYTHON_HINT = (
    "install kctl there, or send an environment packed with venv-pack: --conf "
    "spark.archives=env.tar.gz#env --conf spark.pyspark.python=env/bin/python"
)
_DAMAGE = "kctl.errors.CorruptDataError: "

_NO_PYTHON = re.compile(r'Cannot run program "[^"]*".*')
_NO_MODULE = re.compile(r"No module named '?[\w.]+'?")
_OTHER_PYTHON = re.compile(
    r"worker has (?:a )?different version:? (\S+) than that in driver:? (\d[\d.]*)"
)
_ABORTED = re.compile(r"(?:Application has been killed|Master removed our application).*")


def executor_count(session: Any) -> int | None:
    """Return how many executors the session has, besides its driver; None if it has ended."""
    from py4j.protocol import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        Py4JError,
    )

    try:
        context = session.sparkContext._jsc.sc()  # noqa: SLF001 pyspark has no public API for it
        return len(context.statusTracker().getExecutorInfos()) - 1
    except (Py4JError, OSError, AttributeError):
        return None


def make_session(conf: Sequence[tuple[str, str]], py_files: Iterable[str] = ()) -> Any:
    """Return a session in the JVM that the environment names, or that pyspark starts.

    KctlError with Spark's reason if it does not start.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(_APP_NAME)
    for key, value in conf:
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        for path in py_files:
            session.sparkContext.addPyFile(path)
    except Exception as error:
        lines = str(error).splitlines()
        reason = [line.lstrip(": ") for line in lines if line.startswith(": ")]
        is_java_error = any(name in str(error) for name in _WRONG_JAVA)
        raise KctlError(
            f"Spark did not start: {[*reason, *lines, type(error).__name__][0]}",
            hint=_JAVA_HINT if is_java_error else None,
        ) from error
    return session


def stop_session(session: Any) -> None:
    """End a session, whose JVM may have ended by the signal that ends this process."""
    from py4j.protocol import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        Py4JError,
    )

    with suppress(OSError, Py4JError):
        session.stop()


# Exports a split: (task, (number, split)) to rows.
Work = Callable[[Task, tuple[int, Any]], Iterable[ManifestRow]]


def work_on_files(task: Task, item: tuple[int, Any]) -> Iterator[ManifestRow]:
    """Export a split of segment files, which yields one row."""
    yield work(task, item)


def spark_runner(
    session: Any,
    work: Work = work_on_files,
    clock: Clock | None = None,
    on_tasks: Callable[[Sequence[TaskTime]], object] = lambda _times: None,
    counter: "TaskCounter | None" = None,
) -> Runner:
    """Return a Runner that exports the plan's splits on the session's executors.

    With a `clock`, which is pickled to them, `on_tasks` receives how long each split took, when all
    are done. `counter` counts those that are done.
    """

    def run(plan: Plan) -> Iterator[ManifestRow]:
        items = plan.items()
        if not items:
            return
        given = session.sparkContext.parallelize(items, min(len(items), _TASKS_MAX))
        worker = _Worker(plan.task(), work, clock, counter)
        try:
            done = given.mapPartitionsWithIndex(worker).collect()
        except Exception as error:
            raise task_error(error) from error
        for _number, _elapsed_ms, lines in done:
            yield from map(ManifestRow.from_json, lines)
        if clock is not None:
            on_tasks([_timed(plan.splits[number], elapsed_ms) for number, elapsed_ms, _ in done])

    return run


def _timed(split: Any, elapsed_ms: int) -> TaskTime:
    offsets = f"{split.topic}-{split.partition} offsets {split.first_offset} to {split.end_offset}"
    return TaskTime(offsets, split.size, elapsed_ms)


def spark_map(
    session: Any, work: Callable[[Any, Callable[[int], object]], Any], items: Sequence[Any]
) -> list[Any]:
    """Return `work(item, progress)` for each item, each computed by one task; `progress` does
    nothing."""
    if not items:
        return []
    given = session.sparkContext.parallelize(list(items), min(len(items), _TASKS_MAX))
    try:
        found: list[Any] = given.map(_Call(work)).collect()
    except Exception as error:
        raise task_error(error) from error
    return found


def completed_tasks(session: Any) -> int | None:
    """Return how many tasks of the running job are done, or None if no job runs. Thread-safe."""
    from py4j.protocol import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        Py4JError,
    )

    tracker = session.sparkContext.statusTracker()
    try:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Py4JError:
        # A missing progress figure is not a failure.
        return None
    done = [stage.numCompletedTasks for stage in stages if stage is not None]
    return sum(done) if done else None


class _Call:
    """Applies a function to an item; pickled to the executors."""

    def __init__(self, work: Callable[[Any, Callable[[int], object]], Any]) -> None:
        self._work = work

    def __call__(self, item: Any) -> Any:
        return self._work(item, lambda _more: None)


class _Worker:
    """Exports items and returns their numbers, milliseconds, and rows as JSON; pickled to the
    executors.

    Each attempt of Spark's writes under a unique name.
    """

    def __init__(
        self, task: Task, work: Work, clock: Clock | None, counter: "TaskCounter | None"
    ) -> None:
        self._task = task
        self._work = work
        self._clock = clock
        self._counter = counter

    def __call__(
        self, _index: int, items: Iterable[tuple[int, Any]]
    ) -> Iterator[tuple[int, int, list[str]]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        task = Task(self._task.options, self._task.out, f"{self._task.run}-{attempt}")
        for item in items:
            began_ms = self._now_ms()
            rows = list(self._work(task, item))
            if self._counter is not None:
                self._counter.add(item[1], sum(row.rows for row in rows))
            yield item[0], self._now_ms() - began_ms, [row.to_json() for row in rows]

    def _now_ms(self) -> int:
        return 0 if self._clock is None else self._clock.monotonic_ms()


def task_error(error: Exception) -> Exception:
    """Return the error that a task raised, without the JVM's stack around it."""
    text = str(error)
    if _DAMAGE in text:
        reason = text.split(_DAMAGE, 1)[1].splitlines()[0]
        return CorruptDataError(reason, hint="--on-damage skip exports all readable records")
    if (found := _NO_PYTHON.search(text)) is not None:
        return KctlError(f"An executor cannot start Python: {found[0]}", hint=_PYTHON_HINT)
    if (found := _NO_MODULE.search(text)) is not None:
        return KctlError(f"An executor lacks a package: {found[0]}", hint=_PYTHON_HINT)
    if (found := _OTHER_PYTHON.search(text)) is not None:
        return KctlError(
            f"The executors' Python is {found[1]}, but this command's is {found[2]}",
            hint="--conf spark.pyspark.python=PATH names one of the same version",
        )
    if (found := _ABORTED.search(text)) is not None:
        return KctlError(f"Spark: {found[0]}", hint="see the logs of the cluster's workers")
    for name in ("StorageError: ", "UsageError: ", "KctlError: "):
        if f"kctl.errors.{name}" in text:
            return KctlError(text.split(f"kctl.errors.{name}", 1)[1].splitlines()[0])
    causes = [line.lstrip(": ") for line in text.splitlines() if line.startswith(": ")]
    return KctlError(f"Spark: {[*causes, *text.splitlines(), type(error).__name__][0]}")
