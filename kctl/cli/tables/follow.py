"""How kctl export runs: in how many processes, or with --follow, which keeps a table current."""

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import COUNT
from kctl.cli.declaration.declarations import Option
from kctl.cli.metrics_options import MetricsOptions
from kctl.cli.pipes import write_over
from kctl.cli.session import Session
from kctl.cli.tables.spark import SparkOptions, spark_connection, spark_session
from kctl.cli.units import format_bytes, parse_duration_ms, parse_size
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from kctl.admin.admin_client import AdminClient
    from kctl.export.expiry import Expired
    from kctl.export.export import ExportReport, ExportRequest
    from kctl.export.follow import Caught, Follower, FollowSource, SplitWriter
    from kctl.metrics.http_server import MetricsServer
    from kctl.metrics.metrics_port import MetricsPort

DEFAULT_EVERY = "30s"
_MIB = 1024 * 1024

FollowOption = Annotated[
    bool, Option("--follow", help="Keep the table current until Ctrl-C or SIGTERM.")
]
EveryOption = Annotated[
    str, Option("--every", metavar="DURATION", help="With --follow: time between two commits.")
]

JobsOption = Annotated[
    int | None,
    Option("--jobs", "-j", metavar="N", help="Number of processes. [default: one per core]"),
    COUNT,
]
CompactToOption = Annotated[
    str | None,
    Option("--compact-to", metavar="SIZE", help="With --follow: merge smaller Parquet files."),
]

RetentionOption = Annotated[
    str | None,
    Option(
        "--retention", metavar="DURATION", help="Remove days and hours that are older than this."
    ),
]

ExplainOption = Annotated[
    bool, Option("--explain", help="Show what would be read, and write nothing.")
]


@dataclass(frozen=True)
class RunOptions(MetricsOptions):
    """The options about processes, about following a log that grows, and about showing a plan."""

    explain: ExplainOption = False
    jobs: JobsOption = None
    follow: FollowOption = False
    every: EveryOption = DEFAULT_EVERY
    compact_to: CompactToOption = None
    retention: RetentionOption = None

    @property
    def retention_ms(self) -> int | None:
        """Return the age from which days and hours are removed; None: they are not."""
        return None if self.retention is None else parse_duration_ms(self.retention)

    def check(self, offset: str | None) -> None:
        """Raise UsageError for options that do not go together."""
        if not self.follow:
            if self.every != DEFAULT_EVERY or self.compact_to is not None:
                raise UsageError("--every and --compact-to go with --follow")
            if self.metrics_port or self.metrics_tls or self.metrics_token_file:
                raise UsageError(
                    "--metrics-port, --metrics-tls and --metrics-token-file go with --follow"
                )
            return
        if self.explain:
            raise UsageError(
                "--explain shows a single run", hint="leave --follow out to see its first one"
            )
        if self.jobs is not None:
            raise UsageError(
                "--jobs does not go with --follow, which uses one process",
                hint="--spark writes with several",
            )
        if offset is not None and ".." in offset and not offset.endswith(".."):
            raise UsageError(
                f"--follow has no end: {offset}", hint="--offset START, e.g. --offset @-1h"
            )


def follow(
    session: Session, request: "ExportRequest", options: RunOptions, on_spark: SparkOptions
) -> "tuple[ExportReport | None, int]":
    """Follow until Ctrl-C or SIGTERM; return what was added, None if nothing had begun, and the
    exit status of the signal. Raise what Follower.run raises."""
    with _writer(session, request, on_spark) as writer:
        return _follow(session, request, options, writer)


@contextmanager
def _writer(
    session: Session, request: "ExportRequest", on_spark: SparkOptions
) -> "Iterator[SplitWriter | None]":
    """Yield the writer on Spark, or None: the follower's own."""
    if not on_spark.spark:
        yield None
        return
    from kctl.export.spark.follow_writer import SparkWriter

    connection = None if request.sources else spark_connection(session)
    with spark_session(on_spark) as running:
        yield SparkWriter(running, session.runtime.scheduler, connection)


