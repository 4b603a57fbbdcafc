"""SimCluster: several real brokers, their store and their clients, in one process, from one seed.

The Brokers are the product's own; clock, network, disk and store are simulated. A broker is a
process on a machine of its name: it can be killed (its files stay as written), lose power (what was
not fsynced may be lost or torn), be stopped cleanly, and be restarted from its disk, at any event
or in the middle of one (`SimBroker.dies_at_change`).

Every event goes into a digest, so that two runs of a seed can be compared. The last trace lines are
kept for the report.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from hashlib import blake2b

from kctl.broker.broker import Broker
from kctl.broker.services import Services
from kctl.client.router import Router
from kctl.client.security import ClientSecurity
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import SecurityProtocol, TopicPartition
from kctl.runtime.runtime import Runtime
from kctl.simulation.disk import NameOrder, SimDisk
from kctl.simulation.network import SimNetwork, Weather
from kctl.simulation.old_controllers import OldController
from kctl.simulation.runtime import SimEntropy, node_runtime
from kctl.simulation.scheduler import Callback, NodeScheduler, ProcessDied, SimScheduler
from kctl.simulation.security import SimSecurity, client_security
from kctl.simulation.store import STORE_HOST, SimStore, SimStoreServer
from kctl.store.embedded import EmbeddedStore
from kctl.store.znodes import decode_partition_state, partition_state_path

BROKER_PORT = 9092
LOG_DIRECTORIES = ("/data", "/second")
# Trace lines kept for a report.
TRACE_LINES_KEPT = 400
# Settings of every simulated broker: short times, so that much happens in a virtual second.
SETTINGS = {
    "log.dirs": LOG_DIRECTORIES[0],
    "zookeeper.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "250",
    "replica.fetch.backoff.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "controller.socket.timeout.ms": "2000",
    "controlled.shutdown.retry.backoff.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "1500",
    "log.segment.delete.delay.ms": "500",
    "request.timeout.ms": "2000",
    "leader.imbalance.check.interval.seconds": "5",
}


class Life(Enum):
    """The state of a broker's process."""

    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"


class Violation(Exception):
    """The system did what it must never do."""


@dataclass(slots=True)
class FaultCounters:
    """Counts of faults injected into brokers."""

    kills: int = 0
    kills_inside_an_event: int = 0
    power_losses: int = 0
    stops: int = 0
    cuts: int = 0
    store_cuts: int = 0
    failed_starts: int = 0
    disk_failures: int = 0
    directory_failures: int = 0
    pauses: int = 0
    stalls: int = 0
    stores_emptied: int = 0


