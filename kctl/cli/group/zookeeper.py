"""The groups of ZooKeeper on the command line: kctl group list, describe and delete with
--zookeeper, and kctl group rebalance-check.

Kafka 1.1: kafka.admin.ConsumerGroupCommand (`--zookeeper`), kafka.tools.VerifyConsumerRebalance
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import counted, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.errors import KctlError, UnreachableError, UsageError, close_name

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.zookeeper_cluster import GroupLag, RebalanceFinding, ZooKeeperCluster
    from kctl.admin.zookeeper_groups import ZooKeeperGroup, ZooKeeperMember

T = TypeVar("T")
Work = Callable[["AdminClient", "ZooKeeperCluster"], Coroutine[Any, Any, T]]

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

    With `needs_brokers`, the brokers of the session must belong to the same cluster.
    """
    from kctl.admin.zookeeper_cluster import on_zookeeper, refuse_another_cluster

    guard = session.settings.guard
    guard.check_may_use_zookeeper()

    async def on_admin(admin: "AdminClient") -> T:
        of_brokers = (await admin.cluster.describe()).cluster_id if needs_brokers else None

        async def on_found(cluster: "ZooKeeperCluster") -> T:
            refuse_another_cluster(of_brokers, cluster)
            return await work(admin, cluster)

        return await on_zookeeper(admin, zookeeper, guard.check_cluster, on_found)

    return session.run(on_admin, by_brokers=needs_brokers)


def list_in_zookeeper(session: Session, zookeeper: str, patterns: list[str]) -> int:
    """Print the groups in ZooKeeper."""

    async def read(
        _admin: "AdminClient", cluster: "ZooKeeperCluster"
    ) -> "dict[str, ZooKeeperGroup]":
        from kctl.admin.selection import matching

        names = matching(await cluster.groups.all_ids(), patterns)
        return await cluster.groups.read(names)

    groups = run_on_zookeeper(session, zookeeper, read)
    documents = [
        {
            "group": group.group_id,
            "layout": group.layout,
            "members": len(group.members),
            "topics": len({it.topic for it in group.partitions}),
            "offsets": len(group.offsets),
        }
        for group in groups.values()
    ]
    session.output.show(
        documents, ["group", "layout", "members", "topics", "offsets"], name="group"
    )
    return DONE


def describe_in_zookeeper(
    session: Session, zookeeper: str, names: list[str], *, shows_members: bool
) -> int:
    """Print the offsets, the lag and the owners of groups in ZooKeeper, or their members."""
    notes: list[str] = []

    async def read(
        admin: "AdminClient", cluster: "ZooKeeperCluster"
    ) -> "list[tuple[ZooKeeperGroup, list[GroupLag]]]":
        wanted = await cluster.groups.select(names)
        groups = await cluster.groups.read(wanted)
        known = await cluster.groups.all_ids()
        for name in wanted:
            if name not in groups:
                close = close_name(name, known)
                hint = f"\nhint: did you mean {close}?" if close else ""
                notes.append(f"error: No group {name} in ZooKeeper{hint}")
        return await _with_lags(session, admin, cluster, list(groups.values()))

    found = run_on_zookeeper(session, zookeeper, read)
    documents = [_document(group, lags) for group, lags in found]
    columns = _MEMBER_COLUMNS if shows_members else _LAG_COLUMNS
    key = "members" if shows_members else "partitions"
    tables = [Table(columns, _rows(item, key), _heading(item)) for item in documents]
    session.output.show(documents, name="group", tables=tables)
    for note in notes:
        session.output.say(note)
    return FAILED if notes else DONE


async def _with_lags(
    session: Session,
    admin: "AdminClient",
    cluster: "ZooKeeperCluster",
    groups: "list[ZooKeeperGroup]",
) -> "list[tuple[ZooKeeperGroup, list[GroupLag]]]":
    """Return the groups with their lags, which the brokers of the command line know, or else those
    that are registered; unknown if none answers."""
    from kctl.admin.admin_client import AdminClient

    asked: AdminClient | None = admin if session.names_a_cluster else None
    found: AdminClient | None = None
    if asked is None and (servers := await cluster.bootstrap_servers()):
        settings = session.settings
        found = asked = AdminClient.connect(
            session.runtime, servers, settings.timeout_ms, settings.properties, reads_only=True
        )
    try:
        return [(group, await cluster.lags(group, asked)) for group in groups]
    except UnreachableError as error:
        session.output.say(f"warning: the ends of partitions are unknown: {error}")
        return [(group, await cluster.lags(group, None)) for group in groups]
    finally:
        if found is not None:
            found.close()


def _document(group: "ZooKeeperGroup", lags: "list[GroupLag]") -> dict[str, Any]:
    known = [lag.lag for lag in lags if lag.lag is not None]
    return {
        "group": group.group_id,
        "layout": group.layout,
        "total_lag": sum(known) if known else None,
        "members": [_member(group, member) for member in group.members],
        "partitions": [_lag_row(lag) for lag in lags],
    }


def _member(group: "ZooKeeperGroup", member: "ZooKeeperMember") -> dict[str, Any]:
    subscription = member.subscription
    owned = [
        it
        for it, progress in group.partitions.items()
        if progress.owner is not None and progress.owner.consumer_id == member.consumer_id
    ]
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
        "partition": _number(lag.partition.partition),
        "zookeeper_offset": lag.zookeeper_offset,
        "kafka_offset": lag.kafka_offset,
        "end_offset": lag.end_offset,
        "lag": lag.lag,
        "owner": lag.owner,
        "owner_state": state,
        "error": None if lag.error is None else str(lag.error),
    }


def _number(partition: Any) -> int | str:
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

    async def work(
        _admin: "AdminClient", cluster: "ZooKeeperCluster"
    ) -> "tuple[dict[str, ZooKeeperGroup], list[str], dict[str, KctlError | None] | None, bool]":
        wanted = await cluster.groups.select(names)
        groups = await cluster.groups.read(wanted)
        free = [name for name, it in groups.items() if not it.why_not_at_rest]

        async def plan(_target: object) -> list[str]:
            return free

        change = await session.carry_out(
            cluster.groups,
            plan,
            lambda chosen: _deletion_question([groups[name] for name in chosen]),
            lambda target, chosen: target.delete(chosen),
        )
        return groups, wanted, change.result, change.is_declined

    groups, wanted, results, is_declined = run_on_zookeeper(session, zookeeper, work)
    if is_declined:
        return DONE
    rows = []
    for name in wanted:
        group = groups.get(name)
        error: object = f"No group {name} in ZooKeeper" if group is None else group.why_not_at_rest
        status = "would delete" if results is None else "deleted"
        rows.append(row("group", name, status, error or (results or {}).get(name)))
    return show_results(session, rows, "group")


def _deletion_question(groups: "list[ZooKeeperGroup]") -> Question | None:
    if not groups:
        return None
    rows = [{"group": it.group_id, "offsets": len(it.offsets)} for it in groups]
    text = f"Delete {counted(len(groups), 'group')} from ZooKeeper?"
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

    async def check(_admin: "AdminClient", cluster: "ZooKeeperCluster") -> "list[RebalanceFinding]":
        from kctl.errors import not_found

        groups = await cluster.groups.read([name])
        if name not in groups:
            raise not_found("group", name, await cluster.groups.all_ids())
        return await cluster.check_rebalance(groups[name])

    findings = run_on_zookeeper(session, zookeeper, check)
    if not findings:
        session.output.say(f"Group {name} has no live members in ZooKeeper that read a topic.")
    rows = [
        {
            "topic": it.partition.topic,
            "partition": _number(it.partition.partition),
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
