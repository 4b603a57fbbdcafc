"""kctl reassign kafka: the flags of kafka-reassign-partitions 2.7.2, for scripts that use them.

`kctl reassign --execute ...` means the same.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import Output
from kctl.cli.reassign.access import ZooKeeperOption, run_on_cluster
from kctl.cli.reassign.cancel import cancel
from kctl.cli.reassign.files import read_reassignment, warn_of_dead_brokers
from kctl.cli.reassign.watch import list_reassignments, verify
from kctl.cli.session import Session
from kctl.cli.text_files import read_text
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.reassignment_job import ReassignmentJob
    from kctl.admin.reassignment_plan import ClusterLayout, ReassignmentPlan

GenerateOption = Annotated[bool, Option("--generate", help="Propose a plan; change nothing.")]
ExecuteOption = Annotated[bool, Option("--execute", help="Start the moves; do not wait.")]
VerifyOption = Annotated[bool, Option("--verify", help="Show the progress.")]
CancelOption = Annotated[bool, Option("--cancel", help="Cancel the moves.")]
ListOption = Annotated[bool, Option("--list", help="List the moves in progress.")]
FileOption = Annotated[
    str | None, Option("--reassignment-json-file", metavar="FILE", help="Where to.")
]
TopicsFileOption = Annotated[
    str | None, Option("--topics-to-move-json-file", metavar="FILE", help="--generate: what.")
]
BrokerListOption = Annotated[
    str | None,
    Option("--broker-list", metavar="ID,ID", help="--generate: the target brokers."),
]
NoRacksOption = Annotated[bool, Option("--disable-rack-aware", help="--generate: ignore racks.")]
ThrottleOption = Annotated[
    int, Option("--throttle", metavar="BYTES", help="--execute: bytes/s of each broker.")
]
DirThrottleOption = Annotated[
    int,
    Option(
        "--replica-alter-log-dirs-throttle",
        metavar="BYTES",
        help="--execute: bytes/s of each broker between its directories.",
    ),
]
AdditionalOption = Annotated[
    bool, Option("--additional", help="--execute: even while other partitions move.")
]
PreserveOption = Annotated[
    bool, Option("--preserve-throttles", help="--verify, --cancel: keep throttles.")
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
    """Accept the flags and files of kafka-reassign-partitions 2.7; without questions, as there.

    \b
    Examples:
      kctl reassign --generate --topics-to-move-json-file topics.json --broker-list 1,2
      kctl reassign --execute --reassignment-json-file plan.json --throttle 50000000
      kctl reassign --verify --reassignment-json-file plan.json
    """
    if sum((generate, execute, is_verify, is_cancel, is_list)) != 1:
        raise UsageError("Give one of --generate, --execute, --verify, --cancel, --list")
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
    if 0 in (throttle, replica_alter_log_dirs_throttle):
        raise UsageError("A throttle of 0 copies nothing", hint="omit it for no limit")
    rates = [it if it >= 0 else None for it in (throttle, replica_alter_log_dirs_throttle)]
    return _execute(session.without_questions(), path, rates, additional, zookeeper)


def _needed(value: str | None, option: str) -> str:
    if value is None:
        raise UsageError(f"{option} is missing")
    return value


def _generate(
    session: Session, path: str, broker_list: str, is_rack_blind: bool, zookeeper: str | None
) -> int:
    from kctl.admin.dead_brokers import DeadBrokers
    from kctl.admin.reassignment_json import format_reassignment, parse_topics_to_move
    from kctl.admin.reassignment_plan import ClusterLayout, rebalance
    from kctl.cli.reassign.plan import broker_ids

    topics = parse_topics_to_move(read_text(path), path)
    brokers = broker_ids(broker_list)

    def planner(whole: "ClusterLayout") -> "ReassignmentPlan":
        # These topics are spread evenly, whatever else brokers hold, as the flag requires.
        current = {tp: it for tp, it in whole.assignment.items() if tp.topic in topics}
        racks = dict.fromkeys(whole.racks) if is_rack_blind else whole.racks
        # As in Kafka's tool, the replicas go to the brokers that are listed, and to no others.
        return rebalance(
            ClusterLayout(racks, current), brokers=brokers, topics=topics,
            dead=DeadBrokers.EVACUATE,
        )  # fmt: skip

    made = run_on_cluster(
        session, zookeeper, lambda cluster: cluster.plan(planner, with_sizes=False)
    )
    current = made.layout.assignment
    proposed = {**current, **made.after}
    session.output.write(
        f"Current partition replica assignment\n{format_reassignment(current)}\n"
        f"Proposed partition reassignment configuration\n{format_reassignment(proposed)}"
    )
    warn_of_dead_brokers(session, made)
    return DONE


def _execute(
    session: Session,
    path: str,
    rates: Sequence[int | None],
    additional: bool,
    zookeeper: str | None,
) -> int:
    from kctl.admin.reassignment_job import start_reassignment
    from kctl.admin.reassignment_json import format_reassignment

    wanted = read_reassignment(path)

    def show_current(job: "ReassignmentJob") -> None:
        current = {tp: job.plan.layout.assignment[tp] for tp in wanted.replicas}
        session.output.write(
            f"Current partition replica assignment\n\n{format_reassignment(current)}\n"
            "Save this to use as the --reassignment-json-file option during rollback\n"
        )

    rate, dir_rate = rates
    job = run_on_cluster(
        session,
        zookeeper,
        lambda cluster: start_reassignment(
            cluster, wanted, rate=rate, dir_rate=dir_rate, is_additional=additional,
            on_planned=show_current,
        ),
    )  # fmt: skip
    return max(_show_started(session.output, job), _show_dirs_started(session.output, job))


def _show_dirs_started(output: Output, job: "ReassignmentJob") -> int:
    for it in job.dirs.pending:
        if it.error is not None:
            output.say(f"error: {it.partition} on broker {it.broker_id}: {it.error}")
    begun = [f"{it.partition}-{it.broker_id}" for it in job.dirs.pending if it.error is None]
    if begun:
        output.write(f"Successfully started log directory moves for: {','.join(begun)}\n")
    return FAILED if any(it.error for it in job.dirs.pending) else DONE


def _show_started(output: Output, job: "ReassignmentJob") -> int:
    results = job.execution.results.values()
    for it in results:
        if it.error is not None:
            output.say(f"error: {it.partition}: {it.error}")
    names = ",".join(str(it.partition) for it in results if it.error is None)
    if names:
        output.write(f"Successfully started partition reassignments for {names}\n")
    return FAILED if any(it.error for it in results) else DONE
