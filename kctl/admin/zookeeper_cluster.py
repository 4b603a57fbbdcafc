"""ZooKeeperCluster: a cluster as its ZooKeeper knows it, with the groups that it keeps there."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

from kctl.admin.offsets07 import log_ends
from kctl.admin.selection import did_you_mean, is_pattern, matching
from kctl.admin.zookeeper_groups import (
    ZooKeeperGroup,
    ZooKeeperGroups,
    ZooKeeperMember,
    subscribed_topics,
)
from kctl.errors import KctlError, UnreachableError, UsageError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import SecurityProtocol, TopicPartition
from kctl.store import znodes
from kctl.store.consumer_znodes import BrokerPartition, ConsumedPartition, Layout

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.committed_offsets import Scope
    from kctl.store.cluster_store import ClusterStore

T = TypeVar("T")


@dataclass(slots=True)
class GroupLag:
    """The progress of a group in one partition, in either store; None where it is unknown."""

    partition: ConsumedPartition
    zookeeper_offset: int | None
    kafka_offset: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    # The owner as its znode names it, and whether that consumer is registered.
    owner: str | None = None
    is_owner_alive: bool = False
    error: KctlError | None = None

    @property
    def lag(self) -> int | None:
        """Return the records between the offset in ZooKeeper, else in Kafka, and the end; bytes in
        the layout of Kafka 0.7."""
        offset = self.kafka_offset if self.zookeeper_offset is None else self.zookeeper_offset
        if offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - offset)


@dataclass(slots=True)
class ZooKeeperOverview:
    """Groups with the progress of their partitions."""

    groups: list[tuple[ZooKeeperGroup, list[GroupLag]]] = field(default_factory=list)
    # Unknown names with a hint, or None.
    missing: dict[str, str | None] = field(default_factory=dict)
    # Why nothing is known of the brokers.
    unreachable: UnreachableError | None = None


@dataclass(slots=True)
class ZooKeeperDeletion:
    """The groups to delete, and why some of those named are not."""

    groups: list[ZooKeeperGroup] = field(default_factory=list)
    refused: dict[str, KctlError] = field(default_factory=dict)


@dataclass(slots=True)
class RebalanceFinding:
    """A partition of a topic that a group reads, and what is wrong with its owner, or None."""

    partition: ConsumedPartition
    owner: str | None
    problem: str | None = None


class ZooKeeperCluster:
    """The groups of a cluster, and its brokers as far as they can be asked; `admin` is a client of
    brokers that the caller has named, if any."""

    def __init__(self, store: "ClusterStore", admin: "AdminClient", cluster_id: str | None) -> None:
        self._store = store
        self.admin = admin
        self.groups = ZooKeeperGroups(store)
        # None before Kafka 0.10.1.
        self.cluster_id = cluster_id

    async def bootstrap_servers(self) -> list[tuple[str, int]]:
        """Return the addresses of brokers of Kafka 0.8 and later, of PLAINTEXT listeners if there
        are any."""
        if await self.groups.layout() is not Layout.KAFKA_0_8:
            return []
        brokers = (await self._store.get_all_brokers()).values()
        endpoints = [endpoint for broker in brokers for endpoint in broker.endpoints]
        plain = [it for it in endpoints if it.security_protocol is SecurityProtocol.PLAINTEXT]
        return [(it.host, it.port) for it in plain or endpoints]

    async def list_groups(self, patterns: Sequence[str] = ()) -> list[ZooKeeperGroup]:
        """Return the groups that match a name or glob; without patterns, all."""
        names = matching(await self.groups.all_ids(), patterns)
        return list((await self.groups.read(names)).values())

    async def group(self, name: str) -> ZooKeeperGroup:
        """Return a group; raise NotFoundError."""
        found = (await self.groups.read([name])).get(name)
        if found is None:
            raise not_found("group", name, await self.groups.all_ids())
        return found

    async def describe(
        self, names: Sequence[str], properties: Mapping[str, str] | None = None
    ) -> ZooKeeperOverview:
        """Return the groups that names and globs select, or all, with their lags.

        The brokers that are registered are asked, with these client settings; without
        `properties`, those of `admin`. If none answers, the ends of partitions stay unknown.
        """
        wanted = await self.groups.select(names)
        groups = await self.groups.read(wanted)
        found = ZooKeeperOverview()
        if len(groups) < len(wanted):
            known = await self.groups.all_ids()
            found.missing = {
                name: did_you_mean(name, known) for name in wanted if name not in groups
            }
        asked = self.admin if properties is None else await self._registered_brokers(properties)
        try:
            found.groups = [(it, await self.lags(it, asked)) for it in groups.values()]
        except UnreachableError as error:
            found.unreachable = error
            found.groups = [(it, await self.lags(it, None)) for it in groups.values()]
        finally:
            if asked is not None and asked is not self.admin:
                asked.close()
        return found

    async def with_registered_brokers(
        self,
        properties: Mapping[str, str],
        work: "Callable[[ZooKeeperCluster], Awaitable[T]]",
        *,
        reads_only: bool,
    ) -> T:
        """Return the result of `work` with the brokers that are registered, asked with these
        client settings. Raise UnreachableError if there are none."""
        admin = await self._registered_brokers(properties, reads_only=reads_only)
        if admin is None:
            raise UnreachableError(
                "no broker of Kafka 0.8 or later is registered in ZooKeeper",
                hint="start one, or name brokers with -b",
            )
        try:
            return await work(ZooKeeperCluster(self._store, admin, self.cluster_id))
        finally:
            admin.close()

    async def _registered_brokers(
        self, properties: Mapping[str, str], *, reads_only: bool = True
    ) -> "AdminClient | None":
        from kctl.admin.admin_client import AdminClient

        servers = await self.bootstrap_servers()
        if not servers:
            return None
        router = self.admin.router
        return AdminClient.connect(
            router.runtime, servers, router.timeout_ms, properties, reads_only=reads_only
        )

    async def plan_deletion(self, names: Sequence[str]) -> ZooKeeperDeletion:
        """Return the groups that names and globs select, without those that have live members.

        Raise NotFoundError if nothing is selected.
        """
        plan = ZooKeeperDeletion()
        wanted = await self.groups.select(names, must_match=True)
        groups = await self.groups.read(wanted)
        for name in wanted:
            group = groups.get(name)
            if group is None:
                plan.refused[name] = KctlError(f"No group {name} in ZooKeeper")
            elif reason := group.why_not_at_rest:
                plan.refused[name] = KctlError(reason)
            else:
                plan.groups.append(group)
        return plan

    async def lags(self, group: ZooKeeperGroup, admin: "AdminClient | None") -> list[GroupLag]:
        """Return the progress of a group in every partition of its topics, in order.

        Without `admin`, nothing is known of the brokers but of those of Kafka 0.7, which are found
        by their registration. Raise UnreachableError, ApiError.
        """
        lags = {it: _progress(group, it) for it in await self._partitions(group)}
        await self._add_ends_07(lags)
        if admin is None:
            return list(lags.values())
        committed = await admin.offsets.committed(group.group_id)
        for partition, found in committed.items():
            if found.error is None:
                named = ConsumedPartition(*partition)
                lags.setdefault(named, _progress(group, named)).kafka_offset = found.offset
        await _add_ends(lags, admin)
        return [lags[it] for it in sorted(lags, key=lambda it: it.sort_key)]

    async def _add_ends_07(self, lags: Mapping[ConsumedPartition, GroupLag]) -> None:
        old = [it for it in lags if isinstance(it.partition, BrokerPartition)]
        if not old:
            return
        router = self.admin.router
        found = await log_ends(router.runtime, self._store, old, router.timeout_ms)
        for partition, ends in found.items():
            lag = lags[partition]
            lag.start_offset, lag.end_offset = ends.start, ends.end
            lag.error = lag.error or ends.error

    async def export_offsets(
        self, names: Sequence[str], scope: "Scope"
    ) -> dict[str, dict[ConsumedPartition, int]]:
        """Return the offsets, in `scope`, of the groups that names and globs select.

        Raise NotFoundError for a name or globs without a group, CorruptDataError for an offset
        that is no number.
        """
        wanted = await self.groups.select(names, must_match=True)
        groups = await self.groups.read(wanted)
        for name in names:
            if name not in groups and not is_pattern(name):
                raise not_found("group", name, await self.groups.all_ids())
        for group in groups.values():
            for progress in group.partitions.values():
                if progress.error is not None:
                    raise progress.error
        return {
            name: {
                it: offset for it, offset in group.offsets.items() if not scope or _is_in(it, scope)
            }
            for name, group in groups.items()
        }

    async def _partitions(self, group: ZooKeeperGroup) -> list[ConsumedPartition]:
        topics = set(subscribed_topics(group, await self.groups.topics()))
        topics |= {it.topic for it in group.partitions}
        exist = await self.groups.partitions_of(topics, group.layout)
        every = {ConsumedPartition(topic, it) for topic, found in exist.items() for it in found}
        return sorted(every | set(group.partitions), key=lambda it: it.sort_key)

    async def check_rebalance(self, name: str) -> list[RebalanceFinding]:
        """Return every partition of the topics that members of a group read: each must have an
        owner, which is a member that reads the topic. Raise NotFoundError.

        Kafka 1.1: kafka.tools.VerifyConsumerRebalance
        """
        group = await self.group(name)
        readers = subscribed_topics(group, await self.groups.topics())
        members = {it.consumer_id: it for it in group.members}
        partitions = await self.groups.partitions_of(readers, group.layout)
        return [
            _finding(group, ConsumedPartition(topic, number), members, readers[topic])
            for topic, found in sorted(partitions.items())
            for number in found
        ]


async def on_zookeeper(
    admin: "AdminClient",
    zookeeper: str,
    check_cluster: Callable[[str | None], object],
    work: Callable[[ZooKeeperCluster], Awaitable[T]],
    *,
    needs_brokers: bool,
) -> T:
    """Run `work` on the cluster at `zookeeper` (HOST:PORT[/PATH]).

    `check_cluster` gets the id of the cluster, and may raise. Raise UsageError if ZooKeeper holds
    neither brokers nor groups, and with `needs_brokers` if the brokers of `admin` belong to another
    cluster; UnreachableError.
    """
    of_brokers = (await admin.cluster.describe()).cluster_id if needs_brokers else None
    from kctl.store.cluster_store import ClusterStore
    from kctl.store.zookeeper import COMMAND_CONNECTION_MS_MAX, ZooKeeperStore

    timeout_ms = admin.router.timeout_ms
    connection = await ZooKeeperStore.open(
        admin.router.runtime,
        zookeeper,
        connection_timeout_ms=min(timeout_ms, COMMAND_CONNECTION_MS_MAX),
    )
    try:
        store = ClusterStore(connection)
        if not (await store.exists(znodes.BROKERS) or await store.exists(znodes.CONSUMERS)):
            raise UsageError(
                f"No Kafka cluster at {zookeeper}",
                hint="check the chroot path: --zookeeper HOST:PORT/PATH",
            )
        cluster_id = await store.get_cluster_id()
        check_cluster(cluster_id)
        _refuse_another_cluster(of_brokers, cluster_id)
        return await work(ZooKeeperCluster(store, admin, cluster_id))
    finally:
        await connection.close()


def _refuse_another_cluster(of_brokers: str | None, cluster_id: str | None) -> None:
    """Raise UsageError if the brokers' cluster id is another than ZooKeeper's: offsets of one
    cluster mean nothing in another."""
    if of_brokers is not None and cluster_id is not None and of_brokers != cluster_id:
        raise UsageError(
            f"The brokers belong to the cluster {of_brokers}, ZooKeeper to {cluster_id}",
            hint="check -b and --zookeeper",
        )


def _progress(group: ZooKeeperGroup, partition: ConsumedPartition) -> GroupLag:
    found = group.partitions.get(partition)
    if found is None:
        return GroupLag(partition, None)
    owner = found.owner
    return GroupLag(
        partition,
        found.offset,
        owner=_owner_text(*owner) if owner is not None else None,
        is_owner_alive=found.is_owner_alive,
        error=found.error,
    )


def _is_in(partition: ConsumedPartition, scope: "Scope") -> bool:
    numbers = scope.get(partition.topic, ())
    named = partition.topic_partition
    return numbers is None or (named is not None and named.partition in numbers)


def _owner_text(consumer_id: str, thread: int | None) -> str:
    return consumer_id if thread is None else f"{consumer_id}-{thread}"


async def _add_ends(lags: Mapping[ConsumedPartition, GroupLag], admin: "AdminClient") -> None:
    known = {tp: lag for it, lag in lags.items() if (tp := it.topic_partition) is not None}
    partitions: list[TopicPartition] = sorted(known)
    if not partitions:
        return
    starts = await admin.offsets.earliest(partitions)
    ends = await admin.offsets.latest(partitions)
    for partition in partitions:
        lag, start, end = known[partition], starts[partition], ends[partition]
        lag.start_offset = start.offset if start.error is None else None
        lag.end_offset = end.offset if end.error is None else None
        lag.error = lag.error or end.error


def _finding(
    group: ZooKeeperGroup,
    partition: ConsumedPartition,
    members: Mapping[str, ZooKeeperMember],
    readers: set[str],
) -> RebalanceFinding:
    found = group.partitions.get(partition)
    owner = found.owner if found is not None else None
    if found is None or owner is None:
        return RebalanceFinding(partition, None, "no owner")
    text = _owner_text(*owner)
    if not found.is_owner_alive:
        return RebalanceFinding(partition, text, "the owner is not registered")
    if owner.consumer_id not in readers:
        return RebalanceFinding(partition, text, "the owner does not read the topic")
    subscription = members[owner.consumer_id].subscription
    if owner.thread is not None and subscription is not None:
        counts = subscription.streams
        count = counts.get(partition.topic, max(counts.values(), default=0))
        if owner.thread >= count:
            return RebalanceFinding(partition, text, "the owner has no such stream")
    return RebalanceFinding(partition, text)
