"""kctl elect: elects preferred leaders, or unclean ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import CHANGES, DANGEROUS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.cli.topic.scope import partitions_named
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.election_plan import ElectionPlan
    from kctl.admin.elections import ElectionType
    from kctl.admin.topics import PartitionDescription

app = CommandGroup()

_COLUMNS = ("topic", "partition", "leader", "preferred", "new_leader", "isr")

PartitionsArgument = Annotated[
    list[str] | None,
    Argument(metavar="TOPIC[:P,P]", help="Topics, or some of their partitions."),
]
AllOption = Annotated[bool, Option("--all", help="All partitions of the cluster.")]


@remote_command(app, "preferred", CHANGES)
def preferred(
    session: Session, names: PartitionsArgument = None, everything: AllOption = False
) -> int:
    """Elect the preferred leader, the first replica, of each partition where it is in sync.

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
    """Elect any live replica of partitions without a leader. Records that only the other replicas
    have are lost.

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
    from kctl.admin.election_plan import plan_election, run_election
    from kctl.admin.elections import ElectionType

    if bool(names) == everything:
        raise UsageError("No partitions given", hint="give either TOPIC[:P,P] ... or --all")
    wanted = partitions_named(names)

    def question(plan: "ElectionPlan") -> Question | None:
        if election_type is not ElectionType.UNCLEAN or not plan.candidates:
            return None
        count = len(plan.candidates)
        table = Table(_COLUMNS, [_row(it, "") for it in plan.candidates])
        return Question(
            table, f"Elect unclean leaders of {counted(count, 'partition')}? Records may be lost."
        )

    change = session.change(
        lambda admin: plan_election(admin, election_type, wanted), question, run_election
    )
    if change.is_declined:
        return DONE
    if change.result is None:
        rows = [_row(it, "would elect") for it in change.plan.candidates]
    else:
        rows = [
            _row(it.before, "elected" if it.is_needed else "not needed", it.error, it.new_leader)
            for it in change.result
        ]
    if not rows:
        session.output.say("No partition needs an election.")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


def _row(
    partition: "PartitionDescription",
    status: str,
    error: object = None,
    new_leader: int | None = None,
) -> dict[str, Any]:
    from kctl.model import TopicPartition

    name = TopicPartition(partition.topic, partition.partition)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": None if partition.is_offline else partition.leader,
        "preferred": partition.replicas[0] if partition.replicas else None,
        "new_leader": new_leader,
        "isr": partition.isr,
        **row("partition_name", str(name), status, error),
    }
