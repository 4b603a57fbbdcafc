"""Chooses the wire of a producer: 0.7's, or the one of Kafka since 0.8.

`broker.list` names brokers of 0.7, `metadata.broker.list` and `bootstrap.servers` later ones. With
`zk.connect` the brokers that are registered decide: `creator:host:port` is 0.7's, JSON is not.
"""

from collections.abc import Callable, Sequence

from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import UnreachableError, UsageError
from kctl.kafka.brokers07 import ListedBrokers, RegisteredBrokers, parse_broker_list
from kctl.kafka.connection07 import Pool07
from kctl.kafka.encoders import Encoder
from kctl.kafka.messages import Delivery
from kctl.kafka.partitioners import Partitioner
from kctl.kafka.producer07 import Wire07
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.producer_core import Settlement, Wire
from kctl.kafka.producer_today import TodaysWire
from kctl.model import SecurityProtocol
from kctl.runtime.runtime import Runtime
from kctl.store.broker07_znodes import is_broker07
from kctl.store.interface import MetadataStore
from kctl.store.znode_client import ZnodeClient
from kctl.store.znodes import BROKER_IDS, broker_path, decode_broker


def make_wire(
    runtime: Runtime,
    config: ProducerConfig,
    settlement: Settlement,
    *,
    encoder: Encoder,
    key_encoder: Encoder,
    partitioner: Partitioner,
) -> Wire:
    """Return the wire that `config` asks for; nothing is sent before `open`."""

    def todays(servers: Sequence[tuple[str, int]]) -> Wire:
        return TodaysWire(
            runtime,
            config,
            settlement,
            servers,
            encoder=encoder,
            key_encoder=key_encoder,
            partitioner=partitioner,
        )

    def of_07(store: MetadataStore | None) -> Wire:
        pool = Pool07(runtime, config)
        directory: ListedBrokers | RegisteredBrokers
        if store is None:
            directory = ListedBrokers(parse_broker_list(config.broker_list))
        else:
            directory = RegisteredBrokers(
                runtime,
                store,
                timeout_ms=config.zookeeper_session_ms,
                when_changed=lambda: pool.follow(directory.brokers),
            )
        return Wire07(
            runtime,
            config,
            settlement,
            directory,
            pool,
            encoder=encoder,
            partitioner=partitioner,
        )

    if config.bootstrap is not None:
        return todays(parse_servers(config.bootstrap))
    if config.broker_list is not None:
        return of_07(None)
    return ZooKeeperWire(runtime, config, todays, of_07)


class ZooKeeperWire:
    """The wire that the brokers in ZooKeeper speak; known once it is open."""

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        todays: Callable[[Sequence[tuple[str, int]]], Wire],
        of_07: Callable[[MetadataStore | None], Wire],
    ) -> None:
        self.take_max = config.batch_count
        self._runtime = runtime
        self._config = config
        self._todays = todays
        self._of_07 = of_07
        self._wire: Wire | None = None

    async def open(self) -> None:
        """Connect to ZooKeeper, and choose; raise UnreachableError if no broker is registered."""
        # Local: kazoo takes 70 ms to import.
        from kctl.store.zookeeper import ZooKeeperStore

        limit_ms = self._config.zookeeper_session_ms
        store = ZooKeeperStore(self._runtime, self._config.zookeeper, session_timeout_ms=limit_ms)
        await store.connect(limit_ms)
        self._wire = await self.choose(store)
        self.take_max = self._wire.take_max
        await self._wire.open()

    async def choose(self, store: MetadataStore) -> Wire:
        """Return the wire of the brokers in `store`, which it closes or passes on."""
        client = ZnodeClient(store)
        is_07 = False
        servers: list[tuple[str, int]] = []
        try:
            ids = [int(it) for it in await client.children(BROKER_IDS) if it.isdecimal()]
            nodes = await client.get_all([broker_path(it) for it in ids])
            for number, node in zip(ids, nodes, strict=True):
                if node is not None and is_broker07(node[0]):
                    is_07 = True
                elif node is not None:
                    endpoints = decode_broker(number, node[0]).endpoints
                    servers += [
                        (it.host, it.port) for it in endpoints if self._fits(it.security_protocol)
                    ]
            if not is_07 and not servers:
                raise UnreachableError(f"no broker is registered in ZooKeeper at {self._place}")
            if is_07 and servers:
                raise UsageError(f"brokers of 0.7 and of later releases are at {self._place}")
        except BaseException:
            await store.close()
            raise
        if is_07:
            return self._of_07(store)
        await store.close()
        return self._todays(servers)

    async def send(self, items: Sequence[Delivery]) -> None:
        """Send `items`."""
        assert self._wire is not None
        await self._wire.send(items)

    async def close(self) -> None:
        """Close all connections."""
        if self._wire is not None:
            await self._wire.close()

    @property
    def _place(self) -> str:
        return str(self._config.zookeeper)

    def _fits(self, protocol: SecurityProtocol) -> bool:
        """Return whether a listener speaks the protocol that the settings ask for."""
        wanted = self._config.settings.security.get("security.protocol", "PLAINTEXT")
        return protocol.value == wanted.upper()
