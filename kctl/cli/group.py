"""kctl group: list and delete; its other commands have files of their own."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import DANGEROUS, READS, STREAMS, remote_command
from kctl.cli.failures import DONE
from kctl.cli.group_copy_offsets import clone_offsets, export_offsets, import_offsets
from kctl.cli.group_delete_offsets import delete_offsets
from kctl.cli.group_describe import describe
from kctl.cli.group_listing import matching_groups, tell_silent_brokers
from kctl.cli.group_reset import reset_offsets
from kctl.cli.items import is_pattern, matching, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.groups import GroupDescription

app = typer.Typer(rich_markup_mode=None)
remote_command(app, "reset-offsets", DANGEROUS)(reset_offsets)
remote_command(app, "export-offsets", STREAMS)(export_offsets)
remote_command(app, "import-offsets", DANGEROUS)(import_offsets)
remote_command(app, "clone-offsets", DANGEROUS)(clone_offsets)
remote_command(app, "delete-offsets", DANGEROUS)(delete_offsets)
remote_command(app, "describe", READS)(describe)


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
        for group in matching_groups(found.groups, patterns or [])
    ]
    session.output.show(documents, ["group", "state", "protocol_type", "coordinator"], name="group")
    return tell_silent_brokers(session, found)


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


def _would_delete(group: "GroupDescription") -> dict[str, Any]:
    error = "the group has members" if group.members else None
    return row("group", group.group_id, "would delete", error)
