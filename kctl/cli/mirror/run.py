"""kctl mirror run: copies topics to another cluster."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.metrics_options import MetricsOptions
from kctl.cli.mirror.change_options import ChangeOptions
from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.mm1_options import Mm1Options
from kctl.cli.mirror.mm2_options import Mm2Options
from kctl.cli.mirror.run_metered import run_with_metrics
from kctl.cli.mirror.topic_options import DEFAULT_NAME, NameOption, TopicOptions
from kctl.cli.units import parse_rate
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.loss import OnLoss

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.cli.session import Session
    from kctl.mirror.partition_report import PartitionReport
    from kctl.mirror.run import MirrorReport
    from kctl.mirror.settings import MirrorSettings
    from kctl.mirror.sources import MirrorSource

_WAYS_OUT = (
    "hint: --on-loss skip goes on after the lost records, --on-loss restart copies again what the"
    " source has"
)


@dataclass(frozen=True)
class RunOptions:
    """How a mirror copies."""

    name: NameOption = DEFAULT_NAME
    groups: Annotated[
        list[str] | None,
        Option(
            "--groups",
            "-g",
            metavar="PATTERN",
            help="Names or globs of groups whose offsets are carried over.",
        ),
    ] = None
    once: Annotated[bool, Option("--once", help="Stop at the ends that the source has now.")] = (
        False
    )
    at_least_once: Annotated[
        bool,
        Option("--at-least-once", help="Copy without transactions: a failure may repeat records."),
    ] = False
    on_loss: Annotated[
        OnLoss,
        Option("--on-loss", help="What to do with a partition whose source lost records."),
    ] = OnLoss.STOP
    worker: Annotated[
        str,
        Option(
            "--worker",
            metavar="ID",
            help="The id of this worker; each worker of a mirror has its own.",
        ),
    ] = "1"
    throttle: Annotated[
        str | None,
        Option("--throttle", metavar="SIZE", help="Bytes per second at most, e.g. 20MB."),
    ] = None

    def settings(self) -> "MirrorSettings":
        """Return the settings of the worker; raise UsageError for an invalid one."""
        from kctl.mirror.formats import check_name
        from kctl.mirror.settings import MirrorSettings

        throttle = parse_rate(self.throttle) if self.throttle is not None else 0
        if self.throttle is not None and throttle <= 0:
            raise UsageError("--throttle must be greater than 0", hint="e.g. --throttle 20MB")
        return MirrorSettings(
            check_name(self.name),
            check_name(self.worker),
            not self.at_least_once,
            self.on_loss,
            self.once,
            throttle,
        )


def run(
    ends: EndOptions,
    topics: TopicOptions,
    how: RunOptions,
    mm2: Mm2Options,
    mm1: Mm1Options,
    changes: ChangeOptions,
    monitoring: MetricsOptions,
) -> int:
    """Copy topics to another cluster, and keep copying until Ctrl-C, or with --once until all that
    the source has now is copied.

    --source names the brokers of a cluster, log directories (paths and URLs, which contain a /), or
    the ZooKeeper of a cluster of Kafka 0.7 (zookeeper-0.7://HOST:PORT[/PATH]), or one server of it
    (kafka-0.7://HOST:PORT), whose topics are named without patterns. A log directory may also have
    .kafka files of Kafka 0.7.
    Batches pass through as they are, without being decompressed. Each record is copied exactly
    once: records, position and map of offsets are written in transactions. Topics are created,
    with their partitions and settings, and kept in step. Records of aborted transactions are not
    copied.

    If the source lost records before they were copied, the partition stops, and the command exits
    with 1. Start it again to continue.

    \b
    Examples:
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics 'orders*'
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics '*' --groups '*' --once
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics '*' --rename 'dc1.{topic}'
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics orders --worker 2
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics '*' --metrics-port 9405
      kctl mirror run --source /backup/kafka-logs --target dc2:9092 --topics '*' --groups '*' \\
        --once
      kctl mirror run --source zookeeper-0.7://old:2181 --target dc2:9092 --topics '*'
      kctl mirror run --source kafka-0.7://old:9092 --target dc2:9092 --topics clicks
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics '*' --ring
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics orders \\
        --filter 'value.country == "NO"' --mask value.card.number
      kctl mirror run --mm2-config mm2.properties --flow 'dc1->dc2'
      kctl mirror run --source dc1:9092 --target dc2:9092 --topics '*' --rename prefix \\
        --mm2-topics --source-alias dc1 --target-alias dc2
      kctl mirror run --consumer.config consumer.properties --producer.config producer.properties \\
        --whitelist 'orders.*'
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.mirror.run import MirrorRun

    settings = replace(how.settings(), changes=changes.text())
    loops, to_do, port = changes.loops(), changes.changes(), monitoring.port()
    flow = mm1.flow_of(ends, topics, how.groups, mm2) or mm2.flow_of(ends, topics, how.groups)
    ends, choice = flow.ends, flow.choice
    session = ends.session(writes=True)
    interrupt = Interrupt(session.runtime.scheduler)
    runs: list[MirrorRun] = []

    def work(source: "MirrorSource", target: "AdminClient") -> Any:
        it = MirrorRun(source, target, choice, settings, flow.groups, session.output.say)
        it.mm2, it.changes, it.loops = flow.mm2, to_do, loops
        runs.append(it)
        return run_with_metrics(it, port, interrupt, session.output.say)

    interrupt.run(lambda: ends.run_from(session, work, interrupt.guard, topics.topics))
    if not runs:
        return interrupt.status or DONE
    _show(session, runs[0].report)
    if _has_stopped_on_loss(runs[0].report):
        session.output.say(_WAYS_OUT)
    return FAILED if runs[0].report.has_failed else interrupt.status or DONE


def _has_stopped_on_loss(report: "MirrorReport") -> bool:
    """Return whether a partition has stopped because its source lost records."""
    from kctl.mirror.loss import Loss

    return any(isinstance(each.error, Loss) for each in report.partitions)


def _show(session: "Session", report: "MirrorReport") -> None:
    rows = [_document(each) for each in report.partitions]
    columns = ["topic", "partition", "target", "records", "bytes", "position", "lag", "status"]
    session.output.show(rows, columns, name="target")
    carried = [each for each in report.groups.values() if each.error is None]
    if report.groups:
        groups = len({each.group for each in carried})
        session.output.say(
            f"{counted(len(carried), 'offset')} of {counted(groups, 'group')} carried over"
        )


def _document(report: "PartitionReport") -> dict[str, Any]:
    known = report.is_held and report.end >= 0 and report.position >= 0
    lag = max(report.end - report.position, 0) if known else None
    return {
        "topic": report.source.topic,
        "partition": report.source.partition,
        "target": report.target.topic,
        "records": report.records,
        "bytes": report.bytes,
        "raw_batches": report.raw_batches,
        "rebuilt_batches": report.rebuilt_batches,
        "position": report.position if report.position >= 0 else None,
        "lag": lag,
        "status": _status(report, lag),
    }


def _status(report: "PartitionReport", lag: int | None) -> str:
    from kctl.mirror.loss import Loss

    error = report.error
    if error is not None:
        return error.text if isinstance(error, Loss) else str(error)
    if report.losses:
        return "skipped: " + "; ".join(loss.text for loss in report.losses)
    if not report.is_held:
        return "moved to another worker"
    if lag is None:
        return "not begun"
    return "behind" if lag else "copied"
