"""kctl link: creates, lists, describes and resumes links to topics of other clusters, and fails
them over."""

import os
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.connect import SOURCE, ConnectOptions, resolve
from kctl.cli.declaration.command import DANGEROUS, READS, Range, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.configs.link_configs import OnLoss
from kctl.counts import counted, offset_range
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.errors import KctlError
    from kctl.mirror.links import LinkedPartitionStatus, LinkedTopic, LinkPlan

app = CommandGroup()

Topics = Annotated[list[str], Argument(metavar="TOPIC", help="Names.")]
SomeTopics = Annotated[list[str] | None, Argument(metavar="TOPIC", help="Names. [default: all]")]
PLAN_COLUMNS = ("topic", "step", "partitions", "detail")
PARTITION_COLUMNS = (
    "topic", "partition", "source", "phase", "start", "end", "source_end", "lag", "lag_ms", "epoch",
    "detail",
)  # fmt: skip
RESUME_COLUMNS = ("topic", "partition", "start", "end", "removes", "detail")
FAILOVER_COLUMNS = ("topic", "partition", "phase", "end", "lag")
INT16_MAX = 2**15 - 1


@dataclass(frozen=True)
class SourceOptions:
    """The source of new links."""

    source: Annotated[
        str,
        Option(
            "--source",
            metavar="NAME",
            help="The source: NAME.properties in the brokers' mirror.sources.dir.",
        ),
    ] = ""
    from_servers: Annotated[
        str | None,
        Option("--from", metavar="HOST:PORT,...", help="Brokers of the source, for this command."),
    ] = None
    from_config: Annotated[
        str | None,
        Option(
            "--from-config",
            metavar="FILE",
            help="A client.properties file of Apache Kafka for the source.",
        ),
    ] = None

    def connect_options(self) -> ConnectOptions:
        """Return how this command connects to the source; raise UsageError."""
        if not self.source:
            raise UsageError("Name the source", hint="e.g. --source east")
        if self.from_servers is None and self.from_config is None:
            raise UsageError("Name brokers of the source", hint="e.g. --from kafka.east:9092")
        return ConnectOptions(
            bootstrap_server=self.from_servers, command_config=self.from_config, end=SOURCE
        )


@remote_command(app, "create", DANGEROUS)
def create(
    session: Session,
    topics: Topics,
    there: SourceOptions,
    replication_factor: Annotated[
        int,
        Option("--replication-factor", "-r", help="Replicas of new topics."),
        Range(-1, INT16_MAX),
    ] = -1,
    replace: Annotated[
        bool,
        Option(
            "--replace",
            help="Let topics that exist follow the source. What they have and the source has not "
            "is removed.",
        ),
    ] = False,
) -> int:
    """Let topics of this cluster follow the topics of the same names in another one, with the same
    offsets, leader epochs and bytes. They are read-only until `kctl link failover`. The command
    shows the plan and asks first.

    Every broker needs mirror.sources.dir, and in it NAME.properties with bootstrap.servers and the
    security settings of a client of the source. With --replace, the way back after a failover, the
    records of this cluster after the last common one are removed.

    \b
    Examples:
      kctl link create orders --source east --from kafka.east:9092 --dry-run
      kctl link create orders payments --source east --from kafka.east:9092 --yes
      kctl link create orders --source west --from kafka.west:9092 --replace
    """
    from kctl.mirror.clusters import SourceCluster, with_source
    from kctl.mirror.links import LinkStep, create_links, plan_links

    settings = resolve(there.connect_options(), os.environ)
    cluster = SourceCluster(settings.bootstrap_servers, settings.timeout_ms, settings.properties)

    change = session.run(
        lambda target: with_source(
            target,
            cluster,
            settings.guard.check_connected,
            lambda origin, destination: session.carry_out(
                destination,
                lambda admin: plan_links(origin, admin, there.source, topics, replaces=replace),
                _create_question,
                lambda admin, plans: create_links(admin, plans, replication_factor),
            ),
        )
    )
    if change.is_declined:
        return DONE
    errors = change.result or {}
    rows = [_plan_row(it, errors.get(it.topic)) for it in change.plan]
    session.output.show(rows, PLAN_COLUMNS, name="topic")
    is_bad = bool(errors) or any(it.step is LinkStep.REFUSE for it in change.plan)
    return FAILED if is_bad else DONE


