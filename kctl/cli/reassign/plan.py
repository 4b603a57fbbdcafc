"""kctl reassign plan: from an intent to a file that moves replicas."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from kctl.admin.dead_brokers import DeadBrokers, brokers_text
from kctl.admin.reassignment_plan import BalanceBy
from kctl.admin.selection import chosen_among
from kctl.cli.declaration.command import NUMBER
from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE
from kctl.cli.output import OutputFormat
from kctl.cli.reassign.access import ZooKeeperOption, run_on_cluster
from kctl.cli.reassign.files import (
    change_table,
    load_table,
    plan_document,
    plotted_loads,
    summary,
    warn_of_dead_brokers,
    write_plan,
)
from kctl.cli.session import Session
from kctl.cli.topic.scope import partitions_named
from kctl.counts import is_whole_number
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.reassignment_cluster import Planner
    from kctl.admin.reassignment_plan import ClusterLayout
    from kctl.model import TopicPartition

_INTENTS = (
    "drain BROKERS, add BROKERS, set-rf TOPIC N, rebalance, move TOPIC[:P,P] FROM TO, "
    "swap-leader TOPIC[:P,P] [BROKER], log-dirs [BROKER]"
)

IntentArgument = Annotated[list[str], Argument(metavar="INTENT", help=f"One of: {_INTENTS}.")]
ByOption = Annotated[BalanceBy, Option("--by", help="The load that add and rebalance even out.")]
TopicOption = Annotated[
    list[str] | None,
    Option("--topic", "-t", metavar="TOPIC", help="rebalance: only these."),
]
BrokersOption = Annotated[
    str | None,
    Option("--brokers", metavar="ID,ID", help="rebalance: only these. [default: all]"),
]
MaxMovesOption = Annotated[
    int | None,
    Option("--max-moves", metavar="N", help="rebalance: as even as N moves make it."),
    NUMBER,
]
OutOption = Annotated[
    str | None,
    Option("--out", metavar="FILE", help="Write the plan, and beside it FILE's .rollback.json."),
]
DeadBrokersOption = Annotated[
    DeadBrokers,
    Option(
        "--dead-brokers",
        help="Replicas on brokers that are not alive: refuse the plan, keep their partitions as "
        "they are, or evacuate them.",
    ),
]
RateOption = Annotated[
    str | None,
    Option("--throttle", metavar="RATE", help="Estimate the time at this rate, e.g. 50MB."),
]
PlotOption = Annotated[
    bool, Option("--plot", help="Draw each broker's load before and after as bars.")
]


def plan(
    session: Session,
    intent: IntentArgument,
    by: ByOption = BalanceBy.COUNT,
    topic: TopicOption = None,
    brokers: BrokersOption = None,
    max_moves: MaxMovesOption = None,
    dead_brokers: DeadBrokersOption = DeadBrokers.REFUSE,
    out: OutOption = None,
    throttle: RateOption = None,
    zookeeper: ZooKeeperOption = None,
    plot: PlotOption = False,
) -> int:
    """Plan the moves that an intent needs: as few as possible, spread over the racks.

    The same cluster gives the same plan. FILE is Kafka's own JSON. If a broker is not alive, its
    replicas are moved only by `drain` or `move` of that broker, or with --dead-brokers evacuate:
    it may just be restarting, and moving them copies all of its data.

    \b
    Examples:
      kctl reassign plan drain 3 --out plan.json
      kctl reassign plan add 4,5 --by size
      kctl reassign plan set-rf orders 3
      kctl reassign plan rebalance --by leaders
      kctl reassign plan rebalance --by size --plot
      kctl reassign plan rebalance --dead-brokers keep
      kctl reassign plan move orders:0,1 1 4
      kctl reassign plan swap-leader orders:0 2
      kctl reassign plan log-dirs 1
    """
    from kctl.cli.units import parse_rate

    rate = parse_rate(throttle) if throttle else None
    if intent[0] == "log-dirs":
        from kctl.cli.reassign.log_dirs import plan_log_dirs

        return plan_log_dirs(session, intent[1:], out)

    planner = _planner(intent, by, topic, brokers, max_moves, dead_brokers)

    made = run_on_cluster(session, zookeeper, lambda cluster: cluster.plan(planner))
    # The file first: the reader of what is printed may be gone.
    rollback = write_plan(made, out) if out is not None and made.after else None
    if session.output.format in (OutputFormat.TABLE, OutputFormat.CSV):
        tables = [change_table(made), load_table(made)] if made.after else [load_table(made)]
        session.output.show_one({}, tables, name="")
        if plot and session.output.format is OutputFormat.TABLE:
            session.output.write(plotted_loads(made, session.output.width))
    else:
        session.output.show_one(plan_document(made, rate), [], name="moves")
    warn_of_dead_brokers(session, made)
    kept = [broker for broker in made.layout.dead if dead_brokers is DeadBrokers.KEEP]
    if kept:
        session.output.say(f"{brokers_text(kept)}: partitions with a replica there do not change.")
    session.output.say(summary(made, rate) if made.after else "Nothing has to move.")
    if rollback is not None:
        execute = f"reassign execute {shlex.quote(str(out))}"
        session.output.say(
            f"Wrote {out}, and {rollback} to undo it. "
            f"Next: {session.command(execute, zookeeper=zookeeper)}"
        )
    return DONE


def _planner(
    intent: Sequence[str],
    by: BalanceBy,
    topics: Sequence[str] | None,
    brokers: str | None,
    max_moves: int | None,
    dead: DeadBrokers,
) -> "Planner":
    """Return the function that plans for `intent`; raise UsageError for an unknown intent."""
    from kctl.admin import reassignment_plan as planner

    kind, *arguments = intent
    if kind == "rebalance" and not arguments:
        chosen = broker_ids(brokers) if brokers else None
        return lambda layout: planner.rebalance(
            layout, by, brokers=chosen, topics=topics, moves_max=max_moves, dead=dead
        )
    if topics or brokers or max_moves is not None:
        raise UsageError("--topic, --brokers and --max-moves are for rebalance")
    match kind, arguments:
        case "drain", [ids]:
            gone = broker_ids(ids)
            return lambda layout: planner.drain(layout, gone, dead)
        case "add", [ids]:
            added = broker_ids(ids)
            return lambda layout: planner.add_brokers(layout, added, by, dead)
        case "set-rf", [topic, factor] if is_whole_number(factor):
            return lambda layout: planner.set_replication_factor(layout, topic, int(factor), dead)
        case "move", [name, source, to] if is_whole_number(source) and is_whole_number(to):
            moved = partitions_named([name])
            return lambda layout: planner.move(
                layout, _partitions(layout, moved, int(source)), int(source), int(to), dead
            )
        case "swap-leader", [name, *leader] if len(leader) < 2 and all(
            map(is_whole_number, leader)
        ):
            first = int(leader[0]) if leader else None
            led = partitions_named([name])
            return lambda layout: planner.swap_leader(layout, _partitions(layout, led), first, dead)
    raise UsageError(f"Not an intent: {' '.join(intent)}", hint=f"one of: {_INTENTS}")


def broker_ids(text: str) -> list[int]:
    """Parse `3` or `4,5`."""
    if not all(is_whole_number(part.strip()) for part in text.split(",")):
        raise UsageError(f"Not brokers: {text}", hint="ids, e.g. 4,5")
    return [int(part) for part in text.split(",")]


def _partitions(
    layout: "ClusterLayout",
    wanted: "Mapping[str, Sequence[int] | None]",
    source: int | None = None,
) -> "list[TopicPartition]":
    """Return the wanted partitions; of a whole topic, those that have a replica on `source`."""
    chosen = chosen_among(layout.assignment, wanted)
    if source is None or None not in wanted.values():
        return chosen
    return [tp for tp in chosen if source in layout.assignment[tp]]
