"""kctl group describe: shows the committed offsets and the lag of groups, once or repeatedly.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`describeGroups`)
"""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.group.listing import left_out, report_missing_brokers
from kctl.cli.group.zookeeper import (
    ZooKeeperOption,
    describe_in_zookeeper,
    refuse_with_zookeeper,
)
from kctl.cli.output import OutputFormat, Table
from kctl.cli.session import Session
from kctl.cli.units import format_instant, parse_duration_ms
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.group_descriptions import GroupDescription, MemberDescription, PartitionLag
    from kctl.admin.group_overview import GroupOverview
    from kctl.model import TopicPartition

_LAG_COLUMNS = (
    "topic", "partition", "committed_offset", "end_offset", "lag", "member", "host", "client",
)  # fmt: skip
_TOPIC_COLUMNS = ("topic", "partition_count", "assigned_count", "lag")
_MEMBER_COLUMNS = ("member", "instance", "client", "host", "partition_count", "assignment")
_WATCHED_FORMATS = (OutputFormat.TABLE, OutputFormat.NDJSON)


def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        Argument(metavar="GROUP", help="Names or globs. [default: all]"),
    ] = None,
    members: Annotated[
        bool, Option("--members", help="Show the members and their assignments.")
    ] = False,
    by_topic: Annotated[
        bool, Option("--by-topic", help="Show one line per topic, with its total lag.")
    ] = False,
    watch: Annotated[bool, Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    every: Annotated[
        str, Option("--every", metavar="DURATION", help="Interval of --watch.")
    ] = "2s",
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Show the committed offset, end offset, lag and member of each partition of groups.

    Of a share group, whose members acknowledge single records, the committed offset is that of the
    first record that is not acknowledged. Its members share partitions: --members shows them. A
    member of a group of Kafka Streams has the partitions that its active tasks read; -o json shows
    all tasks.

    With --zookeeper, the groups of Kafka 0.7 to 1.1 are shown, whose members, owners and offsets
    are in ZooKeeper, beside their offsets in Kafka.

    \b
    Examples:
      kctl group describe billing
      kctl group describe billing --members
      kctl group describe billing --by-topic --watch
      kctl group describe -o ndjson
      kctl group describe billing --zookeeper zk1:2181
    """
    if zookeeper is not None:
        refuse_with_zookeeper({"--by-topic": by_topic, "--watch": watch})
        return describe_in_zookeeper(session, zookeeper, names or [], shows_members=members)
    from kctl.admin.group_overview import describe_groups, watch_groups
    from kctl.cli.interrupt import Interrupt

    if members and by_topic:
        raise UsageError("--members and --by-topic cannot be combined")
    every_ms = parse_duration_ms(every)
    if watch and session.output.format not in _WATCHED_FORMATS:
        raise UsageError(
            f"--watch cannot be combined with -o {session.output.format}",
            hint="use -o table or -o ndjson",
        )
    if every_ms < 1:
        raise UsageError(f"--every must be at least 1ms, not {every}")
    columns = _MEMBER_COLUMNS if members else _TOPIC_COLUMNS if by_topic else _LAG_COLUMNS

    if not watch:
        found = session.run(lambda admin: describe_groups(admin, names or []))
        return _show(session, found, columns, is_watched=False)

    def keep_looking(admin: "AdminClient") -> Coroutine[Any, Any, None]:
        return watch_groups(
            admin,
            names or [],
            every_ms,
            lambda overview: _show(session, overview, columns, is_watched=True),
            lambda error: session.output.say(f"error: {error}"),
        )

    interrupt = Interrupt(session.runtime.scheduler)
    interrupt.run(lambda: session.run(keep_looking, interrupt.guard))
    return interrupt.status


def _show(
    session: Session, found: "GroupOverview", columns: tuple[str, ...], *, is_watched: bool
) -> int:
    """Print the groups and return the exit status."""
    documents = [_document(group, lags) for group, lags in found.groups]
    if is_watched:
        now = format_instant(session.now_ms())
        documents = [{"time": now, **document} for document in documents]
        if session.output.format is OutputFormat.TABLE:
            session.output.clear_screen()
            session.output.write(f"{now}\n")
    tables = [Table(columns, _rows(item, columns), _heading(item)) for item in documents]
    session.output.show(documents, name="group", tables=tables)
    for name, hint in found.missing.items():
        session.output.say(f"error: No group {name}" + (f"\nhint: {hint}" if hint else ""))
    is_partial = report_missing_brokers(session, found.listing) if found.listing else DONE
    return FAILED if found.missing else is_partial


def _document(group: "GroupDescription", lags: "list[PartitionLag]") -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        **_later_facts(group),
        "coordinator": group.coordinator,
        "total_lag": _sum(lags),
        "topics": [
            _topic_row(topic, [lag for lag in lags if lag.partition.topic == topic])
            for topic in dict.fromkeys(lag.partition.topic for lag in lags)
        ],
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host,
                "assignment": _assignment(member.partitions),
                **_later_member_facts(member),
            }
            for member in group.members
        ],
        "partitions": [_lag_row(lag) for lag in lags],
    }


def _later_facts(group: "GroupDescription") -> dict[str, Any]:
    """Return what groups of the consumer protocol and share groups have and classic ones lack."""
    if group.epoch is None:
        return {}
    return {
        "type": group.group_type,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
    }


def _later_member_facts(member: "MemberDescription") -> dict[str, Any]:
    if member.epoch is None:
        return {}
    facts: dict[str, Any] = {"epoch": member.epoch, "topics": member.subscribed_topics}
    if member.target_partitions is not None:
        facts["target_assignment"] = _assignment(member.target_partitions)
    if member.process_id is not None:
        facts["process"] = member.process_id
        facts["tasks"] = member.tasks
    return facts


def _assignment(partitions: "Sequence[TopicPartition]") -> list[dict[str, Any]]:
    return [{"topic": it.topic, "partition": it.partition} for it in partitions]


def _sum(lags: "list[PartitionLag]") -> int | None:
    """Return the sum of the known lags, or None if none is known."""
    known = [lag.lag for lag in lags if lag.lag is not None]
    return sum(known) if known else None


def _topic_row(topic: str, lags: "list[PartitionLag]") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition_count": len(lags),
        "assigned_count": sum(lag.member is not None for lag in lags),
        "lag": _sum(lags),
    }


def _lag_row(lag: "PartitionLag") -> dict[str, Any]:
    member = lag.member
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed_offset": lag.committed_offset,
        "start_offset": lag.log_start_offset,
        "end_offset": lag.log_end_offset,
        "lag": lag.lag,
        "member": member.member_id if member else None,
        "host": member.host if member else None,
        "client": member.client_id if member else None,
        "error": None if lag.error is None else str(lag.error),
    }


def _rows(document: dict[str, Any], columns: tuple[str, ...]) -> list[dict[str, Any]]:
    key = {_LAG_COLUMNS: "partitions", _TOPIC_COLUMNS: "topics"}.get(columns)
    if key is not None:
        return list(document[key])
    return [
        {
            **member,
            "partition_count": len(member["assignment"]),
            "assignment": [f"{it['topic']}-{it['partition']}" for it in member["assignment"]],
        }
        for member in document["members"]
    ]


def _heading(document: dict[str, Any]) -> str:
    lag = document["total_lag"]
    uncommitted = [it for it in document["partitions"] if it["committed_offset"] is None]
    sizes = [
        None
        if it["end_offset"] is None or it["start_offset"] is None
        else it["end_offset"] - it["start_offset"]
        for it in uncommitted
    ]
    kind = f" ({document['type']} group)" if "type" in document else ""
    return (
        f"{document['group']}{kind}: {document['state']}, "
        f"{counted(len(document['members']), 'member')}, "
        f"coordinator {document['coordinator']}, lag {'unknown' if lag is None else lag}"
        + (f", and {left_out(sizes)}" if uncommitted else "")
    )