def _create_question(plans: "list[LinkPlan]") -> Question | None:
    from kctl.mirror.links import LinkStep

    wanted = [it for it in plans if it.step in (LinkStep.CREATE, LinkStep.FOLLOW)]
    if not wanted:
        return None
    rows = [_plan_row(it) for it in plans]
    return Question(Table(PLAN_COLUMNS, rows), f"Create {counted(len(wanted), 'link')}?")


def _plan_row(plan: "LinkPlan", error: "KctlError | None" = None) -> dict[str, Any]:
    return {
        "topic": plan.topic,
        "step": str(plan.step),
        "partitions": plan.partitions or None,
        "detail": (str(error) if error is not None else plan.detail) or None,
    }


@remote_command(app, "list", READS)
def list_them(session: Session) -> int:
    """List the topics of this cluster that follow another one.

    \b
    Examples:
      kctl link list
      kctl link list -o json
    """
    from kctl.mirror.links import list_links

    columns = ("topic", "source", "state", "partitions", "source_cluster")
    found = session.run(list_links)
    session.output.show([_link_row(it) for it in found], columns, name="topic")
    return DONE


def _link_row(link: "LinkedTopic") -> dict[str, Any]:
    return {
        "topic": link.topic,
        "source": link.source,
        "state": str(link.state),
        "partitions": link.partitions,
        "source_cluster": link.cluster_id,
    }


@remote_command(app, "describe", READS)
def describe(session: Session, topics: SomeTopics = None) -> int:
    """Show how far the links are, by partition: where the copy and its source end, the lag in
    offsets and in milliseconds since the copy had everything, and what a partition waits for. Exit
    with 1 if a partition has stopped, because it would lose or mix records, or if a topic is not a
    link.

    \b
    Examples:
      kctl link describe
      kctl link describe orders -o json
    """
    from kctl.mirror.links import describe_links

    found = session.run(lambda admin: describe_links(admin, topics or ()))
    rows = []
    for it in found:
        detail = it.detail
        if it.removed is not None:
            first, end = it.removed
            removed = f"removed {offset_range(first, end - 1)}, which the source does not have"
            detail = f"{detail}; {removed}" if detail else removed
        rows.append(
            {
                "topic": it.topic,
                "partition": it.partition,
                "source": it.source,
                "phase": it.phase,
                "start": it.start,
                "end": it.end,
                "source_end": it.source_end,
                "lag": it.lag,
                "lag_ms": it.lag_ms,
                "epoch": it.leader_epoch,
                "detail": detail or None,
            }
        )
    session.output.show(rows, PARTITION_COLUMNS, name="topic")
    others = sorted({*(topics or ())} - {it.topic for it in found})
    if others:
        session.output.say(f"error: Not a link: {', '.join(others)}\nhint: see kctl link list")
    return FAILED if others or any(it.phase == "stopped" for it in found) else DONE


