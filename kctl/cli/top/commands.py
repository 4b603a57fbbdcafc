"""kctl top: what a cluster does, live: topics, groups, brokers, clients, quotas, mirrors."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.output import OutputFormat
from kctl.cli.session import Session
from kctl.cli.top.live import Live, look_at_twice, rows_of
from kctl.cli.top.screen import KEYS, Screen, View
from kctl.cli.units import parse_duration_ms
from kctl.counts import is_whole_number
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.broker_metrics import MetricsSource

_PORT_MAX = 65_535

ViewArgument = Annotated[
    View, Argument(metavar="VIEW", help="topics, groups, brokers, clients, quotas or mirrors.")
]
EveryOption = Annotated[str, Option("--every", metavar="DURATION", help="Interval of updates.")]
OnceOption = Annotated[
    bool,
    Option("--once", help="Print the rates of one interval, and end; also without a terminal."),
]
MetricsOption = Annotated[
    list[str] | None,
    Option(
        "--metrics",
        metavar="URL",
        help="Read /metrics of a broker or mirror: a URL, HOST:PORT, or :PORT for each broker.",
    ),
]
MetricsTokenOption = Annotated[
    str | None,
    Option("--metrics-token-file", metavar="PATH", help="The bearer token that /metrics asks for."),
]
MetricsCaOption = Annotated[
    str | None,
    Option(
        "--metrics-ca", metavar="PATH", help="Read /metrics by https, and trust these CAs (PEM)."
    ),
]


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "top", READS)(top)


def top(
    session: Session,
    view: ViewArgument = View.TOPICS,
    every: EveryOption = "2s",
    once: OnceOption = False,
    metrics: MetricsOption = None,
    metrics_token_file: MetricsTokenOption = None,
    metrics_ca: MetricsCaOption = None,
) -> int:
    """Show what a cluster does, live: the rates of topics and brokers, the lag of groups.

    Works with any cluster: rates in records are differences of offsets, those in bytes of the sizes
    of logs, and a group's rate is what it commits. Clients are the members of groups: brokers list
    no others. With --metrics, rates in bytes are the brokers' own, there are those of reading, and
    the view of quotas shows who is throttled.

    Mirrors are those into the cluster: their rates are by what they keep there. With --metrics and
    the addresses of their --metrics-port, there are lag, bytes, losses and stopped partitions.

    \b
    Keys:
      tab  the next view             s  sort by the next column, r  the other way
      /    filter by name            p  pause
      up, down, page up, page down  move
      enter  the partitions of a topic, group or mirror, escape  back
      q    quit

    \b
    Examples:
      kctl top
      kctl top groups --every 5s
      kctl top brokers --once -o json
      kctl top brokers --metrics :9404
      kctl top mirrors --metrics mirror-1:9405 --metrics mirror-2:9405
    """
    source = metrics_source(metrics, metrics_token_file, metrics_ca)
    return show(session, view, every, source, once=once)


def metrics_source(
    places: list[str] | None, token_file: str | None, ca_file: str | None
) -> "MetricsSource | None":
    """Return where metrics are read; None without --metrics. Raise UsageError for options that
    make no sense."""
    if not places:
        if token_file or ca_file:
            raise UsageError("--metrics-token-file and --metrics-ca need --metrics")
        return None
    from kctl.admin.broker_metrics import MetricsSource
    from kctl.cli.text_files import read_text, read_token
    from kctl.configs.urls import check_metrics_url

    token = read_token(token_file) if token_file else ""
    if ca_file:
        read_text(ca_file)
    for place in places:
        if not place.startswith(":"):
            url = place if "://" in place else f"http://{place}"
            check_metrics_url(url, has_secret=False)
        elif not is_whole_number(place[1:], _PORT_MAX):
            raise UsageError(f"--metrics {place}: not a port", hint="e.g. --metrics :9404")
    return MetricsSource(tuple(places), f"Bearer {token}" if token else "", ca_file or "")


def show(
    session: Session, view: View, every: str, source: "MetricsSource | None", *, once: bool
) -> int:
    """Show a view, live or once."""
    every_ms = parse_duration_ms(every)
    if every_ms < 1:
        raise UsageError(f"--every must be at least 1ms, not {every}")
    if once:
        return _show_once(session, view, every_ms, source)
    if session.output.format is not OutputFormat.TABLE:
        raise UsageError(f"-o {session.output.format} needs --once")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("kctl top needs a terminal", hint="add --once")
    return _run(session, view, every_ms, source)


def _show_once(session: Session, view: View, every_ms: int, source: "MetricsSource | None") -> int:
    from kctl.cli.interrupt import Interrupt

    interrupt = Interrupt(session.runtime.scheduler)
    found = interrupt.run(
        lambda: session.run(
            lambda admin: look_at_twice(admin, view, every_ms, source),
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
    if session.output.format is OutputFormat.TABLE:
        session.output.write("".join(f"{it}\n" for it in screen.table(session.output.width)))
        return DONE
    documents = [_rounded(row) for row in screen.shown()]
    session.output.show(documents, screen.figures(), name=KEYS[view][0])
    return DONE


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: round(it, 3 if key in ("share", "busy") else 1) if isinstance(it, float) else it
        for key, it in row.items()
    }


def _run(session: Session, view: View, every_ms: int, source: "MetricsSource | None") -> int:
    from kctl.cli.interrupt import Interrupt

    screen = Screen()
    screen.choose(view)
    interrupt = Interrupt(session.runtime.scheduler)

    interrupt.run(lambda: session.run(Live(session, screen, every_ms, source).run, interrupt.guard))
    return interrupt.status
