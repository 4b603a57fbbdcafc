"""kctl group export-offsets, import-offsets and clone-offsets: what groups have committed, kept in
a file, brought back from it, or given to another group.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`--export`, `--from-file`)
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.failures import DONE
from kctl.cli.group_delete_offsets import why_nothing
from kctl.cli.group_listing import matching_groups
from kctl.cli.group_reset import (
    TopicOption,
    follow_plan,
    partitions_named,
    read_offsets,
    refuse_members,
)
from kctl.cli.items import did_you_mean, is_pattern, show_results
from kctl.cli.session import Session
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.offset_reset import ResetStep
    from kctl.admin.offsets import CommittedOffset
    from kctl.model import TopicPartition

    Committed = dict[TopicPartition, CommittedOffset]


def export_offsets(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Names or globs.")],
    topic: TopicOption = None,
) -> int:
    """Print what groups have committed, as CSV for import-offsets and Apache Kafka's own tool.

    Lines are topic,partition,offset for one group, with the group before that for several.

    \b
    Examples:
      kctl group export-offsets billing > offsets.csv
      kctl group export-offsets 'billing-*' -t orders > offsets.csv
    """
    from kctl.admin.offset_file import format_offsets

    async def work(admin: "AdminClient") -> "dict[str, dict[TopicPartition, int]]":
        found = {}
        for name in await _groups(admin, names):
            committed = await _committed(admin, name, topic)
            found[name] = {partition: item.offset for partition, item in committed.items()}
        return found

    session.output.write(format_offsets(session.run(work)))
    return DONE


def import_offsets(
    session: Session,
    path: Annotated[str, typer.Argument(metavar="FILE", help="CSV; -: stdin.")],
    name: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Only this one's; or whose they are."),
    ] = None,
) -> int:
    """Commit the offsets in a file of export-offsets or of Apache Kafka. The plan is shown first.

    \b
    Examples:
      kctl group import-offsets offsets.csv --group billing --dry-run
      kctl group import-offsets groups.csv --yes
    """
    offsets = read_offsets(path, name)
    if name is not None:
        offsets = {group: found for group, found in offsets.items() if group == name}
    if not offsets:
        raise UsageError(f"{path} has no offsets" + (f" of group {name}" if name else ""))

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        await refuse_members(admin, *offsets)
        plan = {group: await _plan(admin, group, found) for group, found in offsets.items()}
        return await follow_plan(session, admin, plan)

    return _show(session, session.run(work))


def clone_offsets(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="FROM", help="A group.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A group without members, or new.")],
    topic: TopicOption = None,
) -> int:
    """Have one group go on where another one is. The plan is shown first.

    \b
    Examples:
      kctl group clone-offsets billing billing-test --dry-run
      kctl group clone-offsets billing billing-test -t orders --yes
    """
    if source == target:
        raise UsageError(f"{source} is where {target} is")

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        committed = await _committed(admin, source, topic)
        await refuse_members(admin, target)
        offsets = {partition: item.offset for partition, item in committed.items()}
        metadata = {partition: item.metadata for partition, item in committed.items()}
        plan = {target: await _plan(admin, target, offsets)}
        return await follow_plan(session, admin, plan, metadata)

    return _show(session, session.run(work))


def _show(session: Session, rows: list[dict[str, Any]] | None) -> int:
    if rows is None:
        return DONE
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


async def _plan(
    admin: "AdminClient", name: str, offsets: "Mapping[TopicPartition, int]"
) -> "list[ResetStep]":
    from kctl.admin.offset_reset import ResetKind, ResetTarget

    target = ResetTarget(ResetKind.EACH, offsets=offsets)
    return await admin.offset_reset.plan(name, offsets, target)


async def _groups(admin: "AdminClient", names: list[str]) -> list[str]:
    """What `names`, globs among them, stand for."""
    exact = [name for name in names if not is_pattern(name)]
    globs = [name for name in names if is_pattern(name)]
    if not globs:
        return list(dict.fromkeys(exact))
    listing = await admin.groups.list_groups()
    found = [group.group_id for group in matching_groups(listing.groups, globs)]
    if listing.errors or not (found or exact):
        why = next(iter(listing.errors.values()), None)
        raise KctlError(f"Cannot list all groups: {why}" if why else f"No group {globs[0]}")
    return list(dict.fromkeys([*exact, *found]))


async def _committed(admin: "AdminClient", name: str, topics: list[str] | None) -> "Committed":
    """What a group has committed for `topics` (none: for all). KctlError if that is nothing."""
    committed = await admin.offsets.committed(name)
    broken = next((item.error for item in committed.values() if item.error is not None), None)
    if broken is not None:
        raise broken
    if not committed:
        raise await why_nothing(admin, name)
    wanted = partitions_named(topics or [])
    for topic in wanted:
        if not any(partition.topic == topic for partition in committed):
            hint = did_you_mean(topic, {partition.topic for partition in committed})
            raise UsageError(f"Group {name} has committed nothing for topic {topic}", hint=hint)
    return {
        partition: item
        for partition, item in committed.items()
        if not wanted or _is_wanted(partition, wanted)
    }


def _is_wanted(partition: "TopicPartition", wanted: "Mapping[str, list[int] | None]") -> bool:
    if partition.topic not in wanted:
        return False
    numbers = wanted[partition.topic]
    return numbers is None or partition.partition in numbers