def _follow(
    session: Session,
    request: "ExportRequest",
    options: RunOptions,
    writer: "SplitWriter | None",
) -> "tuple[ExportReport | None, int]":
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.metrics_options import announce
    from kctl.export.follow import Follower
    from kctl.export.follow_sources import BrokerSource, DirectorySource

    line = _Line(session)
    port = options.port()
    every_ms = parse_duration_ms(options.every)
    compact_bytes = None if options.compact_to is None else parse_size(options.compact_to)
    followers: list[Follower] = []

    def started(source: "FollowSource") -> "Coroutine[Any, Any, None]":
        follower = Follower(
            session.runtime, source, request, every_ms=every_ms, writer=writer,
            compact_bytes=compact_bytes, retention_ms=options.retention_ms, on_commit=line.draw,
            on_expired=lambda it: line.say(expired_text(it)), on_problem=line.report,
        )  # fmt: skip
        followers.append(follower)
        return _run(session, follower, port, lambda server: announce(server, interrupt, line.say))

    interrupt = Interrupt(session.runtime.scheduler)
    try:
        if request.sources:
            scheduler = session.runtime.scheduler
            task = scheduler.spawn(started(DirectorySource()))
            interrupt.guard(task)
            interrupt.run(lambda: scheduler.run_until(task))
        else:

            def work(admin: "AdminClient") -> "Coroutine[Any, Any, None]":
                return started(BrokerSource(admin))

            interrupt.run(lambda: session.run(work, interrupt.guard))
    finally:
        line.close()
    return (followers[0].report if followers else None), interrupt.status


def expire(session: Session, request: "ExportRequest", retention_ms: int | None) -> None:
    """Remove all old days and hours after a run, and say how many files; do nothing without
    `retention_ms`. StorageError if the table cannot be changed."""
    if retention_ms is None:
        return
    from kctl.export.expiry import Expired, Expiry
    from kctl.export.manifest import Manifest

    expiry = Expiry(request.out, request.options, retention_ms)
    manifest = Manifest.look(request.out, request.options, f"{request.run}-expiry")
    files = size = 0
    while True:
        found, _paths = expiry.step(manifest, session.now_ms())
        files, size = files + found.files, size + found.bytes
        if found.is_whole:
            break
    if files:
        session.output.say(expired_text(Expired(files, size)))


def expired_text(expired: "Expired") -> str:
    """Return the line that reports what was removed."""
    size = f" ({format_bytes(expired.bytes)})" if expired.bytes else ""
    return f"removed {counted(expired.files, 'file', ',')}{size} of old days and hours"


def _run(
    session: Session,
    follower: "Follower",
    port: "MetricsPort | None",
    on_start: "Callable[[MetricsServer], object]",
) -> "Coroutine[Any, Any, None]":
    """Run a Follower, and serve its metrics meanwhile if there is a port."""
    if port is None:
        return follower.run()
    from kctl.export.follow_metering import run_metered

    return run_metered(session.runtime, follower, port, on_start)


class _Line:
    """The progress: one line that changes on a terminal, otherwise a line per commit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_terminal = sys.stderr.isatty()
        self._drawn = ""
        self._rows = 0

    def draw(self, caught: "Caught") -> None:
        """Show the state after a commit."""
        self._rows += caught.rows
        seconds = max(caught.elapsed_ms, 1) / 1_000
        text = (
            f"committed {counted(caught.rows, 'record', ',')} ({caught.log_bytes / _MIB:,.1f} MiB, "
            f"{caught.rows / seconds:,.0f}/s) of {counted(caught.partitions, 'partition')}; "
            f"lag {counted(caught.lag, 'record', ',')}"
        )
        if caught.dead_letters:
            text += f"; {caught.dead_letters:,} dead letters"
        if not self._is_terminal:
            self._session.output.say(text)
            return
        text = f"{text}; {self._rows:,} in all".ljust(len(self._drawn))
        write_over(sys.stderr, text)
        self._drawn = text

    def report(self, problem: str) -> None:
        """Print a line about what is lost or cannot be read now."""
        self.say(f"error: {problem}")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.close()
        self._session.output.say(text)

    def close(self) -> None:
        """Erase the line."""
        if self._drawn:
            write_over(sys.stderr, " " * len(self._drawn))
            write_over(sys.stderr, "")
            self._drawn = ""
