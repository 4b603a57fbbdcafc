"""TransactionInvariants: what must hold of transactions and coordinators in a simulated cluster.

After every event, of each replica whose log or high watermark moved:
- the last stable offset is at most the high watermark, and never falls while the replica lives;
- it is where the first transaction begins that is open in what is committed, derived from the
  batches, whatever the log's producer state says. (After a load from a snapshot it may already be
  where it will be once the markers in the log are committed: those are decided, and in the index.)

When all is at rest:
- no transaction is open, in no log and in no coordinator;
- a coordinator's memory equals what a fresh one loads from its log: every transactional id (except
  for epochs that are not stored), every committed offset, every stable generation. (This holds
  where none of its writes has failed: a write that timed out may be in the log.)

Kafka 2.7: KIP-98; kafka.log.ProducerStateManager.firstUnstableOffset.
"""

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.group_coordinator import GroupCoordinator
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.outcome import Moment
from kctl.broker.coordinator.shard_host import HostState, ShardHost
from kctl.broker.coordinator.transaction.settings import TransactionSettings
from kctl.broker.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kctl.broker.log.fetch_data import FetchIsolation
from kctl.broker.log.unified_log import UnifiedLog
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.internal.transaction_state import TransactionState
from kctl.records.control import ControlRecordType, control_record_type
from kctl.records.memory_records import batches
from kctl.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordBatch
from kctl.simulation.cluster import SimBroker, SimCluster
from kctl.simulation.invariants import Invariants, partition_of
from kctl.simulation.queue_checker import Seen
from kctl.simulation.scheduler import NodeScheduler
from kctl.work import at_once

READ_BYTES_MAX = 1 << 24
Key = tuple[str, int]


@dataclass(slots=True)
class _Committed:
    """The transactions of one partition, according to its batches."""

    end_offset: int = 0
    # Producer id -> where its open transaction begins.
    open: dict[int, int] = field(default_factory=dict)
    # High watermark -> the last stable offset that belongs to it.
    stable: dict[int, int] = field(default_factory=lambda: {0: 0})


@dataclass(slots=True)
class _Replica:
    """A replica as last checked."""

    log: UnifiedLog
    log_end_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1


class TransactionInvariants:
    """Watches a SimCluster from its beginning, after `invariants`."""

    def __init__(self, cluster: SimCluster, invariants: Invariants) -> None:
        self._cluster = cluster
        self._invariants = invariants
        self._committed: dict[Key, _Committed] = {}
        self._replicas: dict[int, tuple[NodeScheduler, dict[Key, _Replica]]] = {}
        self._look_first = cluster.world.after_event
        cluster.world.after_event = self._after_event

    # --- last stable offsets -----------------------------------------------------------------

    def _after_event(self, node: NodeScheduler) -> None:
        self._look_first(node)
        serving = self._cluster.serving(node)
        if serving is None:
            return
        broker, services = serving
        known = self._replicas.get(broker.broker_id)
        if known is None or known[0] is not node:
            known = self._replicas[broker.broker_id] = (node, {})
        for key, partition in services.replica_manager.partitions.items():
            log = partition.log
            if log is None:
                continue
            replica = known[1].get(key)
            if replica is None or replica.log is not log:
                replica = known[1][key] = _Replica(log)
            if (
                replica.high_watermark != log.high_watermark
                or replica.log_end_offset != log.log_end_offset
                or replica.last_stable_offset != log.last_stable_offset
            ):
                self._look_at(broker, key, log, replica)

    def _look_at(self, broker: SimBroker, key: Key, log: UnifiedLog, replica: _Replica) -> None:
        stable, high = log.last_stable_offset, log.high_watermark
        before = replica.last_stable_offset
        replica.high_watermark, replica.last_stable_offset = high, stable
        replica.log_end_offset = log.log_end_offset
        committed = self._committed.setdefault(key, _Committed())
        if high > committed.end_offset:
            self._extend(committed, log, high)
        expected = committed.stable.get(high)
        if stable == expected:
            return
        # A loaded log counts the markers that it had by then, committed or not.
        is_off = expected is not None and not expected <= stable <= self._stable_soon(log, high)
        ledger = self._invariants.ledgers.get(key)
        has_fallen = stable < before and not (ledger and ledger.was_elected_uncleanly)
        if has_fallen or stable > high or is_off:
            text = f"last stable offset {stable} after {before}, at high watermark {high}"
            self._fail(broker, key, f"{text}; a transaction is open from {expected} on")

    def _stable_soon(self, log: UnifiedLog, high_watermark: int) -> int:
        """Return the last stable offset that would hold if all markers in the log counted."""
        in_log = _Committed()
        self._extend(in_log, log, log.log_end_offset)
        return min([high_watermark, *in_log.open.values()])

    def _extend(self, committed: _Committed, log: UnifiedLog, high_watermark: int) -> None:
        for batch in batches_of(log, committed.end_offset, high_watermark):
            committed.end_offset = batch.next_offset
            if batch.is_control:
                committed.open.pop(batch.producer_id, None)
            elif batch.is_transactional:
                committed.open.setdefault(batch.producer_id, batch.base_offset)
        if committed.end_offset == high_watermark:
            first = min(committed.open.values(), default=high_watermark)
            committed.stable[high_watermark] = first

    # --- at rest -----------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """Yield why transactions and coordinators are not at rest yet."""
        for broker in self._cluster.brokers.values():
            if broker.broker is None or broker.broker.services is None:
                continue
            for (topic, number), partition in _partitions(broker):
                log = partition.log
                if log is not None and log.last_stable_offset < log.high_watermark:
                    yield (
                        f"{broker.host} {topic}-{number}: a transaction is open from "
                        f"{log.last_stable_offset} on"
                    )
            for host in _hosts(broker):
                if host.state is HostState.LOADING or not host.is_idle:
                    yield f"{broker.host}: the coordinator of {host.topic_partition} is busy"
                elif isinstance(host.shard, TransactionCoordinator):
                    for name, entry in host.shard.entries.items():
                        if entry.is_busy or (entry.current and _is_open(entry.current.state)):
                            yield f"{broker.host}: {name} is {entry.current}"

    def check_coordinators(self) -> None:
        """Compare each coordinator with its log."""
        for broker in self._cluster.brokers.values():
            for host in _hosts(broker):
                key = (host.topic_partition.topic, host.topic_partition.partition)
                partition = partition_of(broker, key)
                if self._invariants.leaders.get(key) != broker.broker_id or partition is None:
                    self._fail(broker, key, f"has a coordinator in state {host.state}")
                elif host.state is not HostState.ACTIVE or partition.log is None:
                    self._fail(broker, key, f"its coordinator is {host.state}")
                elif host.failed_batches:
                    continue
                elif isinstance(host.shard, TransactionCoordinator):
                    ours, theirs = _transactions(host.shard), _loaded_transactions(partition.log)
                    self._compare(broker, key, ours, theirs)
                else:
                    loaded = _loaded_groups(partition.log)
                    for group_id, group in host.shard.groups.items():
                        other = loaded.get(group_id)
                        self._compare(broker, key, _offsets(group), other and _offsets(other))
                        if group.state is GroupState.STABLE:
                            self._compare(broker, key, _members(group), other and _members(other))

    def _compare(self, broker: SimBroker, key: Key, ours: Any, theirs: Any) -> None:
        if ours != (theirs or type(ours)()):
            self._fail(broker, key, f"its coordinator has {ours}, its log has {theirs}")

    def read(self, partition: TopicPartition) -> tuple[list[Seen], list[Seen]]:
        """Return all records of a partition, and those that its markers commit."""
        key = (partition.topic, partition.partition)
        leader = self._cluster.brokers[self._invariants.leaders[key]]
        found = partition_of(leader, key)
        assert found is not None
        assert found.log is not None
        everything: list[Seen] = []
        committed: list[Seen] = []
        waiting: dict[int, list[Seen]] = {}
        for batch in batches_of(found.log, 0, found.log.high_watermark):
            if batch.is_control:
                done = waiting.pop(batch.producer_id, [])
                kind = next(control_record_type(record.key) for record in batch.records())
                committed += done if kind is ControlRecordType.COMMIT else []
                continue
            seen = [
                Seen(partition.partition, record.offset, (record.value or b"").decode())
                for record in batch.records()
            ]
            everything += seen
            waiting.setdefault(batch.producer_id, []).extend(seen)
        return everything, sorted(committed, key=lambda it: it.offset)

    def _fail(self, broker: SimBroker, key: Key, text: str) -> None:
        self._cluster.fail(f"{broker.host} {key[0]}-{key[1]}: {text}")


