"""ClusterPlan: who is in a local cluster, where each keeps its data, and what is set for all. Pure.

DIR/metadata is the store's, DIR/broker-N/logs broker N's. Ids begin with 1 and ports follow each
other; racks go round. A topic has three replicas where there are as many brokers, and so have
Kafka's own topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kctl.errors import UsageError

BROKERS_MAX = 100
REPLICAS_MAX = 3
HOST = "127.0.0.1"
# Where a machine is its own network, a silent broker is a dead one sooner than Kafka's 18 s.
SESSION_TIMEOUT_MS = 6_000
# What a cluster's brokers have each for themselves.
OWN_SETTINGS = ("broker.id", "log.dir", "log.dirs", "listeners", "advertised.listeners", "port")


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker; port 0: any free one, kept when it is started again."""

    broker_id: int
    port: int
    rack: str | None
    directory: str

    @property
    def log_directory(self) -> str:
        """Where its records are."""
        return f"{self.directory}/logs"

    def settings(self, port: int, zookeeper: str) -> dict[str, str]:
        """What is its own; `port` is the one to listen on."""
        settings = {
            "broker.id": str(self.broker_id),
            "log.dirs": self.log_directory,
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "zookeeper.connect": zookeeper,
        }
        if self.rack is not None:
            settings["broker.rack"] = self.rack
        return settings


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """All of them; `metadata_directory` None: they use a ZooKeeper elsewhere."""

    brokers: tuple[BrokerPlan, ...]
    metadata_directory: str | None
    store_host: str = HOST
    store_port: int = 0
    is_durable: bool = False
    seed_topics: tuple[tuple[str, int], ...] = ()


def plan_brokers(
    count: int, directory: str, first_port: int, racks: Sequence[str]
) -> tuple[BrokerPlan, ...]:
    """Brokers 1 to `count`; UsageError."""
    if not 1 <= count <= BROKERS_MAX:
        raise UsageError(f"--brokers {count}: from 1 to {BROKERS_MAX}")
    if first_port and first_port + count > 65536:
        raise UsageError(f"--port {first_port}: not enough ports above it for {count} brokers")
    if len(racks) > count or not all(rack.strip() for rack in racks):
        raise UsageError(f"--racks {','.join(racks)}: a name each, no more than brokers")
    return tuple(
        BrokerPlan(
            broker_id=index + 1,
            port=first_port and first_port + index,
            rack=racks[index % len(racks)].strip() if racks else None,
            directory=f"{directory}/broker-{index + 1}",
        )
        for index in range(count)
    )


def cluster_defaults(count: int) -> dict[str, str]:
    """What fits `count` brokers, where nothing else was said."""
    replicas = min(count, REPLICAS_MAX)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
        "group.initial.rebalance.delay.ms": "0",
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }


def check_own_settings(settings: Mapping[str, str]) -> None:
    """UsageError if one of `settings` could not hold for all brokers."""
    for name in OWN_SETTINGS:
        if name in settings:
            raise UsageError(
                f"{name} cannot be the same for several brokers",
                hint="--brokers gives each its own: see --port and --data-dir",
            )
