"""ClusterPlan: the brokers of a local cluster, their data directories and settings. Pure.

DIR/metadata is the store's, DIR/broker-N/logs broker N's. Ids begin with 1 and ports are
consecutive; racks alternate. A topic has three replicas if there are as many brokers, and so have
Kafka's own topics.
"""

from collections.abc import Mapping, Sequence

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

BROKERS_MAX = 100
REPLICAS_MAX = 3
HOST = "127.0.0.1"
# On a single machine a silent broker is a dead one sooner than after Kafka's 18 s.
SESSION_TIMEOUT_MS = 6_000
# A broker asks again to have its leaderships moved, three times. Where the whole cluster stops, the
# other replicas have stopped before it, and Kafka's 5 s each time would be waited in vain.
SHUTDOWN_BACKOFF_MS = 200
# Settings that differ between the brokers of a cluster.
OWN_SETTINGS = ("broker.id", "log.dir", "log.dirs", "listeners", "advertised.listeners", "port")


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker; port 0: any free one, kept after a restart."""

    broker_id: int
    port: int
    rack: str | None
    directory: str

    @property
    def log_directory(self) -> str:
        """Return the directory of its records."""
        return f"{self.directory}/logs"

    def settings(self, port: int, zookeeper: str) -> dict[str, str]:
        """Return the settings of this broker; `port` is the one to listen on."""
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
    """The brokers; with `metadata_directory` None they use an external ZooKeeper."""

    brokers: tuple[BrokerPlan, ...]
    metadata_directory: str | None
    store_host: str = HOST
    store_port: int = 0
    is_durable: bool = False
    seed_topics: tuple[tuple[str, int], ...] = ()


def plan_brokers(
    count: int, directory: str, first_port: int, racks: Sequence[str]
) -> tuple[BrokerPlan, ...]:
    """Plan brokers 1 to `count`; raise UsageError."""
    if not 1 <= count <= BROKERS_MAX:
        raise UsageError(f"--brokers {count}: from 1 to {BROKERS_MAX}")
    if first_port and first_port + count > 65536:
        raise UsageError(f"--port {first_port}: not enough ports above it for {count} brokers")
    if len(racks) > count or not all(rack.strip() for rack in racks):
        raise UsageError(
            f"--racks {','.join(racks)}: one name per rack, at most as many as brokers"
        )
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
    """Return defaults for `count` brokers, for settings that were not given."""
    replicas = min(count, REPLICAS_MAX)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
        "group.initial.rebalance.delay.ms": "0",
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "controlled.shutdown.retry.backoff.ms": str(SHUTDOWN_BACKOFF_MS),
    }


def check_own_settings(settings: Mapping[str, str]) -> None:
    """Raise UsageError if one of `settings` cannot be the same for all brokers."""
    for name in OWN_SETTINGS:
        if name in settings:
            raise UsageError(
                f"{name} cannot be the same for several brokers",
                hint="--brokers gives each its own: see --port and --data-dir",
            )
