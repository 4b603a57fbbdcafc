"""ZooKeeperGroups: consumer groups that keep their members, owners and offsets in ZooKeeper.

Both layouts are read, that of Kafka 0.7 and that of 0.8 to 1.1, and what other clients leave there.
A member is alive as long as its registration exists: it is ephemeral. An owner is a member if its
id is registered; the owner of a partition that is no member has left it behind, or has just died.

Many groups are read at once: the calls of one level of the tree are sent together. Offsets are
written in transactions, each write for the version of the znode that was read, so that a commit
which came between is never overwritten.

Kafka 0.7: kafka.tools.ConsumerOffsetChecker; Kafka 1.1: kafka.admin.ConsumerGroupCommand
(`--zookeeper`)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TypeVar

from kctl.admin.selection import is_pattern, matching
from kctl.errors import CorruptDataError, KctlError, UsageError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.store import znodes
from kctl.store.broker07_znodes import (
    broker_ids,
    is_broker07,
    read_partitions,
    topic_broker_path,
)
from kctl.store.consumer_znodes import (
    BrokerPartition,
    ConsumedPartition,
    Layout,
    Owner,
    Partition,
    Pattern,
    Subscription,
    consumer_id_path,
    consumer_ids_path,
    decode_consumer_offset,
    encode_consumer_offset,
    group_path,
    offset_path,
    offsets_path,
    owner_path,
    owners_path,
    parse_partition,
    read_owner,
    read_subscription,
)
from kctl.store.errors import MultiError, NoNodeError, StoreError
from kctl.store.interface import Create, Delete, Operation, Set
from kctl.store.topic_filter import registered_filter
from kctl.store.znode_client import ZnodeClient

K = TypeVar("K")

# Offsets written by one transaction; a ZooKeeper server accepts requests of up to 1 MB.
WRITES_PER_TRANSACTION = 200


@dataclass(frozen=True, slots=True)
class ZooKeeperMember:
    """A live consumer; subscription None: registered in a way that no known client uses."""

    consumer_id: str
    subscription: Subscription | None


@dataclass(slots=True)
class PartitionProgress:
    """What a group has of a partition; None where there is no such znode."""

    partition: ConsumedPartition
    offset: int | None = None
    # The version of the znode of the offset.
    version: int | None = None
    owner: Owner | None = None
    # Whether the owner is a member.
    is_owner_alive: bool = False
    error: CorruptDataError | None = None


@dataclass(slots=True)
class ZooKeeperGroup:
    """A group, its live members, and the partitions with an offset or an owner, in order."""

    group_id: str
    layout: Layout
    members: list[ZooKeeperMember] = field(default_factory=list)
    partitions: dict[ConsumedPartition, PartitionProgress] = field(default_factory=dict)

    @property
    def offsets(self) -> dict[ConsumedPartition, int]:
        """Return the committed offsets."""
        progress = self.partitions.items()
        return {it: found.offset for it, found in progress if found.offset is not None}

    def partitions_by_owner(self) -> dict[str, list[ConsumedPartition]]:
        """Return the partitions that each consumer owns, in order."""
        owned: dict[str, list[ConsumedPartition]] = {}
        for it, progress in self.partitions.items():
            if progress.owner is not None:
                owned.setdefault(progress.owner.consumer_id, []).append(it)
        return owned

    @property
    def why_not_at_rest(self) -> str | None:
        """Return which live members could overwrite the group's offsets, or None."""
        if not self.members:
            return None
        names = ", ".join(it.consumer_id for it in self.members)
        return f"Group {self.group_id} has live members in ZooKeeper: {names}"