class SimBroker:
    """A machine and the broker process on it, if one runs."""

    def __init__(self, cluster: "SimCluster", broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.entropy = cluster.entropy.split(self.host)
        self.disk = SimDisk(cluster.name_order)
        self.life = Life.DOWN
        self.broker: Broker | None = None
        self.scheduler: NodeScheduler | None = None
        self.store: SimStore | None = None
        self.wall_skew_ms = 0
        # Number of starts.
        self.incarnation = 0
        # Changes of the disk until the process dies in the middle of one; 0 disables this.
        self.dies_at_change = 0
        self._dies_by_power = False

    def start(self) -> None:
        """Start the process on the files that its disk holds."""
        cluster = self.cluster
        self.incarnation += 1
        self.life = Life.STARTING
        scheduler = self.scheduler = NodeScheduler(
            cluster.world, self.host, self.entropy.split(f"jobs-{self.incarnation}")
        )
        scheduler.on_unseen_error = lambda name, error: cluster.task_failed(self.host, name, error)
        cluster.brokers_by_scheduler[scheduler] = self
        cluster.network.machine_is_up(self.host)
        self.disk.on_change = self._disk_changed
        runtime = node_runtime(
            cluster.world, cluster.network, scheduler, self.disk,
            self.entropy.split(f"run-{self.incarnation}"), cluster.record_event, self.wall_skew_ms,
        )  # fmt: skip
        self.store = SimStore(
            cluster.store, cluster.network, scheduler, self.host, cluster.session_timeout_ms
        )
        broker = self.broker = cluster.make_broker(runtime, self._config(), self.store)
        cluster.record_event(self.host, "start", f"incarnation={self.incarnation}")

        def run() -> None:
            scheduler.spawn(self._run(broker), "broker")

        scheduler.call_soon(run)

    async def _run(self, broker: Broker) -> None:
        try:
            await broker.start()
        except KctlError as error:
            self.cluster.counters.failed_starts += 1
            self.cluster.record_event(self.host, "start_failed", str(error))
            self.kill()
            return
        self.life = Life.UP
        self.cluster.record_event(self.host, "up", "")
        broker.failed.add_done_callback(lambda _: self._failed())

    def _failed(self) -> None:
        """End the process because all its log directories failed, as Kafka does."""
        self.cluster.record_event(self.host, "failed", "")
        self.kill()

    def _config(self) -> BrokerConfig:
        security = self.cluster.security
        protocol = SecurityProtocol.PLAINTEXT if security is None else security.protocol
        return BrokerConfig(
            {
                **SETTINGS,
                "broker.id": str(self.broker_id),
                "listeners": f"{protocol}://{self.host}:{BROKER_PORT}",
                **({} if security is None else security.settings()),
                **self.cluster.settings,
            }
        )

    def kill(self, *, by_power_loss: bool = False) -> None:
        """Kill the process at once."""
        scheduler = self.scheduler
        if self.life is Life.DOWN or scheduler is None:
            return
        cluster = self.cluster
        scheduler.is_dead = True
        self.life = Life.DOWN
        self.broker = None
        self.dies_at_change = 0
        self.disk.on_change = None
        if by_power_loss:
            cluster.counters.power_losses += 1
            self.disk = self.disk.power_loss(self.entropy)
        else:
            cluster.counters.kills += 1
            self.disk = self.disk.process_loss()
        cluster.network.process_ended(scheduler, silently=by_power_loss)
        cluster.record_event(self.host, "power_lost" if by_power_loss else "killed", "")

    @property
    def is_paused(self) -> bool:
        """Return whether the process is paused."""
        return self.scheduler is not None and self.scheduler.held is not None

    def pause(self, duration_us: int, *, only_loop: bool = False) -> None:
        """Pause the process; its session may expire meanwhile without its knowledge. With
        `only_loop` its background jobs continue, as when a single callback takes that long.
        """
        scheduler = self.scheduler
        if self.life is Life.DOWN or scheduler is None or self.is_paused:
            return
        counters = self.cluster.counters
        if only_loop:
            counters.stalls += 1
            scheduler.stall()
        else:
            counters.pauses += 1
            scheduler.pause()
        what = "stalled" if only_loop else "paused"
        self.cluster.record_event(self.host, what, f"for_ms={duration_us // 1000}")
        self.cluster.store.scheduler.call_later_us(duration_us, scheduler.resume)

    def die_at_change(self, count: int, *, by_power_loss: bool) -> None:
        """Die in the middle of the event that changes the disk for the `count`th time."""
        self.dies_at_change = count
        self._dies_by_power = by_power_loss

    def _disk_changed(self) -> None:
        if self.dies_at_change:
            self.dies_at_change -= 1
            if not self.dies_at_change:
                self.cluster.counters.kills_inside_an_event += 1
                self.kill(by_power_loss=self._dies_by_power)
                raise ProcessDied

    def stop(self) -> None:
        """Stop the process cleanly, which takes time."""
        broker, scheduler = self.broker, self.scheduler
        if self.life is not Life.UP or broker is None or scheduler is None:
            return
        if self.is_paused:
            return
        self.life = Life.STOPPING
        self.cluster.counters.stops += 1
        self.cluster.record_event(self.host, "stop", "")

        async def stop() -> None:
            await broker.shutdown()
            scheduler.is_dead = True
            self.life = Life.DOWN
            self.broker = None
            self.disk.on_change = None
            self.disk = self.disk.process_loss()
            self.cluster.network.process_ended(scheduler, silently=False)
            self.cluster.record_event(self.host, "stopped", "")

        scheduler.spawn(stop(), "stop")


class SimCluster:
    """A simulated cluster; see the module."""

    def __init__(
        self, seed: int, broker_count: int, settings: dict[str, str], weather: Weather,
        broker_class: type[Broker] = Broker,
        name_order: NameOrder = NameOrder.JOURNAL,
        security: SimSecurity | None = None,
    ) -> None:  # fmt: skip
        self.seed = seed
        # None: every listener is PLAINTEXT, and everything is allowed.
        self.security = security
        self.entropy = SimEntropy(seed, "world")
        self.settings = settings
        self.name_order = name_order
        self.world = SimScheduler()
        self.network = SimNetwork(self.entropy.split("network"), weather)
        self.counters = FaultCounters()
        self.session_timeout_ms = int({**SETTINGS, **settings}["zookeeper.session.timeout.ms"])
        self.brokers_by_scheduler: dict[NodeScheduler, SimBroker] = {}
        self.trace: deque[str] = deque(maxlen=TRACE_LINES_KEPT)
        # Called with every trace line: process, event name, text.
        self.on_trace: Callable[[str, str, str], object] = lambda *_: None
        self._digest = blake2b(digest_size=16)
        self._broker_class = broker_class
        # Sits between brokers and their controller if the controller is of an older version.
        self.old_controller: OldController | None = None
        self.violation: Violation | None = None
        scheduler = NodeScheduler(self.world, STORE_HOST, self.entropy.split("store-jobs"))
        entropy = self.entropy.split(STORE_HOST)
        runtime = node_runtime(
            self.world, self.network, scheduler, SimDisk(), entropy, self.record_event
        )
        self.store = SimStoreServer(runtime, scheduler, entropy)
        if security is not None:
            security.prepare(EmbeddedStore(runtime, self.store.database))
        self.brokers = {number: SimBroker(self, number) for number in range(1, broker_count + 1)}
        self.world.on_event = self._before_event
        self.world.on_error = self._event_failed

    def make_broker(self, runtime: Runtime, config: BrokerConfig, store: SimStore) -> Broker:
        """Return a broker of the class under test."""
        controller = self.old_controller
        return self._broker_class(runtime, config, None, store=store, interceptor=controller)

    # --- what happens ------------------------------------------------------------------------

    def record_event(self, process: str, name: str, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self.world.now_us / 1000:12.3f} {process:9} {name} {text}"
        self.trace.append(line)
        self._digest.update(line.encode())
        self.on_trace(process, name, text)

    def digest(self) -> str:
        """Return the digest of all events so far, as 32 hexadecimal digits."""
        return self._digest.hexdigest()

    def fail(self, text: str) -> None:
        """Record a violation; only the first one counts."""
        if self.violation is None:
            self.record_event("observer", "VIOLATION", text)
            self.violation = Violation(text)

    def _before_event(self, node: NodeScheduler, callback: Callback) -> None:
        self._digest.update(f"{self.world.now_us} {node.name} {_name_of(callback)}\n".encode())
        broker = self.brokers_by_scheduler.get(node)
        if broker is not None:
            broker.disk.now_ms = self.world.now_ms

    def _event_failed(self, node: NodeScheduler, error: BaseException) -> None:
        if isinstance(error, ProcessDied):
            return
        if isinstance(error, Violation):
            self.fail(str(error))
            return
        self.fail(f"{node.name}: an event ended with {type(error).__name__}: {error}")

    def task_failed(self, process: str, name: str, error: BaseException) -> None:
        """Record a violation if the failure of a task that nothing awaited is a bug."""
        if isinstance(error, KctlError):
            self.record_event(process, "task_failed", f"{name}: {type(error).__name__}: {error}")
        elif not isinstance(error, Violation):
            self.fail(f"{process}: task {name} ended with {type(error).__name__}: {error}")
        else:
            self.fail(str(error))

    # --- clients -----------------------------------------------------------------------------

    def client_runtime(self, name: str) -> Runtime:
        """Return the runtime of a client process, which never fails."""
        scheduler = NodeScheduler(self.world, name, self.entropy.split(f"{name}-jobs"))
        scheduler.on_unseen_error = lambda task, error: self.task_failed(name, task, error)
        entropy = self.entropy.split(name)
        return node_runtime(
            self.world, self.network, scheduler, SimDisk(), entropy, self.record_event
        )

    def router(self, runtime: Runtime, timeout_ms: int) -> Router:
        """Return a client of all brokers."""
        addresses = [(broker.host, BROKER_PORT) for broker in self.brokers.values()]
        security = self.security_of(runtime.network.local_host_name())
        return Router(runtime, addresses, timeout_ms=timeout_ms, security=security)

    def security_of(self, process: str) -> ClientSecurity:
        """Return how a client process connects to the brokers."""
        return client_security(self.security, process)

    def knows_leader(self, router: Router, partition: TopicPartition) -> bool:
        """Return whether the broker that a client takes for the leader is the leader
        in the store.
        """
        taken = router.view.leader(partition)
        node = self.store.database.tree.nodes.get(partition_state_path(partition))
        if taken is None or node is None:
            return False
        state = decode_partition_state(partition, node.data, 0)
        return state.leader_and_isr.leader == taken.broker_id

    def serving(self, node: NodeScheduler) -> tuple[SimBroker, Services] | None:
        """Return the broker whose process this is, if it runs and serves requests."""
        broker = self.brokers_by_scheduler.get(node)
        if broker is None or node.is_dead or broker.broker is None:
            return None
        services = broker.broker.services
        return None if services is None else (broker, services)

    # --- faults ------------------------------------------------------------------------------

    def hosts(self) -> list[str]:
        """Return the host names of all brokers."""
        return [broker.host for broker in self.brokers.values()]

    def isolate(self, host: str, others: list[str], *, one_way: bool = False) -> None:
        """Cut the links between a host and `others`."""
        self.counters.cuts += 1
        self.record_event(host, "cut", f"from {','.join(others)}{' one way' if one_way else ''}")
        for other in others:
            self.network.cut(host, other)
            if not one_way:
                self.network.cut(other, host)

    def heal(self) -> None:
        """Restore all links."""
        self.record_event("network", "healed", "")
        self.network.heal_all()


def _name_of(callback: Callback) -> str:
    """Return the name of a callback for the digest, the same in a compiled build: there, a function
    inside a function is an object of a class of its own."""
    name = getattr(callback, "__qualname__", None)
    return "a function" if name is None or "<locals>" in name else name
