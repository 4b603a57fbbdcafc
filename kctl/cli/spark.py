"""What commands with `--spark` share: its options, and a session that ends with the command."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from kctl.errors import UsageError

DEFAULT_MASTER = "local[*]"
_LOOK_SECONDS = 0.5

SparkOption = Annotated[
    bool, typer.Option("--spark", help="Let Spark run the tasks; needs kctl[spark].")
]
MasterOption = Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master.")]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class SparkWords:
    """The options together."""

    is_wanted: bool = False
    master: str = DEFAULT_MASTER
    conf: list[str] | None = None


def absolute(paths: Iterable[str]) -> list[str]:
    """The paths as executors understand them, whose directory is another."""
    return [str(Path.cwd() / path) for path in paths]


def check_spark_options(master: str, conf: list[str] | None, *, is_wanted: bool) -> None:
    """UsageError if they are given without --spark."""
    if not is_wanted and (conf or master != DEFAULT_MASTER):
        raise UsageError("--master and --conf go with --spark")


@contextmanager
def spark_session(master: str, conf: list[str] | None) -> Iterator[Any]:
    """A session of Spark; executors that are not of this process get kctl."""
    from kctl.cli.connect import parse_pairs
    from kctl.export.spark.runner import make_session
    from kctl.runtime.real.spark_gateway import start_spark_gateway, zip_package

    settings = {"spark.master": master, "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    settings |= parse_pairs(conf or [], "--conf")
    pairs = list(settings.items())
    gateway = start_spark_gateway(pairs)
    try:
        is_local = settings["spark.master"].split("[")[0] == "local"
        session = make_session(pairs, [] if is_local else [zip_package("kctl")])
        gateway.hide()
        try:
            yield session
        finally:
            session.stop()
    finally:
        gateway.close()


@contextmanager
def spark_progress(session: Any) -> Iterator[Callable[[int], None]]:
    """A bar of a job's tasks while it runs; what comes is to be told how many there are."""
    from kctl.cli.progress import ProgressBar
    from kctl.export.spark.runner import completed_tasks
    from kctl.runtime.real.background import repeated

    bar = ProgressBar(1, unit="tasks")

    def look() -> None:
        done = completed_tasks(session)
        if done is not None:
            bar.update(done)

    try:
        with repeated(look, _LOOK_SECONDS):
            yield bar.resize
    finally:
        bar.close()
