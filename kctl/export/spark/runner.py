"""Runs the tasks of an export on Spark: a partition a split, the row of the manifest comes back.

The executors decode and write the files themselves; no record enters the JVM, Spark only finds
them something to do and does it again where one dies. They need kctl: on a cluster it is sent to
them, but numpy, pyarrow and the codecs must be there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kctl.errors import CorruptDataError, KctlError
from kctl.export.export import Plan, Runner, Task, work
from kctl.export.manifest import ManifestRow

_APP_NAME = "kctl export"
# More items than that share tasks: each costs the driver some memory and a few milliseconds.
_TASKS_MAX = 10_000
_DAMAGE = "kctl.errors.CorruptDataError: "


def make_session(conf: Sequence[tuple[str, str]], py_files: Iterable[str] = ()) -> Any:
    """A session in the JVM that the environment names, or that pyspark starts.

    KctlError in Java's words if it cannot be, e.g. on a Java that this Spark does not know.
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
        said = [line.lstrip(": ") for line in lines if line.startswith(": ")]
        raise KctlError(
            f"Spark did not start: {[*said, *lines, type(error).__name__][0]}",
            hint="Spark 4.0 runs on Java 17 and 21, later ones on newer Java too; JAVA_HOME says "
            "which is used",
        ) from error
    return session


# What a task does with a split: (what all know, (its number, the split)) to rows.
Work = Callable[[Task, tuple[int, Any]], Iterable[ManifestRow]]


def work_on_files(task: Task, item: tuple[int, Any]) -> Iterator[ManifestRow]:
    """A split of files is one row."""
    yield work(task, item)


def spark_runner(session: Any, work: Work = work_on_files) -> Runner:
    """A Runner that gives the plan's splits to the session's executors."""

    def run(plan: Plan) -> Iterator[ManifestRow]:
        items = plan.items()
        if not items:
            return
        given = session.sparkContext.parallelize(items, min(len(items), _TASKS_MAX))
        try:
            lines = given.mapPartitionsWithIndex(_Worker(plan.task(), work)).collect()
        except Exception as error:
            raise _as_ours(error) from error
        for line in lines:
            yield ManifestRow.from_json(line)

    return run


def spark_map(
    session: Any, work: Callable[[Any, Callable[[int], object]], Any], items: Sequence[Any]
) -> list[Any]:
    """What `work` returns for each of the items, a task each; it is told a function for progress
    that goes nowhere."""
    if not items:
        return []
    given = session.sparkContext.parallelize(list(items), min(len(items), _TASKS_MAX))
    try:
        found: list[Any] = given.map(_Call(work)).collect()
    except Exception as error:
        raise _as_ours(error) from error
    return found


def completed_tasks(session: Any) -> int | None:
    """How many of the job that runs now are done, None if none runs; another thread may ask."""
    from py4j.protocol import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
        Py4JError,
    )

    tracker = session.sparkContext.statusTracker()
    try:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Py4JError:
        # For a bar this is no reason to fail.
        return None
    done = [stage.numCompletedTasks for stage in stages if stage is not None]
    return sum(done) if done else None


class _Call:
    """Pickled to the executors."""

    def __init__(self, work: Callable[[Any, Callable[[int], object]], Any]) -> None:
        self._work = work

    def __call__(self, item: Any) -> Any:
        return self._work(item, lambda _more: None)


class _Worker:
    """Pickled to the executors; an attempt of Spark's gets a name of its own."""

    def __init__(self, task: Task, work: Work) -> None:
        self._task = task
        self._work = work

    def __call__(self, _index: int, items: Iterable[tuple[int, Any]]) -> Iterator[str]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        task = Task(self._task.options, self._task.out, f"{self._task.run}-{attempt}")
        for item in items:
            yield from (row.to_json() for row in self._work(task, item))


def _as_ours(error: Exception) -> Exception:
    """What went wrong in a task, without the JVM's stack around it."""
    text = str(error)
    if _DAMAGE in text:
        said = text.split(_DAMAGE, 1)[1].splitlines()[0]
        return CorruptDataError(said, hint="--on-damage skip exports all that can be read")
    if "ModuleNotFoundError" in text:
        said = text.split("ModuleNotFoundError: ", 1)[-1].splitlines()[0]
        return KctlError(
            f"An executor lacks a package: {said}",
            hint="install kctl there, or send an environment packed by venv-pack: "
            "--conf spark.archives=env.tar.gz#env --conf spark.pyspark.python=env/bin/python",
        )
    for name in ("StorageError: ", "UsageError: ", "KctlError: "):
        if f"kctl.errors.{name}" in text:
            return KctlError(text.split(f"kctl.errors.{name}", 1)[1].splitlines()[0])
    return KctlError(f"Spark: {text.splitlines()[0] if text else type(error).__name__}")