def batches_of(log: UnifiedLog, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
    """Yield the batches of a log from `start_offset` that end before `end_offset`."""
    while start_offset < end_offset:
        # A read ends at the end of its segment.
        found = log.read(start_offset, READ_BYTES_MAX, isolation=FetchIsolation.LOG_END).records
        data = b"" if found is None else found.file.pread(found.length, found.position)
        before = start_offset
        for batch in batches(data):
            if batch.last_offset >= end_offset:
                return
            if isinstance(batch, RecordBatch) and batch.base_offset >= start_offset:
                yield batch
            start_offset = batch.next_offset
        if start_offset == before:
            return


# --- coordinators --------------------------------------------------------------------------------


def _partitions(broker: SimBroker) -> Iterator[Any]:
    assert broker.broker is not None
    assert broker.broker.services is not None
    yield from broker.broker.services.replica_manager.partitions.items()


def _hosts(broker: SimBroker) -> Iterator[ShardHost[Any]]:
    if broker.broker is not None and broker.broker.services is not None:
        services = broker.broker.services
        yield from services.transaction_coordinator.hosts.values()
        yield from services.group_coordinator.hosts.values()


def _is_open(state: TransactionState) -> bool:
    return state in (
        TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
    )  # fmt: skip


def _transactions(shard: TransactionCoordinator) -> dict[str, Any]:
    """Return transactional id -> its state, without what is not stored."""
    return {
        name: replace(
            entry.current,
            last_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )
        for name, entry in shard.entries.items()
        if entry.current is not None
    }


def _loaded_transactions(log: UnifiedLog) -> dict[str, Any]:
    shard = TransactionCoordinator(TransactionSettings(), 0)
    for batch in batches_of(log, 0, log.high_watermark):
        at_once(shard.load(batch))
    return _transactions(shard)


def _loaded_groups(log: UnifiedLog) -> dict[str, Group]:
    shard = GroupCoordinator(GroupSettings())
    for batch in batches_of(log, 0, log.high_watermark):
        at_once(shard.load(batch))
    at_once(shard.loaded(Moment(0, 0)))
    return shard.groups


def _offsets(group: Group) -> dict[Any, Any]:
    pending = group.offsets.pending_by_producer
    return {**group.offsets.committed, **({"pending": pending} if pending else {})}


def _members(group: Group) -> dict[str, Any]:
    members = {it.member_id: bytes(it.assignment) for it in group.members.values()}
    return {"generation": group.generation_id, "leader": group.leader_id, "members": members}
