"""What a ConsumerConnector reads from: brokers of Kafka 0.7, or of 0.8 and later.

The brokers that are registered in ZooKeeper decide. With `bootstrap.servers` they are of 0.8 or
later.
"""

from collections.abc import Sequence
from typing import Protocol

from kctl.client.bootstrap_servers import parse_servers
from kctl.client.router import Router
from kctl.client.security import ClientSecurity
from kctl.errors import UsageError
from kctl.kafka.assignment import Strategy
from kctl.kafka.claims import Claim
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.feeds import OnReset
from kctl.kafka.group_membership import CommittedOffsets, ZooKeeperOffsets
from kctl.kafka.offset_stores import OffsetStores
from kctl.kafka.offsets import OffsetsStorage
from kctl.kafka.registered_brokers import registered_servers
from kctl.kafka.stream_fetcher import StreamFetcher
from kctl.kafka.stream_fetcher07 import StreamFetcher07
from kctl.kafka.streams import StreamQueue
from kctl.model import SecurityProtocol
from kctl.runtime.runtime import Runtime
from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.consumer_znodes import Layout
from kctl.store.interface import MetadataStore
from kctl.store.znode_client import ZnodeClient


class Fetcher(Protocol):
    """Fetches partitions into streams."""

    def add(self, claim: Claim, queue: StreamQueue) -> None:
        """Fetch a partition from its committed offset on."""
        ...

    def remove_closed(self) -> None:
        """Forget the partitions whose claims are closed."""
        ...

    def wake(self) -> None:
        """Look for something to fetch."""
        ...

    async def run(self) -> None:
        """Fetch until it is cancelled."""
        ...

    def close(self) -> None:
        """Discard fetches in flight."""
        ...


class ConnectorWire(Protocol):
    """The brokers of a cluster, for one consumer."""

    @property
    def registry(self) -> ConsumerRegistry:
        """Return the group's znodes, in the layout of these brokers."""
        ...

    async def open(self) -> None:
        """Find a wrong address or setting at once; UnreachableError, UsageError."""
        ...

    def offsets(self) -> CommittedOffsets:
        """Return where the group's offsets are."""
        ...

    def fetcher(self, on_reset: OnReset) -> Fetcher:
        """Return the fetcher, which does not run yet. It calls `on_reset` for an offset that the
        consumers of these brokers commit before anything is consumed."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class ConnectorWireToday:
    """Brokers of Kafka 0.8 and later."""

    def __init__(
        self,
        runtime: Runtime,
        store: MetadataStore,
        config: ConnectorConfig,
        servers: Sequence[tuple[str, int]],
        security: ClientSecurity,
    ) -> None:
        self.registry = ConsumerRegistry(store)
        self._config = config
        self._router = Router(
            runtime,
            servers,
            client_id=config["client_id"] or config["group_id"],
            timeout_ms=config.number("socket_timeout_ms"),
            security=security,
        )

    async def open(self) -> None:
        """See ConnectorWire."""
        await self._router.refresh([])

    def offsets(self) -> CommittedOffsets:
        """See ConnectorWire."""
        config = self._config
        return OffsetStores(self.registry, self._router, config["group_id"], config.offsets)

    def fetcher(self, on_reset: OnReset) -> Fetcher:  # noqa: ARG002 - 0.8's consumers wait
        """See ConnectorWire."""
        return StreamFetcher(self._router, self._config)

    def close(self) -> None:
        """See ConnectorWire."""
        self._router.close()


class ConnectorWire07:
    """Brokers of Kafka 0.7: offsets are in ZooKeeper, the assignment is by range."""

    def __init__(
        self,
        runtime: Runtime,
        store: MetadataStore,
        config: ConnectorConfig,
        security: ClientSecurity,
    ) -> None:
        self.registry = ConsumerRegistry(store, Layout.KAFKA_0_7)
        self._runtime = runtime
        self._config = config
        self._security = security

    async def open(self) -> None:
        """See ConnectorWire."""
        config = self._config
        for is_wrong, what in (
            (self._security.protocol is not SecurityProtocol.PLAINTEXT, "no TLS and no logins"),
            (config.offsets.stores != (OffsetsStorage.ZOOKEEPER,), "no offsets of groups in Kafka"),
            (config["strategy"] is not Strategy.RANGE, "no partition.assignment.strategy"),
        ):
            if is_wrong:
                raise UsageError(f"the brokers in ZooKeeper are of Kafka 0.7, which has {what}")

    def offsets(self) -> CommittedOffsets:
        """See ConnectorWire."""
        return ZooKeeperOffsets(self.registry, self._config["group_id"])

    def fetcher(self, on_reset: OnReset) -> Fetcher:
        """See ConnectorWire."""
        return StreamFetcher07(self._runtime, self.registry, self._config, on_reset)

    def close(self) -> None:
        """Do nothing: the fetcher has the connections."""


async def choose_wire(
    runtime: Runtime, store: MetadataStore, config: ConnectorConfig
) -> ConnectorWire:
    """Return the wire of the brokers in `store`; UnreachableError if none is registered."""
    security = ClientSecurity.of(config.settings.security)
    given = config["bootstrap"]
    if given is not None:
        return ConnectorWireToday(runtime, store, config, parse_servers(given), security)
    servers = await registered_servers(ZnodeClient(store), security.protocol, config["zookeeper"])
    if servers is None:
        return ConnectorWire07(runtime, store, config, security)
    return ConnectorWireToday(runtime, store, config, servers, security)