class ZooKeeperGroups:
    """The groups below `/consumers`."""

    def __init__(self, client: ZnodeClient) -> None:
        self._client = client

    async def select(self, names: Sequence[str], *, must_match: bool = False) -> list[str]:
        """Return the ids that names and globs select, or all; a name whether it exists or not.

        With `must_match`, raise NotFoundError if there are globs and nothing is selected.
        """
        exact = [name for name in names if not is_pattern(name)]
        if names and len(exact) == len(names):
            return list(dict.fromkeys(exact))
        known = await self._client.children(znodes.CONSUMERS)
        globs = [name for name in names if is_pattern(name)]
        selected = list(dict.fromkeys([*exact, *matching(known, globs)]))
        if must_match and globs and not selected:
            raise not_found("group", globs[0], sorted(known))
        return selected

    async def all_ids(self) -> list[str]:
        """Return the ids of all groups, sorted."""
        return await self._client.children(znodes.CONSUMERS)

    async def layout(self) -> Layout | None:
        """Return the layout of the brokers that are registered, or None if there are none."""
        for found in await self._client.get_all(
            f"{znodes.BROKER_IDS}/{it}" for it in await self._client.children(znodes.BROKER_IDS)
        ):
            if found is not None:
                return Layout.KAFKA_0_7 if is_broker07(found[0]) else Layout.KAFKA_0_8
        return None

    async def read(self, group_ids: Iterable[str]) -> dict[str, ZooKeeperGroup]:
        """Return the groups that exist, with all that is registered of them."""
        wanted = list(dict.fromkeys(group_ids))
        exist = await self._client.get_all(map(group_path, wanted))
        names = [name for name, found in zip(wanted, exist, strict=True) if found is not None]
        layout = await self.layout()
        groups = {name: ZooKeeperGroup(name, layout or Layout.KAFKA_0_8) for name in names}
        await self._read_members(groups)
        await self._read_offsets(groups)
        for group in groups.values():
            group.layout = _layout_of(group.partitions) or group.layout
        await self._read_owners(groups)
        for group in groups.values():
            found = group.partitions
            group.partitions = {it: found[it] for it in sorted(found, key=lambda it: it.sort_key)}
        return groups

    async def read_members(self, group_ids: Iterable[str]) -> dict[str, ZooKeeperGroup]:
        """Return groups with their members alone, which takes much less time; also groups that do
        not exist."""
        groups = {name: ZooKeeperGroup(name, Layout.KAFKA_0_8) for name in group_ids}
        await self._read_members(groups)
        return groups

    async def _read_members(self, groups: Mapping[str, ZooKeeperGroup]) -> None:
        ids = await self._children({name: consumer_ids_path(name) for name in groups})
        places = [(name, consumer_id) for name, found in ids.items() for consumer_id in found]
        answers = await self._client.get_all(consumer_id_path(*place) for place in places)
        for (name, consumer_id), answer in zip(places, answers, strict=True):
            # What is not ephemeral is no sign of life.
            if answer is not None and answer[1].ephemeral_owner:
                member = ZooKeeperMember(consumer_id, read_subscription(answer[0]))
                groups[name].members.append(member)

    async def _read_offsets(self, groups: Mapping[str, ZooKeeperGroup]) -> None:
        places = await self._partitions_below(offsets_path, groups)
        answers = await self._client.get_all(offset_path(name, *it) for name, it in places)
        for (name, partition_), answer in zip(places, answers, strict=True):
            if answer is None:
                continue
            progress = PartitionProgress(partition_, version=answer[1].version)
            try:
                progress.offset = decode_consumer_offset(answer[0])
            except CorruptDataError as error:
                progress.error = error
            groups[name].partitions[partition_] = progress

    async def _read_owners(self, groups: Mapping[str, ZooKeeperGroup]) -> None:
        places = await self._partitions_below(owners_path, groups)
        members = {
            name: {member.consumer_id for member in group.members} for name, group in groups.items()
        }
        answers = await self._client.get_all(owner_path(name, *it) for name, it in places)
        for (name, named), answer in zip(places, answers, strict=True):
            if answer is None:
                continue
            group = groups[name]
            partition_ = _owned(named, group.layout)
            progress = group.partitions.setdefault(partition_, PartitionProgress(partition_))
            progress.owner = read_owner(answer[0], members[name])
            progress.is_owner_alive = progress.owner.consumer_id in members[name]

    async def _partitions_below(
        self, path_of: Callable[..., str], group_ids: Iterable[str]
    ) -> list[tuple[str, ConsumedPartition]]:
        """Return group and partition of the znodes two levels below `path_of(group)`."""
        topics = await self._children({name: path_of(name) for name in group_ids})
        partitions = await self._children(
            {(name, topic): path_of(name, topic) for name in topics for topic in topics[name]}
        )
        return [
            (name, ConsumedPartition(topic, parsed))
            for (name, topic), numbers in partitions.items()
            for parsed in map(parse_partition, numbers)
            if parsed is not None
        ]

    async def _children(self, paths: Mapping[K, str]) -> dict[K, list[str]]:
        """Return the names of the children of many znodes, none for a missing one."""
        store = self._client.store
        answers = await self._client.call_all(
            partial(store.children, path) for path in paths.values()
        )
        found: dict[K, list[str]] = {}
        for key, answer in zip(paths, answers, strict=True):
            if isinstance(answer, NoNodeError):
                continue
            if isinstance(answer, StoreError):
                raise answer
            found[key] = answer
        return found

    async def topics(self) -> list[str]:
        """Return the names of all topics of the cluster, sorted."""
        return await self._client.children(znodes.TOPICS)

    async def partitions_of(
        self, topics: Iterable[str], layout: Layout
    ) -> dict[str, list[Partition]]:
        """Return the partitions of the topics that exist."""
        wanted = sorted(set(topics))
        if layout is Layout.KAFKA_0_7:
            return await self._partitions_07(wanted)
        found = await self._client.get_all(map(znodes.topic_path, wanted))
        return {
            topic: sorted(znodes.decode_topic(topic, answer[0]))
            for topic, answer in zip(wanted, found, strict=True)
            if answer is not None
        }

    async def _partitions_07(self, topics: Sequence[str]) -> dict[str, list[Partition]]:
        brokers = await self._children({topic: znodes.topic_path(topic) for topic in topics})
        places = [(topic, it) for topic, found in brokers.items() for it in broker_ids(found)]
        answers = await self._client.get_all([topic_broker_path(*place) for place in places])
        partitions = read_partitions(places, answers)
        return {topic: list(partitions.get(topic, ())) for topic in brokers}

    # --- changes

    async def write_offsets(
        self,
        group_id: str,
        offsets: Mapping[ConsumedPartition, int | None],
        versions: Mapping[ConsumedPartition, int | None],
    ) -> dict[ConsumedPartition, KctlError | None]:
        """Set offsets, or delete them where they are None; return the error of each, or None.

        `versions` are those of the znodes that were read, None where there was none: what another
        client has written since then stays, and is reported. KctlError for live members.
        """
        if not offsets:
            return {}
        members = await self._client.children(consumer_ids_path(group_id))
        if members:
            raise KctlError(f"Group {group_id} has live members in ZooKeeper: {', '.join(members)}")
        for topic in sorted({it.topic for it in offsets}):
            await self._client.make_path(offsets_path(group_id, topic))
        # What is to be deleted and is not there needs no write.
        waiting = [it for it, new in offsets.items() if not (new is versions.get(it) is None)]
        results: dict[ConsumedPartition, KctlError | None] = dict.fromkeys(offsets)
        for start in range(0, len(waiting), WRITES_PER_TRANSACTION):
            chunk = waiting[start : start + WRITES_PER_TRANSACTION]
            # The others of a transaction that is rejected for one are written without it.
            while chunk:
                operations = [_write(group_id, it, offsets[it], versions.get(it)) for it in chunk]
                rejected = await self._write_together(operations)
                if rejected is None:
                    break
                number, error = rejected
                culprit = chunk.pop(number)
                results[culprit] = KctlError(f"not written, as its znode has changed: {error}")
        return results

    async def _write_together(
        self, operations: Sequence[Operation]
    ) -> tuple[int, StoreError] | None:
        try:
            await self._client.call(lambda: self._client.store.multi(operations))
        except MultiError as error:
            return error.index, error.error
        return None

    async def delete(self, group_ids: Iterable[str]) -> dict[str, KctlError | None]:
        """Delete groups without live members, with their offsets; return the error of each."""
        results: dict[str, KctlError | None] = {}
        groups = await self.read(group_ids)
        for name in dict.fromkeys(group_ids):
            if name not in groups:
                results[name] = KctlError(f"No group {name} in ZooKeeper")
            elif reason := groups[name].why_not_at_rest:
                results[name] = KctlError(reason)
            else:
                await self._client.delete_recursive(group_path(name))
                results[name] = None
        return results


