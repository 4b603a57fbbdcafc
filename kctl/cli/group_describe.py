"""kctl group describe: how far groups are, once or again and again.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`describeGroups`)
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.failures import DONE, FAILED
from kctl.cli.group_listing import matching_groups, tell_silent_brokers
from kctl.cli.items import did_you_mean, is_pattern
from kctl.cli.output import OutputFormat, Table
from kctl.cli.session import Session
from kctl.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.groups import GroupDescription, GroupList, PartitionLag

_LAG_COLUMNS = (
    "topic", "partition", "committed_offset", "end_offset", "lag", "member", "host", "client",
)  # fmt: skip
_TOPIC_COLUMNS = ("topic", "partition_count", "assigned_count", "lag")
_MEMBER_COLUMNS = ("member", "instance", "client", "host", "partition_count", "assignment")
_WATCHED_FORMATS = (OutputFormat.TABLE, OutputFormat.NDJSON)
# To the upper left corner, and all below it away.
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP", help="Names or globs. [default: all]"),
    ] = None,
    members: Annotated[
        bool, typer.Option("--members", help="The members and what each was assigned.")
    ] = False,
    by_topic: Annotated[
        bool, typer.Option("--by-topic", help="One line a topic, with the lag of all of it.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="How often with --watch.")
    ] = "2s",
) -> int:
    """Show how far groups are: committed offset, end and lag of each partition, who reads it.

    \b
    Examples:
      kctl group describe billing
      kctl group describe billing --members
      kctl group describe billing --by-topic --watch
      kctl group describe -o ndjson
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.units import parse_duration_ms
    from kctl.runtime.future import sleep

    if members and by_topic:
        raise UsageError("Either --members or --by-topic")
    every_ms = parse_duration_ms(every)
    if watch and session.output.format not in _WATCHED_FORMATS:
        raise UsageError(
            f"--watch has no end, which -o {session.output.format} cannot show",
            hint="-o table or -o ndjson",
        )
    if every_ms < 1:
        raise UsageError(f"--every must be at least 1ms, not {every}")
    columns = _MEMBER_COLUMNS if members else _TOPIC_COLUMNS if by_topic else _LAG_COLUMNS

    async def look(admin: "AdminClient") -> int:
        found = _Described()
        await found.look_up(admin, names or [])
        return _show(session, found, columns, is_watched=watch)

    async def keep_looking(admin: "AdminClient") -> None:
        await look(admin)
        while True:
            await sleep(session.runtime.scheduler, every_ms)
            try:
                await look(admin)
            except UnreachableError as error:
                # Brokers come back: whoever watches wants to see that too.
                session.output.say(f"error: {error}")

    if not watch:
        return session.run(look)
    interrupt = Interrupt(session.runtime.scheduler)
    interrupt.run(lambda: session.run(keep_looking, interrupt.guard))
    return interrupt.status


class _Described:
    """Groups and how far each is."""

    def __init__(self) -> None:
        self.groups: list[tuple[GroupDescription, list[PartitionLag]]] = []
        self.missing: dict[str, str | None] = {}
        self.listing: GroupList | None = None

    async def look_up(self, admin: "AdminClient", names: list[str]) -> None:
        """Find the groups that `names` (globs among them; none: all) stand for."""
        described: list[GroupDescription] = []
        exact = [name for name in names if not is_pattern(name)]
        if not names or len(exact) < len(names):
            self.listing = await admin.groups.list_groups()
            globs = [name for name in names if is_pattern(name)]
            listed = matching_groups(self.listing.groups, globs)
            described = await admin.groups.describe_listed(
                [group for group in listed if group.group_id not in exact]
            )
        described += await admin.groups.describe(exact)
        for group in described:
            # A group may exist by its commits alone.
            lags = await admin.groups.lag(group)
            if group.error is not None and not lags:
                self.missing[group.group_id] = None
            else:
                self.groups.append((group, lags))
        if self.missing:
            listing = self.listing or await admin.groups.list_groups()
            known = [group.group_id for group in listing.groups]
            self.missing = {name: did_you_mean(name, known) for name in self.missing}


def _show(
    session: Session, found: _Described, columns: tuple[str, ...], *, is_watched: bool
) -> int:
    """Print what was found; the exit status."""
    from kctl.cli.units import format_instant

    documents = [_document(group, lags) for group, lags in found.groups]
    if is_watched:
        now = format_instant(session.now_ms())
        documents = [{"time": now, **document} for document in documents]
        if session.output.format is OutputFormat.TABLE:
            session.output.write((_CLEAR_SCREEN if sys.stdout.isatty() else "") + f"{now}\n")
    tables = [Table(columns, _rows(item, columns), _heading(item)) for item in documents]
    session.output.show(documents, name="group", tables=tables)
    for name, hint in found.missing.items():
        session.output.say(f"error: No group {name}" + (f"\nhint: {hint}" if hint else ""))
    is_partial = tell_silent_brokers(session, found.listing) if found.listing else DONE
    return FAILED if found.missing else is_partial


def _document(group: "GroupDescription", lags: "list[PartitionLag]") -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator,
        "total_lag": _sum(lags),
        "topics": [
            _topic_row(topic, [lag for lag in lags if lag.partition.topic == topic])
            for topic in dict.fromkeys(lag.partition.topic for lag in lags)
        ],
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "assignment": [
                    {"topic": partition.topic, "partition": partition.partition}
                    for partition in member.partitions
                ],
            }
            for member in group.members
        ],
        "partitions": [_lag_row(lag) for lag in lags],
    }


def _sum(lags: "list[PartitionLag]") -> int | None:
    """Of what is known; None if nothing is."""
    known = [lag.lag for lag in lags if lag.lag is not None]
    return sum(known) if known else None


def _topic_row(topic: str, lags: "list[PartitionLag]") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition_count": len(lags),
        "assigned_count": sum(lag.member is not None for lag in lags),
        "lag": _sum(lags),
    }


def _lag_row(lag: "PartitionLag") -> dict[str, Any]:
    member = lag.member
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed_offset": lag.committed_offset,
        "start_offset": lag.log_start_offset,
        "end_offset": lag.log_end_offset,
        "lag": lag.lag,
        "member": member.member_id if member else None,
        "host": member.host if member else None,
        "client": member.client_id if member else None,
        "error": None if lag.error is None else str(lag.error),
    }


def _rows(document: dict[str, Any], columns: tuple[str, ...]) -> list[dict[str, Any]]:
    key = {_LAG_COLUMNS: "partitions", _TOPIC_COLUMNS: "topics"}.get(columns)
    if key is not None:
        return list(document[key])
    return [
        {
            **member,
            "partition_count": len(member["assignment"]),
            "assignment": [f"{it['topic']}-{it['partition']}" for it in member["assignment"]],
        }
        for member in document["members"]
    ]


def _heading(document: dict[str, Any]) -> str:
    lag = document["total_lag"]
    return (
        f"{document['group']}: {document['state']}, {len(document['members'])} members, "
        f"coordinator {document['coordinator']}, lag {'unknown' if lag is None else lag}"
    )
