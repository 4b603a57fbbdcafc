"""kctl group: lists and deletes groups, and registers the commands of the other modules."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import DANGEROUS, READS, STREAMS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.group.copy_offsets import clone_offsets, export_offsets, import_offsets
from kctl.cli.group.delete_offsets import delete_offsets
from kctl.cli.group.describe import describe
from kctl.cli.group.lag import lag
from kctl.cli.group.listing import report_missing_brokers
from kctl.cli.group.migrate import migrate
from kctl.cli.group.reset import reset_offsets
from kctl.cli.group.zookeeper import (
    ZooKeeperOption,
    delete_in_zookeeper,
    list_in_zookeeper,
    rebalance_check,
    refuse_with_zookeeper,
)
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.counts import counted

if TYPE_CHECKING:
    from kctl.admin.group_descriptions import GroupDescription

app = CommandGroup()
remote_command(app, "reset-offsets", DANGEROUS)(reset_offsets)
remote_command(app, "export-offsets", STREAMS)(export_offsets)
remote_command(app, "import-offsets", DANGEROUS)(import_offsets)
remote_command(app, "clone-offsets", DANGEROUS)(clone_offsets)
remote_command(app, "delete-offsets", DANGEROUS)(delete_offsets)
remote_command(app, "describe", READS)(describe)
remote_command(app, "lag", READS)(lag)
remote_command(app, "migrate", DANGEROUS)(migrate)
remote_command(app, "rebalance-check", READS)(rebalance_check)


@remote_command(app, "list", READS)
def list_groups(
    session: Session,
    patterns: Annotated[
        list[str] | None, Argument(metavar="PATTERN", help="Names or globs.")
    ] = None,
    state: Annotated[
        list[str] | None,
        Option("--state", metavar="STATE", help="Only in this state: Stable, Empty, ..."),
    ] = None,
    group_type: Annotated[
        list[str] | None,
        Option("--type", metavar="TYPE", help="Only classic, consumer, share or streams."),
    ] = None,
    zookeeper: ZooKeeperOption = None,
) -> int:
    """List consumer groups; on Kafka 3.8 and later, also share groups and others, with their types.

    \b
    Examples:
      kctl group list
      kctl group list --state Empty -o name
      kctl group list --type share
      kctl group list --zookeeper zk1:2181
    """
    if zookeeper is not None:
        refuse_with_zookeeper({"--state": state, "--type": group_type})
        return list_in_zookeeper(session, zookeeper, patterns or [])
    from kctl.admin.selection import matching_groups

    found = session.run(lambda admin: admin.groups.list_groups(state or [], group_type or []))
    documents = [
        {
            "group": group.group_id,
            "state": group.state or None,
            "protocol_type": group.protocol_type or None,
            **({"type": group.group_type} if found.has_types else {}),
            "coordinator": group.coordinator,
        }
        for group in matching_groups(found.groups, patterns or [])
    ]
    types = ["type"] if found.has_types else []
    columns = ["group", "state", "protocol_type", *types, "coordinator"]
    session.output.show(documents, columns, name="group")
    return report_missing_brokers(session, found)


@remote_command(app, "delete", DANGEROUS)
def delete(
    session: Session,
    names: Annotated[list[str], Argument(metavar="GROUP", help="Names or globs.")],
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Delete groups without members, with their committed offsets.

    \b
    Examples:
      kctl group delete billing --yes
      kctl group delete 'test-*' --dry-run
      kctl group delete billing --zookeeper zk1:2181 --dry-run
    """
    if zookeeper is not None:
        return delete_in_zookeeper(session, zookeeper, names)

    from kctl.admin.group_overview import plan_group_deletion

    def question(described: "list[GroupDescription]") -> Question | None:
        rows = [
            {"group": it.group_id, "state": it.state, "members": len(it.members)}
            for it in described
            if not it.error
        ]
        if not rows:
            return None
        table = Table(["group", "state", "members"], rows)
        return Question(table, f"Delete {counted(len(rows), 'group')}?")

    change = session.change(
        lambda admin: plan_group_deletion(admin, names),
        question,
        lambda admin, described: admin.groups.delete(
            [group.group_id for group in described if not group.error]
        ),
    )
    if change.is_declined:
        return DONE
    rows = [row("group", it.group_id, "", it.error) for it in change.plan if it.error]
    if change.result is None:
        rows += [_would_delete(group) for group in change.plan if not group.error]
    rows += [row("group", it.group_id, "deleted", it.error) for it in change.result or ()]
    return show_results(session, rows, "group")


def _would_delete(group: "GroupDescription") -> dict[str, Any]:
    error = "the group has members" if group.members else None
    return row("group", group.group_id, "would delete", error)
