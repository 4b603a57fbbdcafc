"""ConsumerRegistry: a group's consumers, claims of partitions and offsets, as znodes.

What depends on a session says so in the write itself. A consumer has another id in each session,
so its id znode exists exactly as long as that session: a write that checks the id znode is one of
that session, whatever was lost, repeated or delayed on the way.

Claims and commits of many partitions are multis of MULTI_PARTITIONS_MAX each. `multi` needs
ZooKeeper 3.4.

Kafka 1.1: kafka.utils.ZkUtils, kafka.consumer.ZookeeperConsumerConnector.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from kctl.errors import CorruptDataError
from kctl.store import znodes
from kctl.store.broker07_znodes import (
    BrokerInfo07,
    broker_ids,
    decode_broker,
    read_partitions,
    topic_broker_path,
)
from kctl.store.consumer_znodes import (
    ConsumedPartition,
    Layout,
    OwnerZnode,
    Partition,
    Subscription,
    consumer_id_path,
    consumer_ids_path,
    decode_consumer_offset,
    encode_consumer_offset,
    encode_owner,
    offset_path,
    offsets_path,
    owner_path,
    owners_path,
    parse_partition,
    read_subscription,
)
from kctl.store.errors import (
    BadVersionError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from kctl.store.interface import Check, Create, Delete, MetadataStore, Operation, Set, Watch
from kctl.store.znode_client import ZnodeClient

T = TypeVar("T")

# Partitions claimed, released or committed by one multi; a request to ZooKeeper has at most 1 MiB.
MULTI_PARTITIONS_MAX = 1_000
# The end of ids that Kafka 0.7 to 1.1 and kctl draw, `GROUP_HOST-MILLIS-UUID8`.
_DRAWN_ID = re.compile(r"-\d{10,}-[0-9a-f]{8}$")
# Attempts to commit while other clients create or delete the same offsets.
COMMIT_ATTEMPTS_MAX = 5
# Attempts to remove what a former session left, while that is just ending.
REMOVAL_ATTEMPTS_MAX = 5


class LostClaimError(StoreError):
    """The consumer's session has ended, or its claim is gone: nothing was written."""

    text = "the claim, or the session that made it, is gone"


