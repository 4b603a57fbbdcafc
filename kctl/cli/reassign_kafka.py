"""kctl reassign kafka: the flags of kafka-reassign-partitions 2.7.2, for scripts that use them.

`kctl reassign --execute ...` means the same.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import Output
from kctl.cli.reassign_cancel import cancel
from kctl.cli.reassign_door import Door, ZooKeeperOption, run_at
from kctl.cli.reassign_execute import (
    begin_throttle,
    checked_plan,
    dir_moves,
    throttle_of,
)
from kctl.cli.reassign_files import read_reassignment
from kctl.cli.reassign_watch import list_reassignments, verify
from kctl.cli.session import Session
from kctl.cli.text_files import read_text
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.log_dir_moves import LogDirMoves
    from kctl.admin.reassignment_plan import ReassignmentPlan

GenerateOption = Annotated[bool, typer.Option("--generate", help="Propose, and change nothing.")]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Start, and do not wait.")]
VerifyOption = Annotated[bool, typer.Option("--verify", help="Say how far it is.")]
CancelOption = Annotated[bool, typer.Option("--cancel", help="Take it back.")]
ListOption = Annotated[bool, typer.Option("--list", help="List what is on the move.")]
FileOption = Annotated[
    str | None, typer.Option("--reassignment-json-file", metavar="FILE", help="Where to.")
]
TopicsFileOption = Annotated[
    str | None, typer.Option("--topics-to-move-json-file", metavar="FILE", help="--generate: what.")
]
BrokerListOption = Annotated[
    str | None, typer.Option("--broker-list", metavar="ID,ID", help="--generate: over which.")
]
NoRacksOption = Annotated[
    bool, typer.Option("--disable-rack-aware", help="--generate: regardless of racks.")
]
ThrottleOption = Annotated[
    int, typer.Option("--throttle", metavar="BYTES", help="--execute: bytes/s of each broker.")
]
DirThrottleOption = Annotated[
    int,
    typer.Option(
        "--replica-alter-log-dirs-throttle",
        metavar="BYTES",
        help="--execute: bytes/s of each broker between its directories.",
    ),
]
AdditionalOption = Annotated[
    bool, typer.Option("--additional", help="--execute: even while others are on the move.")
]
PreserveOption = Annotated[
    bool, typer.Option("--preserve-throttles", help="--verify, --cancel: leave throttles on.")
]


def kafka(
    session: Session,
    generate: GenerateOption = False,
    execute: ExecuteOption = False,
    is_verify: VerifyOption = False,
    is_cancel: CancelOption = False,
    is_list: ListOption = False,
    reassignment_json_file: FileOption = None,
    topics_to_move_json_file: TopicsFileOption = None,
    broker_list: BrokerListOption = None,
    disable_rack_aware: NoRacksOption = False,
    throttle: ThrottleOption = -1,
    replica_alter_log_dirs_throttle: DirThrottleOption = -1,
    additional: AdditionalOption = False,
    preserve_throttles: PreserveOption = False,
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Take the flags and files of kafka-reassign-partitions 2.7; it asks nothing, as that does not.

    \b
    Examples:
      kctl reassign --generate --topics-to-move-json-file topics.json --broker-list 1,2
      kctl reassign --execute --reassignment-json-file plan.json --throttle 50000000
      kctl reassign --verify --reassignment-json-file plan.json
    """
    if sum((generate, execute, is_verify, is_cancel, is_list)) != 1:
        raise UsageError("Say one of --generate, --execute, --verify, --cancel, --list")
    if is_list:
        return list_reassignments(session, zookeeper)
    if generate:
        topics = _needed(topics_to_move_json_file, "--topics-to-move-json-file")
        brokers = _needed(broker_list, "--broker-list")
        return _generate(session, topics, brokers, disable_rack_aware, zookeeper)
    path = _needed(reassignment_json_file, "--reassignment-json-file")
    if is_verify:
        return verify(session, path, preserve_throttles, zookeeper)
    if is_cancel:
        return cancel(session.without_questions(), path)
    rates = [it if it >= 0 else None for it in (throttle, replica_alter_log_dirs_throttle)]
    return _execute(session, path, rates, additional, zookeeper)


def _needed(value: str | None, option: str) -> str:
    if value is None:
        raise UsageError(f"{option} is missing")
    return value


def _generate(
    session: Session, path: str, broker_list: str, is_rack_blind: bool, zookeeper: str | None
) -> int:
    from kctl.admin.reassignment_json import format_reassignment, parse_topics_to_move
    from kctl.admin.reassignment_plan import ClusterLayout, rebalance
    from kctl.cli.reassign_plan import broker_ids

    topics = parse_topics_to_move(read_text(path), path)
    brokers = broker_ids(broker_list)

    async def work(door: Door) -> tuple[Any, Any]:
        whole = await door.reassignments.layout(with_sizes=False)
        # These topics are spread evenly, whatever else brokers hold: that is what is asked for.
        current = {tp: it for tp, it in whole.assignment.items() if tp.topic in topics}
        racks = dict.fromkeys(whole.racks) if is_rack_blind else whole.racks
        made = rebalance(ClusterLayout(racks, current), brokers=brokers, topics=topics)
        return current, {**current, **made.after}

    current, proposed = run_at(session, zookeeper, work)
    session.output.write(
        f"Current partition replica assignment\n{format_reassignment(current)}\n"
        f"Proposed partition reassignment configuration\n{format_reassignment(proposed)}"
    )
    return DONE


def _execute(
    session: Session,
    path: str,
    rates: Sequence[int | None],
    additional: bool,
    zookeeper: str | None,
) -> int:
    from kctl.admin.reassignment_json import format_reassignment

    wanted = read_reassignment(path)

    async def work(door: Door) -> int:
        made = await checked_plan(door, wanted, additional=additional, with_sizes=False)
        current = {tp: made.layout.assignment[tp] for tp in wanted.replicas}
        session.output.write(
            f"Current partition replica assignment\n\n{format_reassignment(current)}\n"
            "Save this to use as the --reassignment-json-file option during rollback\n"
        )
        dirs = await dir_moves(door, wanted.log_dirs)
        limit = throttle_of(made, dirs, *rates)
        if limit.is_any:
            await begin_throttle(session, door, limit)
        await dirs.start()
        status = await _started(session.output, door, made)
        return max(status, _dirs_started(session.output, dirs))

    return run_at(session, zookeeper, work)


def _dirs_started(output: Output, dirs: "LogDirMoves") -> int:
    for it in dirs.pending:
        if it.error is not None:
            output.say(f"error: {it.partition} on broker {it.broker_id}: {it.error}")
    begun = [f"{it.partition}-{it.broker_id}" for it in dirs.pending if it.error is None]
    if begun:
        output.write(f"Successfully started log directory moves for: {','.join(begun)}\n")
    return FAILED if any(it.error for it in dirs.pending) else DONE


async def _started(output: Output, door: Door, made: "ReassignmentPlan") -> int:
    outcomes = await door.reassignments.alter(made.after) if made.after else {}
    broken = {tp: error for tp, error in outcomes.items() if error is not None}
    for tp, error in broken.items():
        output.say(f"error: {tp}: {error}")
    names = ",".join(str(tp) for tp in outcomes if tp not in broken)
    if names:
        output.write(f"Successfully started partition reassignments for {names}\n")
    return FAILED if broken else DONE
