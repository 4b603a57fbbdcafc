"""kctl top: what a cluster does, live: topics, groups, brokers, clients."""

import sys
from typing import Annotated, Any

from kctl.cli.declaration.command import READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.output import OutputFormat
from kctl.cli.session import Session
from kctl.cli.top.live import WITH_GROUPS, Live, rows_of
from kctl.cli.top.screen import COLUMNS, KEYS, Screen, View
from kctl.cli.units import parse_duration_ms
from kctl.errors import UsageError

ViewArgument = Annotated[View, Argument(metavar="VIEW", help="topics, groups, brokers or clients.")]
EveryOption = Annotated[str, Option("--every", metavar="DURATION", help="Interval of updates.")]
OnceOption = Annotated[
    bool,
    Option("--once", help="Print the rates of one interval, and end; also without a terminal."),
]


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "top", READS)(top)


def top(
    session: Session,
    view: ViewArgument = View.TOPICS,
    every: EveryOption = "2s",
    once: OnceOption = False,
) -> int:
    """Show what a cluster does, live: the rates of topics and brokers, the lag of groups.

    Works with any cluster: rates in records are differences of offsets, those in bytes of the sizes
    of logs, and a group's rate is what it commits. Clients are the members of groups: brokers list
    no others.

    \b
    Keys:
      tab  the next view             s  sort by the next column, r  the other way
      /    filter by name            p  pause
      up, down, enter  the partitions of a topic or group, escape  back
      q    quit

    \b
    Examples:
      kctl top
      kctl top groups --every 5s
      kctl top brokers --once -o json
    """
    every_ms = parse_duration_ms(every)
    if every_ms < 1:
        raise UsageError(f"--every must be at least 1ms, not {every}")
    if once:
        return _show_once(session, view, every_ms)
    if session.output.format is not OutputFormat.TABLE:
        raise UsageError(f"-o {session.output.format} needs --once")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("kctl top needs a terminal", hint="add --once")
    return _run(session, view, every_ms)


def _show_once(session: Session, view: View, every_ms: int) -> int:
    from kctl.admin.cluster_activity import look_twice
    from kctl.cli.interrupt import Interrupt

    interrupt = Interrupt(session.runtime.scheduler)
    found = interrupt.run(
        lambda: session.run(
            lambda admin: look_twice(admin, every_ms, with_groups=view in WITH_GROUPS),
            interrupt.guard,
        )
    )
    if found is None:
        return interrupt.status
    before, now = found
    for note in now.notes:
        session.output.say(f"note: {note}")
    screen = Screen()
    screen.choose(view)
    screen.update(rows_of(view, before, now))
    documents = [_rounded(row) for row in screen.shown()]
    columns = [it for it in COLUMNS[view] if it != "history"]
    session.output.show(documents, columns, name=KEYS[view][0])
    return DONE


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(it, 1) if isinstance(it, float) else it for key, it in row.items()}


def _run(session: Session, view: View, every_ms: int) -> int:
    from kctl.cli.interrupt import Interrupt

    screen = Screen()
    screen.choose(view)
    interrupt = Interrupt(session.runtime.scheduler)

    interrupt.run(lambda: session.run(Live(session, screen, every_ms).run, interrupt.guard))
    return interrupt.status
