"""The samples of a broker's metrics: what a scrape reads from its parts.

Each part of the work is small, and the loop serves others between two of them, so that facts of
different lines may be of different moments. Partitions are listed once, at the start.
"""

from collections.abc import Callable, Iterable, Iterator

from kctl.broker.log.unified_log import UnifiedLog
from kctl.broker.metering.link_samples import link_partition_samples, link_samples
from kctl.broker.metering.meter import BrokerMeter, TopicCounters
from kctl.broker.metering.request_samples import request_samples
from kctl.broker.network.counters import ListenerCounters
from kctl.broker.network.server import SocketServer
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.services import Services
from kctl.lazy_dataclass import dataclass
from kctl.metrics import broker_families as f
from kctl.metrics.family import Family, Sample, Samples
from kctl.metrics.histogram import summarized
from kctl.runtime.watchdog import LoopWatchdog

# A broker with more partitions leaves out the series of each, unless they are asked for.
PARTITIONS_MAX = 5_000
# The share of time that a loop is busy is that of this time, or longer.
BUSY_MS_MIN = 5_000
_MS = 1_000
_PROCESSOR = "0"
_TOPIC_COUNTERS: tuple[tuple[Family, str], ...] = (
    (f.MESSAGES_IN, "messages_in"),
    (f.BYTES_IN, "bytes_in"),
    (f.BYTES_OUT, "bytes_out"),
    (f.BYTES_REJECTED, "bytes_rejected"),
    (f.REPLICATION_IN, "replication_in"),
    (f.REPLICATION_OUT, "replication_out"),
    (f.PRODUCE_REQUESTS, "produce_requests"),
    (f.FETCH_REQUESTS, "fetch_requests"),
    (f.FAILED_PRODUCE, "failed_produce"),
    (f.FAILED_FETCH, "failed_fetch"),
)
_LOGIN_COUNTERS: tuple[tuple[Family, str], ...] = (
    (f.AUTHENTICATIONS, "authentications"),
    (f.FAILED_AUTHENTICATIONS, "failed_authentications"),
    (f.REAUTHENTICATIONS, "reauthentications"),
    (f.FAILED_REAUTHENTICATIONS, "failed_reauthentications"),
)
BROKER_STARTING, BROKER_RUNNING = 1, 3


def one(family: Family, value: float) -> Sample:
    """Return the only sample of a family, without labels."""
    return Sample(family, (None,) * len(family.labels), value)


@dataclass(slots=True)
class LoopShare:
    """Measures the share of time that a loop is busy, between scrapes."""

    watchdog: LoopWatchdog | None
    began: tuple[int, float] | None = None
    last: float = 0.0

    def busy(self, now_ms: int) -> float:
        """Return the share (0 to 1) since the last call but one that is BUSY_MS_MIN ago."""
        watchdog = self.watchdog
        if watchdog is None:
            return 0.0
        busy = watchdog.busy_seconds
        if self.began is None:
            self.began = (now_ms, busy)
        elapsed_ms = now_ms - self.began[0]
        if elapsed_ms >= BUSY_MS_MIN:
            self.last = min(1.0, (busy - self.began[1]) * _MS / elapsed_ms)
            self.began = (now_ms, busy)
        return self.last