class ConsumerRegistry(ZnodeClient):
    """Reads and writes of one group by one consumer; the retries of ZnodeClient."""

    def __init__(self, store: MetadataStore, layout: Layout = Layout.KAFKA_0_8) -> None:
        """Use `store`, in the layout of its brokers."""
        super().__init__(store)
        self.layout = layout
        # What members registered whose ids are not used twice, the last time they were read.
        self._registrations: dict[str, Subscription] = {}

    # --- members

    async def prepare(self, group_id: str) -> None:
        """Create the group's persistent znodes."""
        for path in (
            consumer_ids_path(group_id),
            owners_path(group_id),
            offsets_path(group_id),
        ):
            await self.make_path(path)

    async def register(self, group_id: str, consumer_id: str, data: bytes) -> None:
        """Register a consumer for the lifetime of this session; NodeExistsError if another
        session has that id."""
        path = consumer_id_path(group_id, consumer_id)
        try:
            await self.call(lambda: self.store.create(path, data, ephemeral=True))
        except NodeExistsError:
            # Of this session, if the response to its first attempt was lost.
            stat = await self.call(partial(self.store.exists, path))
            if stat is None or stat.ephemeral_owner != self.store.session_id:
                raise

    async def is_registered(self, group_id: str, consumer_id: str) -> bool:
        """Return whether the consumer's id znode exists: its session does, then."""
        return await self.exists(consumer_id_path(group_id, consumer_id))

    async def unregister(self, group_id: str, consumer_id: str) -> None:
        """Delete the id znode of this session's consumer."""
        await self.delete_if_exists(consumer_id_path(group_id, consumer_id))

    async def remove_former(
        self, group_id: str, consumer_id: str, claims: Iterable[ConsumedPartition]
    ) -> None:
        """Delete what a former session of this process left, if that has not expired.

        The owner znodes are deleted only together with the id znode: while that exists, the session
        that made it does, so that an owner znode of it cannot be another consumer's by now.
        """
        path = consumer_id_path(group_id, consumer_id)
        for _ in range(REMOVAL_ATTEMPTS_MAX):
            remains = []
            for it in claims:
                found = await self.get(owner_path(group_id, *it))
                if found is not None and found[0].startswith(consumer_id.encode() + b"-"):
                    remains.append(Delete(owner_path(group_id, *it), found[1].version))
            try:
                await self._multi([Delete(path), *remains])
                return
            except MultiError as error:
                if error.index == 0:
                    # It has expired.
                    return
        raise NodeExistsError(path)

    async def members(self, group_id: str, watch: Watch) -> dict[str, Subscription | None]:
        """Return what each consumer registered, None where that is unknown; `watch` fires when
        one comes or goes, and when one whose id may come again registers something else."""
        names = await self.children(consumer_ids_path(group_id), watch)
        unread = [name for name in names if name not in self._registrations]
        # An id that ends with random digits is one session's, and its data are created with it.
        # Other ids may come again with other data, and some clients write the data later.
        drawn = [name for name in unread if _DRAWN_ID.search(name)]
        others = [name for name in unread if not _DRAWN_ID.search(name)]
        members: dict[str, Subscription | None] = dict(self._registrations)
        members |= await self._read_members(group_id, drawn)
        members |= await self._read_members(group_id, others, watch)
        found_now = {name: members[name] for name in names if name in members}
        self._registrations = {
            name: it for name, it in found_now.items() if it is not None and _DRAWN_ID.search(name)
        }
        return found_now

    async def _read_members(
        self, group_id: str, names: Sequence[str], watch: Watch | None = None
    ) -> dict[str, Subscription | None]:
        paths = [consumer_id_path(group_id, name) for name in names]
        found = await self.get_all(paths, watch)
        return {
            name: read_subscription(answer[0])
            for name, answer in zip(names, found, strict=True)
            if answer is not None
        }

    async def member_changes(self, group_id: str) -> int:
        """Return the count of consumers that ever came or went."""
        stat = await self.call(partial(self.store.exists, consumer_ids_path(group_id)))
        return -1 if stat is None else stat.cversion

    # --- partitions

    async def topics(self, watch: Watch) -> list[str]:
        """Return the names of all topics; `watch` fires when one comes or goes."""
        return await self.awaited_children(znodes.TOPICS, watch)

    async def partitions(
        self, topics: Sequence[str], watch: Watch
    ) -> dict[str, Sequence[Partition]]:
        """Return the partitions of each topic; none for a topic that does not exist. `watch`
        fires when a topic gets partitions, is deleted or is created, and in Kafka 0.7 when one of
        its brokers comes or goes."""
        if self.layout is Layout.KAFKA_0_7:
            return await self._partitions07(topics, watch)
        paths = [znodes.topic_path(topic) for topic in topics]
        found = await self.get_all(paths, watch)
        partitions: dict[str, Sequence[Partition]] = {}
        for topic, path, answer in zip(topics, paths, found, strict=True):
            data = None if answer is None else answer[0]
            # A topic that is not there is watched for its creation.
            while data is None and await self.exists(path, watch):
                again = await self.get(path, watch)
                data = None if again is None else again[0]
            partitions[topic] = () if data is None else sorted(_partition_numbers(path, data))
        return partitions

    async def _partitions07(
        self, topics: Sequence[str], watch: Watch
    ) -> dict[str, Sequence[Partition]]:
        places: list[tuple[str, int]] = []
        for topic in topics:
            brokers = await self.awaited_children(znodes.topic_path(topic), watch)
            places += [(topic, it) for it in broker_ids(brokers)]
        answers = await self.get_all([topic_broker_path(*it) for it in places], watch)
        found = read_partitions(places, answers)
        return {topic: tuple(found.get(topic, ())) for topic in topics}

    async def broker07(self, broker_id: int) -> BrokerInfo07 | None:
        """Return where a broker of Kafka 0.7 is now; None if it is not registered."""
        found = await self.get(znodes.broker_path(broker_id))
        return None if found is None else decode_broker(broker_id, found[0])

    # --- claims

    async def owners(
        self, group_id: str, partitions: Sequence[ConsumedPartition], watch: Watch
    ) -> dict[ConsumedPartition, OwnerZnode]:
        """Return who owns each partition that is owned; `watch` fires when an owner lets go."""
        paths = [owner_path(group_id, *it) for it in partitions]
        found = await self.get_all(paths, watch)
        return {
            it: OwnerZnode(answer[0].decode(errors="replace"), answer[1].ephemeral_owner)
            for it, answer in zip(partitions, found, strict=True)
            if answer is not None
        }

    async def claim(
        self, group_id: str, consumer_id: str, threads: Mapping[ConsumedPartition, int]
    ) -> None:
        """Own partitions, each by one thread of this consumer: all of a multi's, or none.

        NodeExistsError if one is owned, LostClaimError if the consumer is not registered.
        """
        await self._make_topic_paths(owners_path(group_id), {topic for topic, _ in threads})
        for part in _parts(threads.items()):
            creates = [
                Create(
                    owner_path(group_id, topic, partition),
                    encode_owner(consumer_id, thread),
                    ephemeral=True,
                )
                for (topic, partition), thread in part
            ]
            await self._fenced(group_id, consumer_id, creates)

    async def release(
        self, group_id: str, consumer_id: str, partitions: Iterable[ConsumedPartition]
    ) -> None:
        """Give up partitions that this consumer owns; those that it no longer owns are left.

        LostClaimError if its session has ended.
        """
        fence = Check(consumer_id_path(group_id, consumer_id), 0)
        paths = [owner_path(group_id, *it) for it in partitions]
        outcomes = await self.call_all(self._release_call(fence, path) for path in paths)
        for outcome in outcomes:
            if isinstance(outcome, MultiError) and outcome.index == 0:
                raise LostClaimError(fence.path)
            if isinstance(outcome, MultiError) and isinstance(outcome.error, NoNodeError):
                continue
            if isinstance(outcome, StoreError):
                raise outcome

    def _release_call(self, fence: Check, path: str) -> Callable[[], Awaitable[object]]:
        """Return a call that deletes the owner znode at `path`, which is this session's.

        A znode has no version that says who made it. So a call whose answer was lost, and which is
        made again, looks first: the partition may have been given up, and be another's by now.
        """
        is_first = True

        def call() -> Awaitable[object]:
            nonlocal is_first
            if not is_first:
                return self._release_again(fence, path)
            is_first = False
            return self.store.multi([fence, Delete(path)])

        return call

    async def _release_again(self, fence: Check, path: str) -> None:
        # What was sent before the connection was lost is carried out before this, or never.
        await self.store.sync(path)
        stat = await self.store.exists(path)
        if stat is not None and stat.ephemeral_owner == self.store.session_id:
            await self.store.multi([fence, Delete(path)])

    # --- offsets

    async def stored_offsets(
        self, group_id: str, partitions: Sequence[ConsumedPartition]
    ) -> dict[ConsumedPartition, tuple[int, int]]:
        """Return the committed offset of each partition that has one, and when it was committed,
        in milliseconds since 1970; CorruptDataError."""
        found = await self.get_all([offset_path(group_id, *it) for it in partitions])
        offsets = {}
        for it, answer in zip(partitions, found, strict=True):
            offset = None if answer is None else decode_consumer_offset(answer[0])
            if answer is not None and offset is not None:
                offsets[it] = (offset, answer[1].mtime_ms)
        return offsets

    async def commit(
        self, group_id: str, consumer_id: str, offsets: Mapping[ConsumedPartition, int]
    ) -> None:
        """Commit offsets of partitions that this consumer owns.

        LostClaimError if its session has ended or one of the claims is gone: then none of the
        offsets in that multi is written.
        """
        await self._make_topic_paths(offsets_path(group_id), {topic for topic, _ in offsets})
        for part in _parts(offsets.items()):
            await self._commit_part(group_id, consumer_id, dict(part))

    async def _commit_part(
        self, group_id: str, consumer_id: str, offsets: Mapping[ConsumedPartition, int]
    ) -> None:
        checks = [Check(owner_path(group_id, *it), 0) for it in offsets]
        claims = {it.path for it in checks}
        data = {offset_path(group_id, *it): encode_consumer_offset(offsets[it]) for it in offsets}
        writes: list[Operation] = [Set(path, text) for path, text in data.items()]
        for attempt in range(1, COMMIT_ATTEMPTS_MAX + 1):
            try:
                await self._fenced(group_id, consumer_id, [*checks, *writes])
                return
            except BadVersionError as error:
                raise LostClaimError(error.path) from None
            except (NoNodeError, NodeExistsError) as error:
                if error.path in claims:
                    raise LostClaimError(error.path) from None
                if attempt == COMMIT_ATTEMPTS_MAX:
                    raise
            # The first commit of some partitions, or another client has deleted or made offsets.
            found = await self.get_all(data)
            writes = [
                Create(path, text) if answer is None else Set(path, text)
                for (path, text), answer in zip(data.items(), found, strict=True)
            ]

    async def _make_topic_paths(self, parent: str, topics: Iterable[str]) -> None:
        for topic in sorted(topics):
            await self.make_path(f"{parent}/{topic}")

    async def _fenced(
        self, group_id: str, consumer_id: str, operations: Sequence[Operation]
    ) -> None:
        """Carry out a multi of the session in which `consumer_id` is registered; raise the error of
        the operation that failed, LostClaimError if that session has ended."""
        fence = Check(consumer_id_path(group_id, consumer_id), 0)
        try:
            await self._multi([fence, *operations])
        except MultiError as error:
            if error.index == 0:
                raise LostClaimError(fence.path) from None
            raise error.error from None

    async def _multi(self, operations: Sequence[Operation]) -> None:
        await self.call(lambda: self.store.multi(operations))


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, MULTI_PARTITIONS_MAX)):
        yield part


def _partition_numbers(path: str, data: bytes) -> list[int]:
    fields = znodes.from_json(data, path)
    try:
        numbers = [parse_partition(name) for name in fields["partitions"]]
    except (KeyError, TypeError) as error:
        raise CorruptDataError(f"znode {path} lacks or garbles a field: {error!r}") from None
    return [it for it in numbers if isinstance(it, int)]
