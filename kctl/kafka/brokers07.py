"""Where brokers of Kafka 0.7 are: in a list, or in ZooKeeper, whose watches keep that current.

A partition of 0.7 is a (broker, number). The partitions of a topic are those of all brokers, sorted
by both; of a topic that no broker has yet, partition 0 of every broker.

What was read from ZooKeeper is kept until a watch fires: brokers are read again at once, so that
the pool of connections follows them; a topic is read again when it is next asked for. While
ZooKeeper cannot be reached, what was read last holds.

Kafka 0.7: kafka.producer.{ConfigBrokerPartitionInfo, ZKBrokerPartitionInfo}
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import CorruptDataError, TimedOutError, UnreachableError, UsageError
from kctl.runtime.future import wait_at_most
from kctl.runtime.runtime import Runtime
from kctl.store.broker07_znodes import (
    BrokerInfo07,
    broker_ids,
    decode_broker,
    read_partitions,
    topic_broker_path,
)
from kctl.store.consumer_znodes import BrokerPartition
from kctl.store.errors import StoreError
from kctl.store.interface import MetadataStore, SessionState, WatchedEvent
from kctl.store.znode_client import ZnodeClient
from kctl.store.znodes import BROKER_IDS, broker_path, topic_path

T = TypeVar("T")


class Directory(Protocol):
    """The brokers, and the partitions of topics."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo07]:
        """Return broker id -> broker."""
        ...

    async def open(self) -> None:
        """Read the brokers; raise UnreachableError."""
        ...

    async def partitions(self, topic: str, *, is_fresh: bool = False) -> list[BrokerPartition]:
        """Return the partitions, sorted; with `is_fresh` nothing that was read before is used.
        Empty: partitions are not known, and every broker chooses."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


def parse_broker_list(text: str) -> dict[int, BrokerInfo07]:
    """Return broker id -> broker of `id:host:port,...`; UsageError."""
    brokers: dict[int, BrokerInfo07] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        number, _, address = item.partition(":")
        if not number.isdecimal() or ":" not in address:
            raise UsageError(
                f"broker.list: {item} is not id:host:port",
                hint="for brokers of Kafka 0.8 and later set bootstrap.servers=host:port",
            )
        [(host, port)] = parse_servers(address)
        if int(number) in brokers:
            raise UsageError(f"broker.list has two brokers {number}")
        brokers[int(number)] = BrokerInfo07(int(number), host, port)
    if not brokers:
        raise UsageError("broker.list is empty")
    return brokers


class ListedBrokers:
    """The brokers of `broker.list`, which choose partitions themselves."""

    def __init__(self, brokers: Mapping[int, BrokerInfo07]) -> None:
        self.brokers = brokers

    async def open(self) -> None:
        """Do nothing."""

    async def partitions(
        self,
        topic: str,  # noqa: ARG002 - as in the Protocol
        *,
        is_fresh: bool = False,  # noqa: ARG002 - as in the Protocol
    ) -> list[BrokerPartition]:
        """Return nothing: they are not known."""
        return []

    async def close(self) -> None:
        """Do nothing."""


class RegisteredBrokers:
    """The brokers and topics that are registered in ZooKeeper; `open` comes first."""

    def __init__(
        self,
        runtime: Runtime,
        store: MetadataStore,
        *,
        timeout_ms: int,
        when_changed: Callable[[], object],
    ) -> None:
        """Call `when_changed` when brokers came or went. A read takes at most `timeout_ms`."""
        self.brokers: dict[int, BrokerInfo07] = {}
        self._runtime = runtime
        self._store = store
        self._client = ZnodeClient(store)
        self._timeout_ms = timeout_ms
        self._when_changed = when_changed
        self._topics: dict[str, list[BrokerPartition]] = {}
        self._is_reading = False
        self._is_outdated = False
        self._is_open = True

    async def open(self) -> None:
        """Read the brokers; raise UnreachableError if ZooKeeper does not answer."""
        self._store.on_session_state(self._session_changed)
        await self._limited(self._read_brokers())

    async def partitions(self, topic: str, *, is_fresh: bool = False) -> list[BrokerPartition]:
        """Return the partitions of `topic`; raise UnreachableError if no broker is registered, or
        if ZooKeeper does not answer and nothing was read before."""
        is_fresh = is_fresh and self._client.is_connected
        if is_fresh:
            await self._limited(self._read_brokers())
        if is_fresh or topic not in self._topics:
            # A read of a topic that follows a lost connection waits for the next one.
            await self._limited(self._read_topic(topic))
        known = [it for it in self._topics.get(topic, ()) if it.broker_id in self.brokers]
        if known:
            return known
        if not self.brokers:
            raise UnreachableError("no broker is registered in ZooKeeper")
        return [BrokerPartition(broker_id, 0) for broker_id in sorted(self.brokers)]

    async def close(self) -> None:
        """End the session."""
        self._is_open = False
        self._client.stop_waiting()
        await self._store.close()

    async def _read_brokers(self) -> None:
        ids = await self._client.awaited_children(BROKER_IDS, self._brokers_changed)
        numbers = broker_ids(ids)
        nodes = await self._client.get_all([broker_path(it) for it in numbers])
        found: dict[int, BrokerInfo07] = {}
        for number, node in zip(numbers, nodes, strict=True):
            if node is None:
                continue
            try:
                found[number] = decode_broker(number, node[0])
            except CorruptDataError as error:
                self._runtime.trace.warning(f"{error}; the broker is not used")
        if found != self.brokers:
            self.brokers = found
            self._when_changed()

    async def _read_topic(self, topic: str) -> None:
        def forget(_event: WatchedEvent) -> None:
            self._topics.pop(topic, None)

        ids = await self._client.awaited_children(topic_path(topic), forget)
        places = [(topic, it) for it in broker_ids(ids)]
        nodes = await self._client.get_all([topic_broker_path(*it) for it in places], forget)
        self._topics[topic] = read_partitions(places, nodes).get(topic, [])

    async def _limited(self, reading: Awaitable[T]) -> T:
        async def read() -> T:
            return await reading

        scheduler = self._runtime.scheduler
        late = TimedOutError(f"ZooKeeper did not answer within {self._timeout_ms} ms")
        try:
            task = scheduler.spawn(read(), "read of brokers")
            return await wait_at_most(scheduler, task, self._timeout_ms, late)
        except StoreError as error:
            raise UnreachableError(f"ZooKeeper: {error}") from error

    def _brokers_changed(self, _event: WatchedEvent) -> None:
        """Read the brokers again, once more if they change meanwhile."""
        self._is_outdated = True
        if not self._is_reading and self._is_open:
            self._is_reading = True
            self._runtime.scheduler.spawn(self._follow(), "brokers in ZooKeeper")

    async def _follow(self) -> None:
        try:
            while self._is_outdated and self._is_open:
                self._is_outdated = False
                await self._read_brokers()
        except StoreError as error:
            # The session has ended: its next one reads everything.
            self._runtime.trace.warning(f"brokers cannot be read from ZooKeeper: {error}")
        finally:
            self._is_reading = False

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self._is_open:
            self._runtime.scheduler.spawn(self._begin_again(), "session with ZooKeeper")

    async def _begin_again(self) -> None:
        """Set all watches in a new session: those of the old one are gone."""
        await self._store.new_session()
        self._topics.clear()
        await self._read_brokers()
