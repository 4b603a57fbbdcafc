"""Simulation: the run of one seed, from its settings and faults to the verdict.

A swarm: each seed draws which faults it has and how often, so that some seeds have all of them and
others only one, frequently. There are two phases. Safety: anything may fail at any time, and only
the invariants are checked. Liveness: everything is repaired and restarted, and the cluster must
come to rest in time: leaders, full ISRs, every write acknowledged, every reader at the end, all
replicas equal. Finally the brokers are stopped cleanly, and their directories are verified and
loaded again.

With `flush.messages=1` (durable seeds) machines lose power; without it processes are only killed,
as Kafka does not promise more: data that was not fsynced is lost with the machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from kctl.broker.broker import Broker
from kctl.broker.replication.partition import Role
from kctl.lazy_dataclass import dataclass
from kctl.simulation.acl_invariants import AclInvariants
from kctl.simulation.acl_workload import AclWorkload
from kctl.simulation.cluster import LOG_DIRECTORIES, Life, SimBroker, SimCluster
from kctl.simulation.invariants import Invariants, partition_of
from kctl.simulation.ledger import Key, batches_between
from kctl.simulation.old_controllers import OldController
from kctl.simulation.plan import FAULTS, Plan
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.security import SecurityPlan, SimSecurity
from kctl.simulation.store import STORE_HOST
from kctl.simulation.transactional_workload import (
    SETTINGS as TRANSACTION_SETTINGS,
)
from kctl.simulation.transactional_workload import (
    TransactionalWorkload,
    TransactionPlan,
)
from kctl.simulation.workload import Workload

START_LIMIT_MS = 15_000
LIVENESS_LIMIT_MS = 60_000
STOP_LIMIT_MS = 20_000
REPLICATION_FACTOR = 3
# Seeds of a thousand in which transactions and groups take part.
TRANSACTIONAL_SEEDS = 330
# Seeds of a thousand with producers that have several batches in flight, and how many there are.
PIPELINED_SEEDS = 250
PIPELINED_PRODUCERS_MAX = 2
# Seeds of a thousand whose clients authenticate, and whose ACLs change.
SECURED_SEEDS = 150


@dataclass(slots=True)
class Outcome:
    """The result of a seed."""

    seed: int
    violation: str | None
    digest: str
    events: int
    virtual_ms: int
    counters: dict[str, int]
    plan: str
    trace: list[str]


class Simulation:
    """A run of one seed.

    `broker_class` is the class under test. `has_transactions`, `is_pipelined` and `is_secured`:
    None lets the seed draw whether transactional clients, and producers with several batches in
    flight, take part, and whether clients authenticate and ACLs change.
    """

    def __init__(
        self,
        seed: int,
        broker_class: type[Broker] = Broker,
        *,
        has_transactions: bool | None = None,
        is_pipelined: bool | None = None,
        is_secured: bool | None = None,
    ) -> None:
        entropy = SimEntropy(seed, "plan")
        self.plan = Plan.drawn(entropy)
        # Separate entropy, so that the seed's other draws do not change.
        chance = SimEntropy(seed, "transactions")
        is_drawn = chance.chance(TRANSACTIONAL_SEEDS)
        if is_drawn if has_transactions is None else has_transactions:
            self.plan.transactions = TransactionPlan.drawn(chance)
            self.plan.settings |= TRANSACTION_SETTINGS
        chance = SimEntropy(seed, "pipelined")
        is_drawn = chance.chance(PIPELINED_SEEDS)
        if is_drawn if is_pipelined is None else is_pipelined:
            self.plan.pipelined_producers = chance.between(1, PIPELINED_PRODUCERS_MAX)
        chance = self._security_entropy = SimEntropy(seed, "security")
        is_drawn = chance.chance(SECURED_SEEDS)
        if is_drawn if is_secured is None else is_secured:
            self.plan.security = SecurityPlan.drawn(chance)
        later = SimEntropy(seed, "later faults")
        self.plan.draw_later_faults(later)
        self._later_entropy = later
        if self.plan.security is not None and self.plan.store_loss:
            # Without entries in the store, others lose their permissions for a while.
            self.plan.security = replace(self.plan.security, are_clients_super_users=True)
        self.entropy = SimEntropy(seed, "faults")
        self.cluster = SimCluster(
            seed,
            self.plan.broker_count,
            self.plan.settings,
            self.plan.weather,
            broker_class,
            self.plan.name_order,
            None if self.plan.security is None else SimSecurity(self.plan.security),
        )
        if self.plan.old_controller is not None:
            self.cluster.old_controller = OldController(self.plan.old_controller)
        self.cluster.on_trace = self._trace_line
        self.invariants = Invariants(self.cluster)
        self.workload = Workload(
            self.cluster,
            self.invariants,
            topics=self.plan.topics,
            rf=REPLICATION_FACTOR,
            habits=self.plan.habits,
        )
        self.acls: AclWorkload | None = None
        self.acl_invariants: AclInvariants | None = None
        if self.plan.security is not None:
            self.acl_invariants = AclInvariants(self.cluster)
            self.acls = AclWorkload(self.workload, self.acl_invariants)
        self.transactions: TransactionalWorkload | None = None
        if self.plan.transactions is not None:
            self.transactions = TransactionalWorkload(
                self.cluster, self.invariants, self.plan.transactions
            )
        self.expirations_forced = 0
        self.lags = 0
        self._is_safe = False
        self._heal_at_ms = 0
        self._restart_at_ms: dict[int, int] = {}

    def run(self) -> Outcome:
        """Play the seed to its end, or to its first violation."""
        for phase in (self._start, self._endanger, self._heal, self._converge, self._stop):
            phase()
            if self.cluster.violation is not None:
                break
        return self._outcome()

    def _outcome(self) -> Outcome:
        cluster, workload = self.cluster, self.workload
        counters = {it.name: getattr(cluster.counters, it.name) for it in fields(cluster.counters)}
        network = cluster.network.counters
        counters |= {it.name: getattr(network, it.name) for it in fields(network)}
        counters |= {
            "sessions_expired": cluster.store.expired,
            "links_slowed": self.lags,
            "old_requests": 0
            if cluster.old_controller is None
            else cluster.old_controller.converted,
            "acknowledged": workload.acknowledged,
            "records_read": workload.records_read,
            "group_commits": workload.commits,
            "epochs_raised": workload.epochs_raised,
            **{f"operator_{name}": count for name, count in workload.operator.counters.items()},
            "unclean_elections": self.invariants.unclean_elections,
            "topics_deleted": self.invariants.topics_deleted,
            "logs_cut": self.invariants.logs_cut,
            "batches_compared": self.invariants.checks,
        }
        acls, judged = self.acls, self.acl_invariants
        counters |= {
            "acl_changes": 0 if acls is None else acls.changes,
            "rejected_strangers": 0 if acls is None else acls.rejections,
            "allowed_requests": 0 if judged is None else judged.allowed,
            "denied_requests": 0 if judged is None else judged.denied,
            "certificates_reloaded": 0 if judged is None else judged.reloads,
        }
        if self.transactions is not None:
            counters |= self.transactions.totals()
        return Outcome(
            cluster.seed,
            None if cluster.violation is None else str(cluster.violation),
            cluster.digest(),
            cluster.world.events_run,
            cluster.world.now_ms,
            counters,
            str(self.plan),
            list(cluster.trace),
        )

    def _until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        cluster = self.cluster
        return cluster.world.run_until(
            lambda: cluster.violation is not None or condition(), cluster.world.now_ms + limit_ms
        )

    def _trace_line(self, process: str, name: str, text: str) -> None:
        """Treat what the product itself reports as a bug as a violation."""
        if name == "controller_bug" or (name == "warning" and "Unexpected error" in text):
            self.cluster.fail(f"{process}: {text}")
        elif name == "log_damaged":
            self.cluster.fail(f"{process}: a log is reported damaged: {text}")

    # --- safety ------------------------------------------------------------------------------

    def _start(self) -> None:
        brokers = self.cluster.brokers.values()
        for broker in brokers:
            broker.wall_skew_ms = self.entropy.between(-500, 500)
            broker.start()
        if not self._until(lambda: all(it.life is Life.UP for it in brokers), START_LIMIT_MS):
            self.cluster.fail("the brokers do not start")
        self.workload.start(
            producers=self.plan.producers,
            plain_producers=self.plan.plain_producers,
            pipelined_producers=self.plan.pipelined_producers,
        )
        if self.transactions is not None:
            self.transactions.start()
        if self.acls is not None:
            self.acls.start()

    def _endanger(self) -> None:
        end_ms = self.cluster.world.now_ms + self.plan.safety_ms
        while self.cluster.world.now_ms < end_ms and self.cluster.violation is None:
            step_us = self.entropy.random_below(self.plan.step_ms_max * 1000) + 1
            until_us = self.cluster.world.now_us + step_us
            self._run_to(until_us)
            self._bring_back()
            self._break_something()

    def _run_to(self, until_us: int) -> None:
        cluster = self.cluster
        cluster.world.run_until(
            lambda: cluster.violation is not None or cluster.world.now_us >= until_us,
            until_us // 1000 + 1,
        )

    def _bring_back(self) -> None:
        now_ms = self.cluster.world.now_ms
        if self._heal_at_ms and now_ms >= self._heal_at_ms:
            self._heal_at_ms = 0
            self.cluster.heal()
        for broker in self.cluster.brokers.values():
            if broker.life is not Life.DOWN:
                continue
            due_ms = self._restart_at_ms.setdefault(
                broker.broker_id, now_ms + self.entropy.random_below(self.plan.down_ms_max)
            )
            if now_ms >= due_ms:
                del self._restart_at_ms[broker.broker_id]
                self._start_again(broker)

    def _start_again(self, broker: SimBroker) -> None:
        broker.disk.fail.clear()
        broker.start()

    def _break_something(self) -> None:
        plan, entropy = self.plan, self.entropy
        for name in FAULTS:
            if entropy.chance(getattr(plan, name)):
                self._break(name, self._victim())
        if self._later_entropy.chance(plan.stall):
            stall_us = self._later_entropy.random_below(plan.cut_ms_max * 1000) + 1
            self._victim().pause(stall_us, only_loop=True)
        if self._later_entropy.chance(plan.store_loss):
            self._lose_store()
        security = plan.security
        if security and security.has_tls and self._security_entropy.chance(security.reload):
            self._replace_certificate()

    def _replace_certificate(self) -> None:
        """Replace a broker's certificate, perhaps by one that cannot be read, and reload it."""
        entropy, invariants = self._security_entropy, self.acl_invariants
        assert invariants is not None
        broker = entropy.choice(list(self.cluster.brokers.values()))
        certificate = f"certificate {invariants.reloads + 1}"
        invariants.reload(broker, certificate, is_usable=entropy.chance(700))

    def _lose_store(self) -> None:
        """Empty the store until its data is restored."""
        store, delay_ms = self.cluster.store, self._later_entropy.between(50, 3_000)
        self.cluster.counters.stores_emptied += 1
        self.cluster.record_event(STORE_HOST, "emptied", f"for_ms={delay_ms}")
        store.lose_data()
        store.scheduler.call_later(delay_ms, store.restore_data)

    def _victim(self) -> SimBroker:
        entropy, brokers = self.entropy, self.cluster.brokers
        if entropy.chance(self.plan.chase):
            controller_id = self.cluster.store.controller_id()
            leaders = [it for it in self.invariants.leaders.values() if it in brokers]
            if controller_id in brokers and (not leaders or entropy.chance(500)):
                return brokers[controller_id]
            if leaders:
                return brokers[entropy.choice(leaders)]
        return entropy.choice(list(brokers.values()))

    def _break(self, name: str, broker: SimBroker) -> None:
        entropy = self.entropy
        match name:
            case "kill":
                broker.kill(by_power_loss=self._by_power())
            case "kill_inside":
                broker.die_at_change(entropy.between(1, 12), by_power_loss=self._by_power())
            case "stop":
                broker.stop()
            case "pause":
                broker.pause(entropy.random_below(self.plan.cut_ms_max * 1000) + 1)
            case "disk_failure":
                self._fail_disk(broker, "/")
            case "directory_failure":
                self._fail_disk(broker, entropy.choice(LOG_DIRECTORIES))
            case _:
                self._break_link(name, broker)

    def _break_link(self, name: str, broker: SimBroker) -> None:
        match name:
            case "cut" | "one_way_cut":
                self._cut(broker, one_way=name == "one_way_cut")
            case "store_cut":
                self.cluster.counters.store_cuts += 1
                self.cluster.isolate(broker.host, [STORE_HOST])
                self._heal_later()
            case "expire":
                self._expire(broker)
            case "reset":
                self.cluster.network.reset_some(self.entropy.random_below(1_000))
            case "lag":
                self._slow_down(broker)

    def _cut(self, broker: SimBroker, *, one_way: bool) -> None:
        """Cut the broker off, from all others and perhaps a client, or from one."""
        entropy = self.entropy
        others = [host for host in self.cluster.hosts() if host != broker.host]
        clients = ["producer-0"] if self.transactions is None else self.transactions.hosts
        victims = [*others, entropy.choice(clients)] if entropy.chance(300) else others
        if entropy.chance(400):
            victims = [entropy.choice(others)]
        self.cluster.isolate(broker.host, victims, one_way=one_way)
        self._heal_later()

    def _slow_down(self, broker: SimBroker) -> None:
        """Delay traffic between the broker and one of the others."""
        entropy, network = self.entropy, self.cluster.network
        others = [host for host in self.cluster.hosts() if host != broker.host]
        other = STORE_HOST if entropy.chance(400) else entropy.choice(others)
        lag_us_max = self.plan.lag_ms_max * 1_000
        self.cluster.record_event(
            broker.host, "slow", f"with {other} up to {self.plan.lag_ms_max} ms"
        )
        network.slow(broker.host, other, lag_us_max)
        network.slow(other, broker.host, lag_us_max)
        self.lags += 1
        self._heal_later()

    def _by_power(self) -> bool:
        return self.plan.is_durable and self.entropy.chance(700)

    def _heal_later(self) -> None:
        if not self._heal_at_ms:
            self._heal_at_ms = self.cluster.world.now_ms + 1
            self._heal_at_ms += self.entropy.random_below(self.plan.cut_ms_max)

    def _expire(self, broker: SimBroker) -> None:
        if broker.life is Life.UP and broker.store is not None:
            self.expirations_forced += 1
            self.cluster.record_event(broker.host, "session_expired", "")
            self.cluster.store.expire(broker.store.session)

    def _fail_disk(self, broker: SimBroker, path: str) -> None:
        """Fail every write below `path` from now on. A broker without a working directory stops,
        and is restarted when its disk works.
        """
        counters = self.cluster.counters
        if broker.life is not Life.UP:
            return
        if path == "/":
            counters.disk_failures += 1
        elif broker.disk.fail or "," not in self.plan.settings.get("log.dirs", ""):
            return
        else:
            counters.directory_failures += 1
        self.cluster.record_event(broker.host, "disk_fails", path)
        broker.disk.fail[path] = "Input/output error"

    # --- liveness ----------------------------------------------------------------------------

    def _heal(self) -> None:
        cluster = self.cluster
        weather = cluster.network.weather
        weather.reset_chance = 0
        weather.slow_us_max = min(weather.slow_us_max, 20_000)
        cluster.heal()
        cluster.store.restore_data()
        cluster.record_event("observer", "liveness", "")
        self.workload.is_draining = True
        if self.transactions is not None:
            self.transactions.drain()

    def _restart_all(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.dies_at_change = 0
            if broker.disk.fail:
                broker.kill()
            if broker.life is Life.DOWN:
                self._start_again(broker)

    def _converge(self) -> None:
        cluster = self.cluster
        end_ms = cluster.world.now_ms + LIVENESS_LIMIT_MS
        while cluster.violation is None:
            self._restart_all()
            problem = next(self._problems(), None)
            if problem is None:
                break
            if cluster.world.now_ms >= end_ms:
                cluster.fail(f"after {LIVENESS_LIMIT_MS} ms of peace: {problem}")
                return
            cluster.world.run_until(
                lambda: cluster.violation is not None, cluster.world.now_ms + 100
            )
        self.workload.is_over = True
        if self.transactions is not None and cluster.violation is None:
            self.transactions.check()
            self.transactions.is_over = True

    def _problems(self) -> Iterator[str]:
        """Yield why the cluster is not at rest yet."""
        cluster, invariants = self.cluster, self.invariants
        yield from self._processes()
        for what in self.workload.unfinished.values():
            yield f"unfinished: {what}"
        if self.transactions is not None:
            yield from self.transactions.problems()
        if cluster.store.database.tree.nodes.get("/controller") is None:
            yield "there is no controller"
        if "/admin/reassign_partitions" in cluster.store.database.tree.nodes:
            yield "a reassignment is in the store"
        for key in invariants.partitions():
            yield from self._problems_of(key)
        for broker in cluster.brokers.values():
            yield from self._remains(broker)
        if self.acl_invariants is not None:
            yield from self.acl_invariants.problems()

    def _processes(self) -> Iterator[str]:
        for broker in self.cluster.brokers.values():
            if broker.life is not Life.UP:
                yield f"{broker.host} is {broker.life.value}"
            elif broker.is_paused:
                yield f"{broker.host} is paused"

    def _remains(self, broker: SimBroker) -> Iterator[str]:
        """Yield directories of partitions that were deleted or moved, or are elsewhere."""
        expected = {
            f"{topic}-{number}"
            for topic, number in self.invariants.partitions()
            if broker.broker_id in self.invariants.assignment((topic, number))
        }
        disk = broker.disk
        for directory in filter(disk.is_directory, LOG_DIRECTORIES):
            for name in disk.list(directory):
                path = f"{directory}/{name}"
                if name not in expected and disk.is_directory(path):
                    yield f"{broker.host} still has {path}"

    def _problems_of(self, key: Key) -> Iterator[str]:
        invariants = self.invariants
        name = f"{key[0]}-{key[1]}"
        if not invariants.is_alive(key[0]):
            yield f"{name} is not deleted yet"
            return
        replicas = invariants.assignment(key)
        isr, leader_id = invariants.isrs.get(key, ()), invariants.leaders.get(key, -1)
        if leader_id < 0:
            yield f"{name} has no leader"
            return
        if len(replicas) != REPLICATION_FACTOR or set(isr) != set(replicas):
            yield f"{name}: ISR {isr}, assignment {replicas}"
            return
        leader = partition_of(self.cluster.brokers[leader_id], key)
        if leader is None or leader.log is None or leader.role is not Role.LEADER:
            yield f"{name}: broker {leader_id} does not lead it"
            return
        end_offset = leader.log.log_end_offset
        for replica_id in replicas:
            replica = partition_of(self.cluster.brokers[replica_id], key)
            if replica is None or replica.log is None:
                yield f"{name}: broker {replica_id} does not have it"
            elif replica.log.log_end_offset != end_offset:
                found = replica.log.log_end_offset
                yield f"{name}: broker {replica_id} has {found} of {end_offset}"
            elif replica.log.high_watermark != end_offset:
                yield (
                    f"{name}: broker {replica_id} has high watermark "
                    f"{replica.log.high_watermark} of {end_offset}"
                )
        if key in self.workload.all_partitions() and self.workload.read_to(key) < end_offset:
            yield f"{name}: read to {self.workload.read_to(key)} of {end_offset}"

    # --- the end -----------------------------------------------------------------------------

    def _stop(self) -> None:
        """Check that replicas are equal byte for byte, and that a clean stop leaves what a start
        finds.
        """
        cluster, invariants = self.cluster, self.invariants
        for key in invariants.partitions():
            ledger = invariants.ledgers[key]
            for replica_id in invariants.assignment(key):
                partition = partition_of(cluster.brokers[replica_id], key)
                assert partition is not None
                assert partition.log is not None
                log = partition.log
                start_offset = max(log.log_start_offset, ledger.start_offset)
                found = batches_between(log, start_offset, log.log_end_offset)
                difference = ledger.difference(log, found, start_offset, log.log_end_offset)
                if difference is not None:
                    cluster.fail(f"broker {replica_id}: {key[0]}-{key[1]} {difference}")
        if self.acl_invariants is not None:
            self.acl_invariants.check_logs(invariants.ledgers.values())
        for broker in cluster.brokers.values():
            broker.stop()
        brokers = cluster.brokers.values()
        if not self._until(lambda: all(it.life is Life.DOWN for it in brokers), STOP_LIMIT_MS):
            cluster.fail("the brokers do not stop")
