"""The options that commands with `--spark` share, and a Spark session for the time of a command."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.cli.pipes import write_message
from kctl.cli.session import Session
from kctl.counts import counted
from kctl.errors import KctlError, UsageError, missing_extra
from kctl.lazy_dataclass import dataclass
from kctl.records.bulk import require_bulk

if TYPE_CHECKING:
    from kctl.cli.progress import ProgressBar
    from kctl.export.export import Plan
    from kctl.export.spark.brokers import Connection
    from kctl.runtime.real.spark_gateway import SparkGateway

DEFAULT_MASTER = "local[*]"
_POLL_SECONDS = 0.5
# Time after which a wait for Spark is reported.
_WAIT_SECONDS = 5.0

SparkOption = Annotated[
    bool, Option("--spark", help="Run the tasks on Spark; needs kctl-kafka[spark].")
]
MasterOption = Annotated[str, Option("--master", metavar="URL", help="Spark's master.")]
ConfOption = Annotated[
    list[str] | None,
    Option("--conf", metavar="KEY=VALUE", help="Spark setting; may be repeated."),
]


@dataclass
class SparkOptions:
    """The Spark options of a command."""

    spark: SparkOption = False
    master: MasterOption = DEFAULT_MASTER
    conf: ConfOption = None

    def check(self) -> None:
        """Raise UsageError if Spark options are given without --spark, or --spark without its
        libraries."""
        if not self.spark:
            if self.conf or self.master != DEFAULT_MASTER:
                raise UsageError("--master and --conf go with --spark")
            return
        if find_spec("pyspark") is None:
            raise missing_extra("--spark needs pyspark", "spark")
        require_bulk("--spark", "spark")


@contextmanager
def spark_session(options: SparkOptions, settings: Sequence[str] = ()) -> Iterator[Any]:
    """Yield a Spark session; executors on other machines receive kctl.

    `settings` are KEY=VALUE and override those of --conf.

    Waiting, and what the first start prepares, is reported on stderr. UsageError if --master is not
    a URL of a Spark master, UnreachableError if it does not answer, KctlError if Spark does not
    start.
    """
    from kctl.cli.connect import parse_pairs
    from kctl.export.spark.runner import executor_count, stop_session
    from kctl.runtime.real.background import repeated
    from kctl.runtime.real.spark_gateway import new_class_archive, start_spark_gateway
    from kctl.runtime.real.spark_master import is_local, wait_for_master

    chosen = {
        "spark.master": options.master, "spark.ui.enabled": "false", "spark.log.level": "ERROR",
    }  # fmt: skip
    chosen |= parse_pairs([*(options.conf or ()), *settings], "--conf")
    master = chosen["spark.master"]
    wait_for_master(master, _say)
    pairs = list(chosen.items())
    if (directory := new_class_archive()) is not None:
        _say(
            "starting Spark, for the first time with this Java: its classes are stored in "
            f"{directory} at the end, so that the next start takes less time"
        )
    gateway = start_spark_gateway(pairs)
    try:
        session = _started(gateway, pairs, master)
        gateway.hide()
        no_executor = _Once(f"waiting for executors: {master} has not provided any yet")

        def check_executors() -> None:
            if executor_count(session) == 0:
                no_executor()

        try:
            with nullcontext() if is_local(master) else repeated(check_executors, _WAIT_SECONDS):
                yield session
        finally:
            stop_session(session)
    finally:
        gateway.close()


def _started(gateway: "SparkGateway", pairs: list[tuple[str, str]], master: str) -> Any:
    from kctl.export.spark.runner import make_session
    from kctl.runtime.real.background import repeated
    from kctl.runtime.real.spark_gateway import zip_package
    from kctl.runtime.real.spark_master import is_local

    files = [] if is_local(master) else [zip_package("kctl")]
    with repeated(_Once(f"waiting for Spark to start on {master}"), _WAIT_SECONDS):
        try:
            return make_session(pairs, files)
        except KctlError as error:
            logged = gateway.last_error()
            if logged is None:
                raise
            raise KctlError(f"Spark did not start on {master}: {logged}", hint=error.hint) from None


def spark_connection(session: Session) -> "Connection":
    """Return how executors connect to the command's brokers."""
    from kctl.export.spark.brokers import Connection

    settings = session.settings
    return Connection(
        tuple(settings.bootstrap_servers), settings.timeout_ms, tuple(settings.properties.items())
    )


class _Once:
    """Reports a wait, on its first call only."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_reported = False

    def __call__(self) -> None:
        if not self._is_reported:
            _say(self._what)
            self._is_reported = True


def _say(what: str) -> None:
    write_message(sys.stderr, f"{what}\n")


@contextmanager
def spark_progress(session: Any) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for a job's tasks; yield a function that sets their number."""
    from kctl.cli.progress import ProgressBar
    from kctl.export.spark.runner import completed_tasks
    from kctl.runtime.real.background import repeated

    bar = ProgressBar(1, unit="tasks")

    def update() -> None:
        done = completed_tasks(session)
        if done is not None:
            bar.update(done)

    try:
        with repeated(update, _POLL_SECONDS):
            yield bar.resize
    finally:
        bar.close()


class ExportProgress:
    """The progress bar of an export: bytes of log, or offsets where brokers report no sizes, with
    rate and remaining time, records and tasks."""

    def __init__(self, session: Any) -> None:
        from kctl.export.spark.task_counter import TaskCounter

        self.counter = TaskCounter(session)
        self._bar: ProgressBar | None = None
        self._tasks = 0
        self._has_sizes = False

    def begin(self, plan: "Plan") -> None:
        """Show the bar for a plan's splits."""
        from kctl.cli.progress import ProgressBar

        self._tasks, self._has_sizes = len(plan.splits), plan.size > 0
        offsets = sum(it.end_offset - it.first_offset for it in plan.splits)
        total, unit = (plan.size, None) if self._has_sizes else (offsets, "offsets")
        self._bar = ProgressBar(total, unit=unit)

    def draw(self) -> None:
        """Draw what is done now."""
        if self._bar is not None:
            done = self.counter.done
            detail = f", {counted(done.rows, 'record', ',')}, {done.splits} of {self._tasks} tasks"
            self._bar.update(done.bytes if self._has_sizes else done.offsets, detail=detail)

    def close(self) -> None:
        """Erase the bar."""
        if self._bar is not None:
            self._bar.close()


@contextmanager
def export_progress(session: Any) -> Iterator[ExportProgress]:
    """Show the progress of an export on Spark, while the block runs."""
    from kctl.runtime.real.background import repeated

    shown = ExportProgress(session)
    try:
        with repeated(shown.draw, _POLL_SECONDS):
            yield shown
    finally:
        shown.close()
