"""How kctl export runs: in how many processes, or with --follow, which keeps a table current."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import COUNT
from kctl.cli.declaration.declarations import Option
from kctl.cli.pipes import write_over
from kctl.cli.session import Session
from kctl.cli.tables.spark import SparkOptions
from kctl.cli.units import parse_duration_ms, parse_size
from kctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from kctl.admin.admin_client import AdminClient
    from kctl.export.export import ExportReport, ExportRequest
    from kctl.export.follow import Caught, FollowSource

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

ExplainOption = Annotated[
    bool, Option("--explain", help="Show what would be read, and write nothing.")
]


@dataclass
class RunOptions:
    """The options about processes, about following a log that grows, and about showing a plan."""

    explain: ExplainOption = False
    jobs: JobsOption = None
    follow: FollowOption = False
    every: EveryOption = DEFAULT_EVERY
    compact_to: CompactToOption = None

    def check(
        self,
        on_spark: SparkOptions,
        offset: str | None,
    ) -> None:
        """Raise UsageError for options that do not go together."""
        if not self.follow:
            if self.every != DEFAULT_EVERY or self.compact_to is not None:
                raise UsageError("--every and --compact-to go with --follow")
            return
        if self.explain:
            raise UsageError(
                "--explain shows a single run", hint="leave --follow out to see its first one"
            )
        if on_spark.spark:
            raise UsageError(
                "--follow runs without Spark",
                hint="leave --spark out, or read a stream with Spark's source kctl",
            )
        if self.jobs is not None:
            raise UsageError("--jobs does not go with --follow, which uses one process")
        if offset is not None and ".." in offset and not offset.endswith(".."):
            raise UsageError(
                f"--follow has no end: {offset}", hint="--offset START, e.g. --offset @-1h"
            )


def follow(session: Session, request: "ExportRequest", options: RunOptions) -> "ExportReport":
    """Follow until Ctrl-C or SIGTERM and return what was added. Raise what Follower.run raises."""
    from kctl.cli.interrupt import Interrupt
    from kctl.export.follow import Follower
    from kctl.export.follow_sources import BrokerSource, DirectorySource

    line = _Line(session)
    every_ms = parse_duration_ms(options.every)
    compact_bytes = None if options.compact_to is None else parse_size(options.compact_to)
    followers: list[Follower] = []

    def started(source: "FollowSource") -> "Coroutine[Any, Any, None]":
        follower = Follower(
            session.runtime, source, request, every_ms=every_ms, compact_bytes=compact_bytes,
            on_commit=line.draw, on_problem=line.report,
        )  # fmt: skip
        followers.append(follower)
        return follower.run()

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
    return followers[0].report


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
            f"committed {caught.rows:,} records ({caught.log_bytes / _MIB:,.1f} MiB, "
            f"{caught.rows / seconds:,.0f}/s) of {caught.partitions} partitions; "
            f"lag {caught.lag:,} records"
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
        self.close()
        self._session.output.say(f"error: {problem}")

    def close(self) -> None:
        """Erase the line."""
        if self._drawn:
            write_over(sys.stderr, " " * len(self._drawn))
            write_over(sys.stderr, "")
            self._drawn = ""
