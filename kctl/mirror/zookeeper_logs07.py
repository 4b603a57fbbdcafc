"""ZooKeeperLogs07: the logs of all servers of Kafka 0.7 that are registered in a ZooKeeper.

ZooKeeper lists topics, the brokers that have them, and how many partitions each has. A broker that
is away is not registered: what its partitions are asked for then fails, and is tried again.

Kafka 0.7: kafka.utils.ZkUtils, kafka.consumer.ZookeeperConsumerConnector
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kctl.errors import UnreachableError, UsageError
from kctl.mirror.logs07 import ServerLogs07
from kctl.mirror.numbering07 import Numbering
from kctl.mirror.source07 import Source07, with_logs
from kctl.model import TopicPartition
from kctl.protocol.kafka07 import FetchAnswer, FetchRequest, Kafka07Error
from kctl.store.broker07_znodes import (
    BrokerInfo07,
    broker_ids,
    decode_broker,
    is_broker07,
    read_partitions,
    topic_broker_path,
)
from kctl.store.znode_client import ZnodeClient
from kctl.store.znodes import BROKER_IDS, TOPICS, broker_path, topic_path

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.sources import MirrorSource
    from kctl.runtime.runtime import Runtime

T = TypeVar("T")


class ZooKeeperLogs07:
    """The servers that `client` has registered. See Logs07."""

    # A broker that is away has partitions too.
    is_part = True

    def __init__(self, runtime: "Runtime", client: ZnodeClient, timeout_ms: int) -> None:
        self.numbering = Numbering()
        self._runtime = runtime
        self._client = client
        self._timeout_ms = timeout_ms
        self._brokers: Mapping[int, BrokerInfo07] = {}
        # Connections, with the addresses that they are to.
        self._servers: dict[int, tuple[BrokerInfo07, ServerLogs07]] = {}

    async def partitions(self, selects: Callable[[str], bool]) -> dict[str, int]:
        """Read the registrations; raise UsageError if brokers of a later release are registered."""
        self._brokers = await self._registered()
        topics = [it for it in await self._client.children(TOPICS) if selects(it)]
        places = [
            (topic, broker_id)
            for topic in topics
            for broker_id in broker_ids(await self._client.children(topic_path(topic)))
        ]
        answers = await self._client.get_all(topic_broker_path(*it) for it in places)
        for topic, found in read_partitions(places, answers).items():
            self.numbering.add(topic, found)
        return {it: count for it, count in self.numbering.counts().items() if selects(it)}

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the number is that of a partition."""
        return self.numbering.find(partition) is not None

    async def bounds(self, partition: TopicPartition, position: int) -> tuple[int, int]:
        """Ask the partition's broker."""
        at, server = self._server(partition)
        return await server.bounds(at, position)

    async def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchAnswer]:
        """Send a request to each broker, one after the other."""
        by_server: dict[ServerLogs07, list[int]] = {}
        theirs: list[FetchRequest] = []
        for index, it in enumerate(requests):
            at, server = self._server(TopicPartition(it.topic, it.partition))
            theirs.append(FetchRequest(at.topic, at.partition, it.offset, it.bytes_max))
            by_server.setdefault(server, []).append(index)
        answers = [FetchAnswer(Kafka07Error.NONE, b"")] * len(requests)
        for server, indexes in by_server.items():
            found = await server.fetch([theirs[index] for index in indexes])
            for index, answer in zip(indexes, found, strict=True):
                answers[index] = answer
        return answers

    def look_again(self) -> None:
        """Do nothing: a server answers each fetch with what it has."""

    def place(self, partition: TopicPartition, position: int) -> str:
        """Name the broker's partition, and the position."""
        return f"{self.numbering.name(partition)} at position {position}"

    def close(self) -> None:
        """Close the connections to the brokers."""
        servers, self._servers = self._servers, {}
        for _, server in servers.values():
            server.close()

    async def _registered(self) -> dict[int, BrokerInfo07]:
        ids = broker_ids(await self._client.children(BROKER_IDS))
        found: dict[int, BrokerInfo07] = {}
        nodes = await self._client.get_all([broker_path(it) for it in ids])
        for broker_id, node in zip(ids, nodes, strict=True):
            if node is None:
                continue
            if not is_broker07(node[0]):
                raise UsageError(
                    f"Broker {broker_id} of this ZooKeeper is of Kafka 0.8 or later",
                    hint="name the brokers: --source HOST:PORT",
                )
            found[broker_id] = decode_broker(broker_id, node[0])
        return found

    def _server(self, partition: TopicPartition) -> tuple[TopicPartition, ServerLogs07]:
        """Return the broker's own number of a partition, and the broker."""
        found = self.numbering.find(partition)
        broker = None if found is None else self._brokers.get(found.broker_id)
        if found is None or broker is None:
            name = f"{partition.topic}-{self.numbering.name(partition) or partition.partition}"
            raise UnreachableError(f"The broker of {name} is not registered in ZooKeeper")
        known = self._servers.get(found.broker_id)
        if known is None or known[0][:3] != broker[:3]:
            if known is not None:
                known[1].close()
            server = ServerLogs07(self._runtime, broker.host, broker.port, (), self._timeout_ms)
            known = self._servers[found.broker_id] = broker, server
        return TopicPartition(partition.topic, found.partition), known[1]


async def with_cluster07(
    zookeeper: str,
    timeout_ms: int,
    target: "AdminClient",
    work: "Callable[[MirrorSource, AdminClient], Awaitable[T]]",
) -> T:
    """Return the result of `work(source, target)`, the source being the servers of Kafka 0.7 at
    `zookeeper` (HOST:PORT[/PATH]); raise UnreachableError, UsageError for an unknown path."""
    # kazoo takes 70 ms to import.
    from kctl.store.zookeeper import COMMAND_CONNECTION_MS_MAX, ZooKeeperStore

    runtime = target.router.runtime
    limit_ms = min(timeout_ms, COMMAND_CONNECTION_MS_MAX)
    store = await ZooKeeperStore.open(runtime, zookeeper, connection_timeout_ms=limit_ms)
    try:
        logs = ZooKeeperLogs07(runtime, ZnodeClient(store), timeout_ms)
        source = Source07(runtime, logs)
        source.numbering = logs.numbering
        return await with_logs(source, target, work)
    finally:
        await store.close()
