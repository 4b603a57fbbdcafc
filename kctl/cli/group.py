"""kctl group: list, describe, reset-offsets, delete-offsets, delete."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import DANGEROUS, READS, remote_command
from kctl.cli.failures import DONE, FAILED
from kctl.cli.group_delete_offsets import delete_offsets
from kctl.cli.group_reset import reset_offsets
from kctl.cli.items import did_you_mean, is_pattern, matching, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.groups import GroupDescription, GroupList, GroupListing, PartitionLag

app = typer.Typer(rich_markup_mode=None)
remote_command(app, "reset-offsets", DANGEROUS)(reset_offsets)
remote_command(app, "delete-offsets", DANGEROUS)(delete_offsets)


@remote_command(app, "list", READS)
def list_groups(
    session: Session,
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="PATTERN", help="Names or globs.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in it: Stable, Empty, ..."),
    ] = None,
) -> int:
    """List consumer groups.

    \b
    Examples:
      kctl group list
      kctl group list --state Empty -o name
    """
    found = session.run(lambda admin: admin.groups.list_groups(state or []))
    documents = [
        {
            "group": group.group_id,
            "state": group.state or None,
            "protocol_type": group.protocol_type or None,
            "coordinator": group.coordinator,
        }
        for group in _matching_groups(found.groups, patterns or [])
    ]
    session.output.show(documents, ["group", "state", "protocol_type", "coordinator"], name="group")
    return _tell_silent_brokers(session, found)


@remote_command(app, "describe", READS)
def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP", help="Names or globs. [default: all]"),
    ] = None,
    members: Annotated[
        bool, typer.Option("--members", help="The members and what each was assigned.")
    ] = False,
) -> int:
    """Show how far groups are: committed offset, end and lag of each partition, who reads it.

    \b
    Examples:
      kctl group describe billing
      kctl group describe billing --members
      kctl group describe -o ndjson
    """

    async def work(admin: "AdminClient") -> "_Described":
        found = _Described()
        await found.look_up(admin, names or [])
        return found

    found = session.run(work)
    documents = [_document(group, lags) for group, lags in found.groups]
    if members:
        tables = [Table(_MEMBER_COLUMNS, _member_rows(item), _heading(item)) for item in documents]
    else:
        tables = [Table(_LAG_COLUMNS, item["partitions"], _heading(item)) for item in documents]
    session.output.show(documents, name="group", tables=tables)
    for name, hint in found.missing.items():
        session.output.say(f"error: No group {name}" + (f"\nhint: {hint}" if hint else ""))
    is_partial = _tell_silent_brokers(session, found.listing) if found.listing else DONE
    return FAILED if found.missing else is_partial


@remote_command(app, "delete", DANGEROUS)
def delete(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Names or globs.")],
) -> int:
    """Delete groups that have no members, and with them what they committed.

    \b
    Examples:
      kctl group delete billing --yes
      kctl group delete 'test-*' --dry-run
    """

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        wanted = list(dict.fromkeys(names))
        if any(map(is_pattern, wanted)):
            listing = await admin.groups.list_groups()
            exact = [name for name in wanted if not is_pattern(name)]
            globs = [name for name in wanted if is_pattern(name)]
            found = matching([group.group_id for group in listing.groups], globs)
            wanted = list(dict.fromkeys([*exact, *found]))
        described = await admin.groups.describe(wanted)
        broken = [row("group", it.group_id, "", it.error) for it in described if it.error]
        present = [group for group in described if not group.error]
        if session.dry_run:
            return broken + [_would_delete(group) for group in present]
        plan = [
            {"group": it.group_id, "state": it.state, "members": len(it.members)} for it in present
        ]
        question = f"Delete {len(present)} group{'' if len(present) == 1 else 's'}?"
        if present and not session.confirm(Table(["group", "state", "members"], plan), question):
            return None
        results = await admin.groups.delete([group.group_id for group in present])
        return broken + [row("group", item.group_id, "deleted", item.error) for item in results]

    rows = session.run(work)
    return DONE if rows is None else show_results(session, rows, "group")


_LAG_COLUMNS = (
    "topic", "partition", "committed_offset", "end_offset", "lag", "member", "host", "client",
)  # fmt: skip
_MEMBER_COLUMNS = ("member", "instance", "client", "host", "partition_count", "assignment")


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
            listed = _matching_groups(self.listing.groups, globs)
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


def _matching_groups(
    groups: "Sequence[GroupListing]", patterns: Sequence[str]
) -> "list[GroupListing]":
    wanted = set(matching([group.group_id for group in groups], patterns))
    return [group for group in groups if group.group_id in wanted]


def _tell_silent_brokers(session: Session, found: "GroupList") -> int:
    for broker_id, error in found.errors.items():
        session.output.say(f"error: broker {broker_id} did not list its groups: {error}")
    return FAILED if found.errors else DONE


def _document(group: "GroupDescription", lags: "list[PartitionLag]") -> dict[str, Any]:
    known = [lag.lag for lag in lags if lag.lag is not None]
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator,
        "total_lag": sum(known) if known else None,
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


def _member_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
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


def _would_delete(group: "GroupDescription") -> dict[str, Any]:
    error = "the group has members" if group.members else None
    return row("group", group.group_id, "would delete", error)