@remote_command(app, "failover", DANGEROUS)
def failover(session: Session, topics: Topics) -> int:
    """Make links writable: they stop following their source, and begin a later leader epoch. What
    the source has and the copy has not is no longer copied. The command shows the plan and asks
    first, and waits until every partition is ready.

    Stop the producers of the source first, and wait until `kctl link describe` shows no lag, if the
    source can still be reached. Transactions that are open in the copy are aborted. If a partition
    is not ready in time (--timeout), the topic stays read-only, and the same command goes on.

    \b
    Examples:
      kctl link failover orders --dry-run
      kctl link failover orders payments --yes
    """
    from kctl.mirror.links import fail_over, plan_failover

    timeout_ms = session.settings.timeout_ms

    def question(rows: "list[LinkedPartitionStatus]") -> Question:
        table = Table(FAILOVER_COLUMNS, [_failover_row(it) for it in rows])
        return Question(table, f"Make {counted(len(topics), 'topic')} writable?")

    change = session.change(
        lambda admin: plan_failover(admin, topics),
        question,
        lambda admin, _: fail_over(admin, topics, timeout_ms),
    )
    if change.is_declined:
        return DONE
    if change.result is None:
        rows = [_failover_row(it) for it in change.plan]
        session.output.show(rows, FAILOVER_COLUMNS, name="topic")
        return DONE
    errors = change.result
    rows = [
        {"topic": it, "status": str(errors[it]) if it in errors else "writable"} for it in topics
    ]
    session.output.show(rows, ("topic", "status"), name="topic")
    return FAILED if errors else DONE


def _failover_row(it: "LinkedPartitionStatus") -> dict[str, Any]:
    return {
        "topic": it.topic,
        "partition": it.partition,
        "phase": it.phase,
        "end": it.end,
        "lag": it.lag,
    }


@remote_command(app, "resume", DANGEROUS)
def resume(
    session: Session,
    topics: Topics,
    on_loss: Annotated[
        OnLoss,
        Option(
            "--on-loss",
            help="stop: compare with the source again, and stop again if records would be lost. "
            "restart: remove the copy, and copy what the source has now.",
        ),
    ] = OnLoss.STOP,
) -> int:
    """Let the partitions of links go on that have stopped, as their source lost records before they
    were copied, or has others. Partitions that follow their source are left alone. The command
    shows the plan and asks first.

    With --on-loss restart all replicas of these partitions remove their records and copy what the
    source has now, from its first offset: the loss is accepted. Each replica has to be running.
    Consumers whose offsets are no longer there begin where auto.offset.reset says.

    \b
    Examples:
      kctl link resume orders
      kctl link resume orders --on-loss restart --dry-run
      kctl link resume orders payments --on-loss restart --yes
    """
    from kctl.mirror.links import plan_resume
    from kctl.mirror.links import resume as resume_links

    timeout_ms = session.settings.timeout_ms

    def question(rows: "list[LinkedPartitionStatus]") -> Question | None:
        if not rows:
            return None
        table = Table(RESUME_COLUMNS, [_resume_row(it, on_loss) for it in rows])
        verb = "Remove and copy again" if on_loss is OnLoss.RESTART else "Compare again"
        return Question(table, f"{verb} {counted(len(rows), 'partition')}?")

    change = session.change(
        lambda admin: plan_resume(admin, topics),
        question,
        lambda admin, rows: resume_links(admin, rows, on_loss, timeout_ms),
    )
    if change.is_declined:
        return DONE
    if not change.plan:
        session.output.say("no partition has stopped")
    errors = change.result
    if errors is None:
        rows = [_resume_row(it, on_loss) for it in change.plan]
        session.output.show(rows, RESUME_COLUMNS, name="topic")
        return DONE
    rows = [
        {
            "topic": it.topic,
            "partition": it.partition,
            "status": str(errors.get((it.topic, it.partition), "resumed")),
        }
        for it in change.plan
    ]
    session.output.show(rows, ("topic", "partition", "status"), name="topic")
    return FAILED if errors else DONE


def _resume_row(it: "LinkedPartitionStatus", on_loss: OnLoss) -> dict[str, Any]:
    has_records = it.start is not None and it.end is not None and it.start < it.end
    removes = on_loss is OnLoss.RESTART and has_records
    return {
        "topic": it.topic,
        "partition": it.partition,
        "start": it.start,
        "end": it.end,
        "removes": offset_range(it.start or 0, (it.end or 0) - 1) if removes else None,
        "detail": it.detail,
    }
