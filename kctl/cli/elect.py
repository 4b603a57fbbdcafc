"""kctl elect: preferred, unclean."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import CHANGES, DANGEROUS, remote_command
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.cli.topic_scope import partitions_in
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.elections import ElectionType
    from kctl.admin.topics import PartitionDescription
    from kctl.model import TopicPartition

app = typer.Typer(rich_markup_mode=None)

# Brokers hear of a new leader a little later than the controller.
LOOKS_MAX = 20
LOOK_MS = 100
_COLUMNS = ("topic", "partition", "leader", "preferred", "new_leader", "isr")

PartitionsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC[:P,P]", help="Topics, or some of their partitions."),
]
AllOption = Annotated[bool, typer.Option("--all", help="All partitions of the cluster.")]


@remote_command(app, "preferred", CHANGES)
def preferred(
    session: Session, names: PartitionsArgument = None, everything: AllOption = False
) -> int:
    """Make the first replica of each partition its leader again, where it is in sync.

    \b
    Examples:
      kctl elect preferred --all -n
      kctl elect preferred orders:0,1 payments
    """
    from kctl.admin.elections import ElectionType

    return _elect(session, ElectionType.PREFERRED, names or [], everything)


@remote_command(app, "unclean", DANGEROUS)
def unclean(
    session: Session, names: PartitionsArgument = None, everything: AllOption = False
) -> int:
    """Give partitions without a leader any live replica: records that only the dead ones have are
    lost.

    \b
    Examples:
      kctl elect unclean orders:3 -n
      kctl elect unclean --all --yes
    """
    from kctl.admin.elections import ElectionType

    return _elect(session, ElectionType.UNCLEAN, names or [], everything)


def _elect(
    session: Session, election_type: "ElectionType", names: Sequence[str], everything: bool
) -> int:
    from kctl.admin.elections import ElectionType

    if bool(names) == everything:
        raise UsageError("Say which partitions", hint="either TOPIC[:P,P] ... or --all")
    is_unclean = election_type is ElectionType.UNCLEAN

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        chosen = await partitions_in(admin, names)
        needy = [it for it in chosen if (it.is_offline if is_unclean else _is_astray(it))]
        if session.dry_run:
            return [_row(it, "would elect") for it in needy]
        plan = Table(_COLUMNS, [_row(it, "") for it in needy])
        question = f"Elect unclean leaders of {len(needy)} partitions? Records may be lost."
        if is_unclean and needy and not session.confirm(plan, question):
            return None
        # What is named is asked for in any case: the controller knows best.
        asked = needy if everything else chosen
        results = await admin.elections.elect(election_type, [_name(it) for it in asked])
        elected = {it.partition for it in results if it.is_needed and it.error is None}
        leaders = await _leaders(admin, elected) if is_unclean else {}
        rows = []
        for before, result in zip(asked, results, strict=True):
            status = "elected" if result.is_needed else "not needed"
            found = _row(before, status, result.error)
            if result.partition in elected:
                found["new_leader"] = leaders.get(result.partition, before.replicas[0])
            rows.append(found)
        return rows

    rows = session.run(work)
    if rows is None:
        return DONE
    if not rows:
        session.output.say("No partition needs an election.")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


async def _leaders(
    admin: "AdminClient", elected: "Collection[TopicPartition]"
) -> "dict[TopicPartition, int | None]":
    """Who was elected, once the brokers have heard of it; None: they have not."""
    from kctl.runtime.future import sleep

    leaders: dict[TopicPartition, int | None] = dict.fromkeys(elected)
    for _ in range(LOOKS_MAX):
        for it in await partitions_in(admin, []):
            if _name(it) in leaders and not it.is_offline:
                leaders[_name(it)] = it.leader
        if None not in leaders.values():
            break
        await sleep(admin.router.runtime.scheduler, LOOK_MS)
    return leaders


def _is_astray(partition: "PartitionDescription") -> bool:
    """Whether its preferred leader does not lead."""
    return bool(partition.replicas) and partition.leader != partition.replicas[0]


def _name(partition: "PartitionDescription") -> "TopicPartition":
    from kctl.model import TopicPartition

    return TopicPartition(partition.topic, partition.partition)


def _row(partition: "PartitionDescription", status: str, error: object = None) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": None if partition.is_offline else partition.leader,
        "preferred": partition.replicas[0] if partition.replicas else None,
        "new_leader": None,
        "isr": partition.isr,
        **row("partition_name", str(_name(partition)), status, error),
    }
