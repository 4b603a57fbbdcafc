"""kctl reassign plan: from an intent to a file that moves replicas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.reassignment_plan import BalanceBy
from kctl.cli.failures import DONE
from kctl.cli.output import OutputFormat
from kctl.cli.reassign_door import Door, ZooKeeperOption, run_at
from kctl.cli.reassign_files import (
    change_table,
    load_table,
    plan_document,
    summary,
    write_plan,
)
from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.reassignment_plan import ClusterLayout, ReassignmentPlan
    from kctl.model import TopicPartition

_INTENTS = (
    "drain BROKERS, add BROKERS, set-rf TOPIC N, rebalance, move TOPIC[:P,P] FROM TO, "
    "swap-leader TOPIC[:P,P] [BROKER], log-dirs [BROKER]"
)

IntentArgument = Annotated[list[str], typer.Argument(metavar="INTENT", help=f"One of: {_INTENTS}.")]
ByOption = Annotated[BalanceBy, typer.Option("--by", help="What add and rebalance even out.")]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="rebalance: only these."),
]
BrokersOption = Annotated[
    str | None,
    typer.Option("--brokers", metavar="ID,ID", help="rebalance: over these. [default: all]"),
]
MaxMovesOption = Annotated[
    int | None,
    typer.Option("--max-moves", metavar="N", help="rebalance: as even as N moves make it."),
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="FILE", help="Write the plan, and beside it FILE's .rollback.json."
    ),
]
RateOption = Annotated[
    str | None,
    typer.Option("--throttle", metavar="RATE", help="Estimate the time at that, e.g. 50MB."),
]


def plan(
    session: Session,
    intent: IntentArgument,
    by: ByOption = BalanceBy.COUNT,
    topic: TopicOption = None,
    brokers: BrokersOption = None,
    max_moves: MaxMovesOption = None,
    out: OutOption = None,
    throttle: RateOption = None,
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Work out what has to move for an intent: as little as can be, over the racks.

    The same cluster gives the same plan. FILE is Kafka's own JSON.

    \b
    Examples:
      kctl reassign plan drain 3 --out plan.json
      kctl reassign plan add 4,5 --by size
      kctl reassign plan set-rf orders 3
      kctl reassign plan rebalance --by leaders
      kctl reassign plan move orders:0,1 1 4
      kctl reassign plan swap-leader orders:0 2
      kctl reassign plan log-dirs 1
    """
    from kctl.cli.units import parse_bytes

    rate = parse_bytes(throttle) if throttle else None
    if intent[0] == "log-dirs":
        from kctl.cli.reassign_log_dirs import plan_log_dirs

        return plan_log_dirs(session, intent[1:], out)

    async def work(door: Door) -> "ReassignmentPlan":
        layout = await door.reassignments.layout()
        return _planned(layout, intent, by, topic, brokers, max_moves)

    made = run_at(session, zookeeper, work)
    if session.output.format in (OutputFormat.TABLE, OutputFormat.CSV):
        tables = [change_table(made), load_table(made)] if made.after else [load_table(made)]
        session.output.show_one({}, tables, name="")
    else:
        session.output.show_one(plan_document(made, rate), [], name="moves")
    session.output.say(summary(made, rate) if made.after else "Nothing has to move.")
    if out is not None and made.after:
        rollback = write_plan(made, out)
        session.output.say(f"Wrote {out}, and {rollback} to undo it: kctl reassign execute {out}")
    return DONE


def _planned(
    layout: "ClusterLayout",
    intent: Sequence[str],
    by: BalanceBy,
    topics: Sequence[str] | None,
    brokers: str | None,
    max_moves: int | None,
) -> "ReassignmentPlan":
    from kctl.admin import reassignment_plan as planner

    kind, *words = intent
    if kind == "rebalance" and not words:
        chosen = broker_ids(brokers) if brokers else None
        return planner.rebalance(layout, by, brokers=chosen, topics=topics, moves_max=max_moves)
    if topics or brokers or max_moves is not None:
        raise UsageError("--topic, --brokers and --max-moves are for rebalance")
    match kind, words:
        case "drain", [ids]:
            return planner.drain(layout, broker_ids(ids))
        case "add", [ids]:
            return planner.add_brokers(layout, broker_ids(ids), by)
        case "set-rf", [topic, factor] if factor.isdigit():
            return planner.set_replication_factor(layout, topic, int(factor))
        case "move", [name, source, to] if source.isdigit() and to.isdigit():
            partitions = _partitions(layout, name, int(source))
            return planner.move(layout, partitions, int(source), int(to))
        case "swap-leader", [name, *leader] if len(leader) < 2 and all(map(str.isdigit, leader)):
            first = int(leader[0]) if leader else None
            return planner.swap_leader(layout, _partitions(layout, name), first)
    raise UsageError(f"Not an intent: {' '.join(intent)}", hint=f"one of: {_INTENTS}")


def broker_ids(text: str) -> list[int]:
    """`3` or `4,5`."""
    if not all(part.strip().isdigit() for part in text.split(",")):
        raise UsageError(f"Not brokers: {text}", hint="ids, e.g. 4,5")
    return [int(part) for part in text.split(",")]


def _partitions(
    layout: "ClusterLayout", name: str, source: int | None = None
) -> "list[TopicPartition]":
    """`TOPIC:P,P`, or of TOPIC those that have a replica on `source`."""
    from kctl.cli.group_reset import partitions_named
    from kctl.cli.topic_scope import chosen_among

    wanted = partitions_named([name])
    chosen = chosen_among(layout.assignment, wanted)
    if source is None or None not in wanted.values():
        return chosen
    return [tp for tp in chosen if source in layout.assignment[tp]]
