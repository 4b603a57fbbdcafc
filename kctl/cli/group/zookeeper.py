"""The groups of ZooKeeper on the command line: kctl group list, describe and delete with
--zookeeper, and kctl group rebalance-check.

Kafka 1.1: kafka.admin.ConsumerGroupCommand (`--zookeeper`), kafka.tools.VerifyConsumerRebalance
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.zookeeper_cluster import GroupLag, ZooKeeperCluster, ZooKeeperDeletion
    from kctl.admin.zookeeper_groups import ZooKeeperGroup, ZooKeeperMember
    from kctl.store.consumer_znodes import ConsumedPartition, Partition

T = TypeVar("T")
Work = Callable[["ZooKeeperCluster"], Coroutine[Any, Any, T]]

ADDRESS = "HOST:PORT[/PATH]"
ZooKeeperOption = Annotated[
    str | None,
    Option("--zookeeper", metavar=ADDRESS, help="Of the groups in ZooKeeper (Kafka 0.7 to 1.1)."),
]
NeededZooKeeperOption = Annotated[
    str, Option("--zookeeper", metavar=ADDRESS, help="The ZooKeeper of the cluster.")
]

_LAG_COLUMNS = (
    "topic", "partition", "zookeeper_offset", "kafka_offset", "end_offset", "lag", "owner",
    "owner_state",
)  # fmt: skip
_MEMBER_COLUMNS = ("member", "pattern", "subscription", "partition_count", "assignment")


def run_on_zookeeper(
    session: Session, zookeeper: str, work: "Work[T]", *, needs_brokers: bool = False
) -> T:
    """Run `work` with the cluster at `zookeeper` and return its result.

    With `needs_brokers`, the brokers that the command line names must belong to the same cluster;
    where it names none, they are those that are registered in ZooKeeper.
    """
    from kctl.admin.zookeeper_cluster import on_zookeeper

    settings, guard = session.settings, session.settings.guard
    guard.check_may_use_zookeeper()
    if needs_brokers and not session.names_a_cluster:
        return run_on_zookeeper(
            session,
            zookeeper,
            lambda cluster: cluster.with_registered_brokers(
                settings.properties, work, reads_only=guard.is_read_only
            ),
        )
    return session.run(
        lambda admin: on_zookeeper(
            admin, zookeeper, guard.check_cluster, work, needs_brokers=needs_brokers
        ),
        by_brokers=needs_brokers,
    )


def list_in_zookeeper(session: Session, zookeeper: str, patterns: list[str]) -> int:
    """Print the groups in ZooKeeper."""
    groups = run_on_zookeeper(session, zookeeper, lambda cluster: cluster.list_groups(patterns))
    documents = [
        {
            "group": group.group_id,
            "layout": group.layout,
            "members": len(group.members),
            "topics": len({it.topic for it in group.partitions}),
            "offsets": len(group.offsets),
        }
        for group in groups
    ]
    session.output.show(
        documents, ["group", "layout", "members", "topics", "offsets"], name="group"
    )
    return DONE


def describe_in_zookeeper(
    session: Session, zookeeper: str, names: list[str], *, shows_members: bool
) -> int:
    """Print the offsets, the lag and the owners of groups in ZooKeeper, or their members."""
    properties = None if session.names_a_cluster else session.settings.properties
    found = run_on_zookeeper(session, zookeeper, lambda it: it.describe(names, properties))
    if found.unreachable is not None:
        session.output.say(f"warning: the ends of partitions are unknown: {found.unreachable}")
    documents = [_document(group, lags) for group, lags in found.groups]
    columns = _MEMBER_COLUMNS if shows_members else _LAG_COLUMNS
    key = "members" if shows_members else "partitions"
    tables = [Table(columns, _rows(item, key), _heading(item)) for item in documents]
    session.output.show(documents, name="group", tables=tables)
    for name, hint in found.missing.items():
        session.output.say(
            f"error: No group {name} in ZooKeeper" + (f"\nhint: {hint}" if hint else "")
        )
    return FAILED if found.missing else DONE


def _document(group: "ZooKeeperGroup", lags: "list[GroupLag]") -> dict[str, Any]:
    known = [lag.lag for lag in lags if lag.lag is not None]
    owned = group.partitions_by_owner()
    return {
        "group": group.group_id,
        "layout": group.layout,
        "total_lag": sum(known) if known else None,
        "members": [_member(it, owned.get(it.consumer_id, ())) for it in group.members],
        "partitions": [_lag_row(lag) for lag in lags],
    }


def _member(member: "ZooKeeperMember", owned: "Sequence[ConsumedPartition]") -> dict[str, Any]:
    subscription = member.subscription
    return {
        "member": member.consumer_id,
        "pattern": subscription.pattern if subscription else None,
        "subscription": subscription.streams if subscription else None,
        "assignment": [str(it) for it in owned],
    }


def _lag_row(lag: "GroupLag") -> dict[str, Any]:
    state = None if lag.owner is None else "alive" if lag.is_owner_alive else "not registered"
    return {
        "topic": lag.partition.topic,
        "partition": shown_number(lag.partition.partition),
        "zookeeper_offset": lag.zookeeper_offset,
        "kafka_offset": lag.kafka_offset,
        "end_offset": lag.end_offset,
        "lag": lag.lag,
        "owner": lag.owner,
        "owner_state": state,
        "error": None if lag.error is None else str(lag.error),
    }


def shown_number(partition: "Partition") -> int | str:
    """Return a partition as a number, or as `B-P` for Kafka 0.7."""
    return partition if isinstance(partition, int) else str(partition)


def _rows(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    if key == "partitions":
        return list(document[key])
    return [
        {
            **member,
            "subscription": [f"{it}={n}" for it, n in (member["subscription"] or {}).items()],
            "partition_count": len(member["assignment"]),
        }
        for member in document[key]
    ]


def _heading(document: dict[str, Any]) -> str:
    lag = document["total_lag"]
    return (
        f"{document['group']} (in ZooKeeper, layout of Kafka {document['layout']}): "
        f"{counted(len(document['members']), 'member')}, lag {'unknown' if lag is None else lag}"
    )


def delete_in_zookeeper(session: Session, zookeeper: str, names: list[str]) -> int:
    """Delete groups in ZooKeeper; the command shows the plan and asks first."""

    change = run_on_zookeeper(
        session,
        zookeeper,
        lambda cluster: session.carry_out(
            cluster,
            lambda it: it.plan_deletion(names),
            _deletion_question,
            lambda it, plan: it.groups.delete([group.group_id for group in plan.groups]),
        ),
    )
    if change.is_declined:
        return DONE
    plan, results = change.plan, change.result
    status = "would delete" if results is None else "deleted"
    rows = [
        row("group", it.group_id, status, (results or {}).get(it.group_id)) for it in plan.groups
    ]
    rows += [row("group", name, "", error) for name, error in plan.refused.items()]
    return show_results(session, rows, "group")


def _deletion_question(plan: "ZooKeeperDeletion") -> Question | None:
    if not plan.groups:
        return None
    rows = [{"group": it.group_id, "offsets": len(it.offsets)} for it in plan.groups]
    text = f"Delete {counted(len(rows), 'group')} from ZooKeeper?"
    return Question(Table(["group", "offsets"], rows), text)


def rebalance_check(
    session: Session,
    name: Annotated[str, Argument(metavar="GROUP", help="A group in ZooKeeper.")],
    zookeeper: NeededZooKeeperOption,
) -> int:
    """Check that every partition of the topics that a group reads has an owner that is registered
    and reads the topic. The exit status is 1 if one has not.

    \b
    Examples:
      kctl group rebalance-check billing --zookeeper zk1:2181
      kctl group rebalance-check billing --zookeeper zk1:2181/kafka -o json
    """
    findings = run_on_zookeeper(session, zookeeper, lambda it: it.check_rebalance(name))
    if not findings:
        session.output.say(f"Group {name} has no live members in ZooKeeper that read a topic.")
    rows = [
        {
            "topic": it.partition.topic,
            "partition": shown_number(it.partition.partition),
            "owner": it.owner,
            **row("partition_name", str(it.partition), "owned", it.problem),
        }
        for it in findings
    ]
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


def refuse_with_zookeeper(given: dict[str, object]) -> None:
    """Raise UsageError for an option that has no meaning for groups in ZooKeeper."""
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} and --zookeeper cannot be combined")