class BrokerSamples:
    """Reads the metrics of one broker."""

    def __init__(
        self,
        services: Services,
        server: SocketServer,
        meter: BrokerMeter,
        watchdog: LoopWatchdog | None,
        is_running: Callable[[], bool],
    ) -> None:
        self._services = services
        self._server = server
        self._meter = meter
        self._watchdog = watchdog
        self._share = LoopShare(watchdog)
        self._is_running = is_running

    def all(self, *, with_partitions: bool | None) -> Samples:
        """Yield every sample; `with_partitions` None: those of partitions if there are at most
        PARTITIONS_MAX."""
        partitions = list(self._services.replica_manager.partitions.values())
        if with_partitions is None:
            with_partitions = len(partitions) <= PARTITIONS_MAX
        yield from self._replicas(partitions)
        yield from self._controller()
        yield from self._topics()
        yield from request_samples(self._meter, self._services.runtime.clock.monotonic_ms())
        yield from self._network()
        yield from self._logs()
        yield from self._coordinators()
        yield from self._loop()
        linked = list(self._services.links.partitions())
        now_ms = self._services.runtime.clock.monotonic_ms()
        yield from link_samples(linked, now_ms)
        yield one(f.SERIES_OMITTED, 0 if with_partitions else len(partitions))
        if with_partitions:
            yield from self._each_partition(partitions)
            yield from link_partition_samples(linked, now_ms)

    # --- replicas ----------------------------------------------------------------------------

    def _replicas(self, partitions: Iterable[Partition]) -> Samples:
        counts = dict.fromkeys(
            (
                f.PARTITION_COUNT, f.LEADER_COUNT, f.UNDER_REPLICATED, f.UNDER_MIN_ISR,
                f.AT_MIN_ISR, f.OFFLINE_REPLICAS,
            ),
            0,
        )  # fmt: skip
        for partition in partitions:
            counts[f.PARTITION_COUNT] += partition.role is not Role.NONE or bool(partition.log)
            counts[f.OFFLINE_REPLICAS] += partition.role is Role.OFFLINE
            if partition.role is Role.LEADER:
                below, at, under = _isr_facts(partition)
                counts[f.LEADER_COUNT] += 1
                counts[f.UNDER_MIN_ISR] += below
                counts[f.AT_MIN_ISR] += at
                counts[f.UNDER_REPLICATED] += under
            yield None
        for family, count in counts.items():
            yield one(family, count)
        yield one(f.ISR_SHRINKS, self._meter.isr_shrinks)
        yield one(f.ISR_EXPANDS, self._meter.isr_expands)

    def _each_partition(self, partitions: list[Partition]) -> Samples:
        names = [
            (partition.topic_partition.topic, str(partition.topic_partition.partition))
            for partition in partitions
        ]
        led: tuple[tuple[Family, Callable[[Partition], int]], ...] = (
            (f.PARTITION_UNDER_MIN_ISR, lambda it: _isr_facts(it)[0]),
            (f.PARTITION_AT_MIN_ISR, lambda it: _isr_facts(it)[1]),
            (f.PARTITION_UNDER_REPLICATED, lambda it: _isr_facts(it)[2]),
            (f.PARTITION_ISR, lambda it: len(it.isr)),
            (f.PARTITION_REPLICAS, lambda it: len(it.assignment)),
        )
        for family, read in led:
            for labels, partition in zip(names, partitions, strict=True):
                is_leader = partition.role is Role.LEADER
                yield Sample(family, labels, read(partition) if is_leader else 0)
        logs: tuple[tuple[Family, Callable[[UnifiedLog], int]], ...] = (
            (f.LOG_SIZE, lambda log: log.size),
            (f.LOG_END, lambda log: log.log_end_offset),
            (f.LOG_START, lambda log: log.log_start_offset),
            (f.LOG_SEGMENTS, lambda log: len(log.segments)),
        )
        for log_family, read_log in logs:
            for labels, partition in zip(names, partitions, strict=True):
                if partition.log is not None:
                    yield Sample(log_family, labels, read_log(partition.log))

    # --- the controller ----------------------------------------------------------------------

    def _controller(self) -> Samples:
        controller = self._services.controller
        context = controller.context
        is_active = controller.is_active
        offline = strayed = partitions = 0
        topics = list(context.topics.values()) if is_active else []
        for assignment in topics:
            partitions += len(assignment)
            yield None
        for tp, state in list(context.leadership.items()) if is_active else []:
            yield None
            leader = state.leader_and_isr.leader
            if context.is_to_be_deleted(tp.topic):
                continue
            offline += not context.is_replica_online(leader, tp)
            replicas = context.assignment(tp).replicas
            strayed += bool(replicas) and leader != replicas[0]
        yield one(f.ACTIVE_CONTROLLER, int(is_active))
        yield one(f.OFFLINE_PARTITIONS, offline)
        yield one(f.PREFERRED_IMBALANCE, strayed)
        yield one(f.GLOBAL_TOPICS, len(topics))
        yield one(f.GLOBAL_PARTITIONS, partitions)
        yield one(f.TOPICS_TO_DELETE, len(context.topics_to_delete) if is_active else 0)
        yield one(f.UNCLEAN_ELECTIONS, self._meter.unclean_elections)

    # --- topics and requests -----------------------------------------------------------------

    def _topics(self) -> Samples:
        meter = self._meter
        here = {topic for topic, _ in self._services.replica_manager.partitions}
        yield None
        for name in [name for name in meter.topics if name not in here]:
            meter.former_topics.add(meter.topics.pop(name))
            yield None
        topics = list(meter.topics.items())
        total = TopicCounters()
        total.add(meter.former_topics)
        for _, counters in topics:
            total.add(counters)
            yield None
        for family, attribute in _TOPIC_COUNTERS:
            yield Sample(family, (None,), getattr(total, attribute))
            for name, counters in topics:
                yield Sample(family, (name,), getattr(counters, attribute))

    def _network(self) -> Samples:
        server, counters = self._server, self._server.counters
        now_ms = self._services.runtime.clock.monotonic_ms()
        busy = self._share.busy(now_ms)
        yield one(f.NETWORK_IDLE, 1 - busy)
        yield one(f.HANDLER_IDLE, 1 - busy)
        yield one(f.LOOP_BUSY, busy)
        for name, count in server.connections_by_listener().items():
            yield Sample(f.CONNECTIONS, (name, _PROCESSOR), count)
        for name, count in list(counters.accepted_by_listener.items()):
            yield Sample(f.CONNECTIONS_MADE, (name, _PROCESSOR), count)
        yield from self._security()
        for family, count in (
            (f.BAD_REQUESTS, counters.bad_requests),
            (f.HANDLER_ERRORS, counters.handler_errors),
            (f.REFUSED_CONNECTIONS, counters.connections_refused),
            (f.REQUEST_MEMORY, counters.queued_request_bytes),
            (f.MEMORY_WAITS, counters.budget_waits),
        ):
            yield one(family, count)

    def _security(self) -> Samples:
        """Yield the samples of logins and TLS, also of listeners that had none."""
        counters = self._server.counters
        by_listener = {
            name: counters.listeners.get(name, ListenerCounters())
            for name in (*self._server.connections_by_listener(), *counters.listeners)
        }
        for family, attribute in _LOGIN_COUNTERS:
            for name, counts in by_listener.items():
                yield Sample(family, (name, _PROCESSOR), getattr(counts, attribute))
        for name, counts in by_listener.items():
            yield Sample(f.TLS_FAILURES, (name,), counts.failed_tls_connections)
        for name, counts in by_listener.items():
            for (protocol, cipher), count in list(counts.handshakes.items()):
                yield Sample(f.TLS_HANDSHAKES, (name, protocol, cipher), count)

    # --- logs, coordinators, loop ------------------------------------------------------------

    def _logs(self) -> Samples:
        manager = self._services.log_manager
        offline = manager.offline_log_dirs
        yield one(f.OFFLINE_DIRECTORIES, len(offline))
        for path in manager.live_log_dirs:
            yield Sample(f.DIRECTORY_OFFLINE, (path,), 0)
        for path in offline:
            yield Sample(f.DIRECTORY_OFFLINE, (path,), 1)
        meter = self._meter
        value = meter.fsyncs.value()
        now_ms = self._services.runtime.clock.monotonic_ms()
        recent = meter.fsync_window.recent(value.counts, now_ms)
        yield Sample(f.LOG_FLUSHES, (), summarized(value, recent, _MS))
        yield Sample(f.FSYNC_SECONDS, (), value)
        yield from self._cleaner()

    def _cleaner(self) -> Samples:
        cleaner = self._services.log_manager.cleaner
        yield one(f.CLEANER_RECOPY, cleaner.last.recopy_percent)
        yield one(f.CLEANER_TIME, cleaner.last.took_ms / _MS)
        yield one(f.CLEANER_BUFFER, 100 * cleaner.last.buffer_share)
        yield one(f.CLEANER_OVERDUE, cleaner.manager.overdue_ms / _MS)
        yield one(f.CLEANER_DEAD, int(cleaner.is_dead))
        yield one(f.CLEANER_DIRTY, 100 * cleaner.manager.dirtiest_ratio)
        yield one(f.CLEANER_LOOKED, cleaner.looked_ms_ago())
        directories = self._services.log_manager.live_log_dirs
        for directory, count in cleaner.manager.uncleanable(directories).items():
            yield Sample(f.UNCLEANABLE, (directory,), count)
        now_ms = self._services.runtime.clock.wall_ms()
        for directory, size in cleaner.manager.uncleanable_bytes(directories, now_ms).items():
            yield Sample(f.UNCLEANABLE_BYTES, (directory,), size)

    def _coordinators(self) -> Samples:
        services = self._services
        for name, waiting in services.replica_manager.delayed_counts().items():
            yield Sample(f.PURGATORY, (name,), waiting)
        yield one(f.FETCH_SESSIONS, len(services.fetch_sessions))
        states = dict.fromkeys(f.GROUPS_BY_STATE, 0)
        offsets = 0
        for group in _groups(services):
            yield None
            states[group[0]] += 1
            offsets += group[1]
        yield one(f.GROUPS, sum(states.values()))
        for state, count in states.items():
            yield one(f.GROUPS_BY_STATE[state], count)
        yield one(f.GROUP_OFFSETS, offsets)
        yield one(f.BROKER_STATE, BROKER_RUNNING if self._is_running() else BROKER_STARTING)
        yield one(f.BROKER_ID, services.broker_id)

    def _loop(self) -> Samples:
        watchdog = self._watchdog
        if watchdog is None:
            return
        yield one(f.LOOP_BUSY_SECONDS, watchdog.busy_seconds)
        yield one(f.LONG_TURNS, watchdog.long_turns)
        yield Sample(f.TURN_SECONDS, (), self._meter.turns.value())


def _isr_facts(partition: Partition) -> tuple[bool, bool, bool]:
    """Return whether the ISR of a partition led here is below min.insync.replicas, is just that,
    and lacks a replica."""
    log = partition.log
    wanted = log.config.min_insync_replicas if log is not None else 1
    in_sync = len(partition.isr)
    return in_sync < wanted, in_sync == wanted, in_sync < len(partition.assignment)


def _groups(services: Services) -> Iterator[tuple[str, int]]:
    """Yield state and number of offsets of each group coordinated here."""
    for host in list(services.group_coordinator.hosts.values()):
        for group in list(host.shard.groups.values()):
            yield group.state.value, len(group.offsets.committed)