def _write(
    group_id: str, partition_: ConsumedPartition, offset: int | None, version: int | None
) -> Operation:
    path = offset_path(group_id, *partition_)
    if version is None:
        return Create(path, encode_consumer_offset(offset or 0))
    if offset is None:
        return Delete(path, version)
    return Set(path, encode_consumer_offset(offset), version)


def _layout_of(partitions: Iterable[ConsumedPartition]) -> Layout | None:
    """Return the layout that a group's offsets have, None if there are none or of both."""
    kinds = {isinstance(it.partition, BrokerPartition) for it in partitions}
    if len(kinds) != 1:
        return None
    return Layout.KAFKA_0_7 if kinds == {True} else Layout.KAFKA_0_8


def _owned(named: ConsumedPartition, layout: Layout) -> ConsumedPartition:
    """Return the partition that an owner znode stands for: on later clusters, pykafka names them by
    their leaders too."""
    if layout is Layout.KAFKA_0_8 and isinstance(named.partition, BrokerPartition):
        return ConsumedPartition(named.topic, named.partition.partition)
    return named


def subscribed_topics(group: ZooKeeperGroup, topics: Sequence[str]) -> dict[str, set[str]]:
    """Return the topics of a group and the ids of the members that read them.

    Of a filter that is not supported (`topic_filter`), the members read what they own.
    """
    readers: dict[str, set[str]] = {}
    by_owner = group.partitions_by_owner()
    for member in group.members:
        subscription = member.subscription
        owned = {it.topic for it in by_owner.get(member.consumer_id, ())}
        for topic in owned if subscription is None else _matched(subscription, topics, owned):
            readers.setdefault(topic, set()).add(member.consumer_id)
    return readers


def _matched(subscription: Subscription, topics: Sequence[str], owned: set[str]) -> set[str]:
    if subscription.pattern is Pattern.STATIC:
        return set(subscription.streams)
    try:
        allows = registered_filter(subscription).allows
    except UsageError:
        return owned
    return {topic for topic in topics if allows(topic)}
