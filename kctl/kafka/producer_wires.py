"""Chooses the wire of a producer: 0.7's, or the one of Kafka since 0.8.

`broker.list` names brokers of 0.7, `metadata.broker.list` and `bootstrap.servers` later ones. With
`zk.connect` the brokers that are registered decide.
"""

from collections.abc import Callable, Sequence

from kctl.client.bootstrap_servers import parse_servers
from kctl.client.security import ClientSecurity
from kctl.kafka.brokers07 import ListedBrokers, RegisteredBrokers, parse_broker_list
from kctl.kafka.connection07 import Pool07
from kctl.kafka.encoders import Encoder
from kctl.kafka.messages import Delivery
from kctl.kafka.partitioners import Partitioner
from kctl.kafka.producer07 import ProducerWire07
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.producer_core import ProducerWire, Settlement
from kctl.kafka.producer_today import ProducerWireToday
from kctl.kafka.registered_brokers import registered_servers
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.store.interface import MetadataStore
from kctl.store.znode_client import ZnodeClient


def make_wire(
    runtime: Runtime,
    config: ProducerConfig,
    settlement: Settlement,
    *,
    encoder: Encoder,
    key_encoder: Encoder,
    partitioner: Partitioner,
) -> ProducerWire:
    """Return the wire that `config` asks for; nothing is sent before `open`."""

    def todays(servers: Sequence[tuple[str, int]]) -> ProducerWire:
        return ProducerWireToday(
            runtime,
            config,
            settlement,
            servers,
            encoder=encoder,
            key_encoder=key_encoder,
            partitioner=partitioner,
        )

    def of_07(store: MetadataStore | None) -> ProducerWire:
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
        return ProducerWire07(
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
        todays: Callable[[Sequence[tuple[str, int]]], ProducerWire],
        of_07: Callable[[MetadataStore | None], ProducerWire],
    ) -> None:
        self.take_max = config.batch_count
        self._runtime = runtime
        self._config = config
        self._todays = todays
        self._of_07 = of_07
        self._wire: ProducerWire | None = None

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

    async def choose(self, store: MetadataStore) -> ProducerWire:
        """Return the wire of the brokers in `store`, which it closes or passes on."""
        try:
            security = ClientSecurity.of(self._config.settings.security)
            servers = await registered_servers(
                ZnodeClient(store), security.protocol, self._config.zookeeper
            )
        except BaseException:
            await store.close()
            raise
        if servers is None:
            return self._of_07(store)
        await store.close()
        return self._todays(servers)

    async def send(self, items: Sequence[Delivery]) -> None:
        """Send `items`."""
        assert self._wire is not None
        await self._wire.send(items)

    def send_one(self, item: Delivery) -> Future[None] | None:
        """Send `item` if that takes no more than a request."""
        return None if self._wire is None else self._wire.send_one(item)

    async def close(self) -> None:
        """Close all connections."""
        if self._wire is not None:
            await self._wire.close()
