"""Invariants: what must hold after every event, and the ledger of what was committed.

A record is committed once its leader's high watermark has passed it. The ledger keeps, for each
partition, what was committed in the order of offsets, as the first leader to commit it had it; it
only grows. Everything else is held against it.

After every event, of the broker whose event it was:
- per partition and leader epoch there is one leader, and a new one has all that was committed;
- leader epochs and high watermarks only rise while the process lives;
- up to its high watermark a replica has what the ledger has, byte for byte (by header and CRC);
- a leader's ISR is part of its assignment;
- what a leader commits of an idempotent producer has no gap, no duplicate and no other order.
After every write to the store:
- leader epochs, controller epochs and assignments' ISRs are as they must be;
- every live replica of the ISR has all that was committed (StrongIsr).

kafka-specification: WeakIsr, StrongIsr, LeaderInIsr; Kafka 2.7: KIP-101, KIP-279, KIP-320, KIP-497.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.broker.log.fetch_data import FetchIsolation
from kctl.broker.log.unified_log import UnifiedLog
from kctl.broker.replication.partition import Partition, Role
from kctl.model import NO_LEADER, ReplicaAssignment, TopicPartition
from kctl.records.record_batch import RecordBatch
from kctl.store import znodes
from kctl.testing.sim_cluster import SimBroker, SimCluster
from kctl.testing.sim_scheduler import NodeScheduler

READ_BYTES_MAX = 1 << 24
Key = tuple[str, int]


class CommittedBatch(NamedTuple):
    """What identifies a batch: equal ones are equal byte for byte."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    def __str__(self) -> str:
        return (
            f"[{self.base_offset}..{self.last_offset} epoch {self.leader_epoch}"
            f" crc {self.crc:08x} producer {self.producer_id}/{self.base_sequence}]"
        )


@dataclass(slots=True)
class Ledger:
    """One partition's committed batches."""

    batches: list[CommittedBatch] = field(default_factory=list)
    end_offset: int = 0
    # The highest of any leader; with flush.messages=1 it may lie inside a batch.
    high_watermark: int = 0
    # (producer id, epoch) -> the sequence number that must come next.
    next_sequence: dict[tuple[int, int], int] = field(default_factory=dict)

    def between(self, start_offset: int, end_offset: int) -> list[CommittedBatch]:
        """The batches that lie in a range as a whole."""
        low = bisect_left(self.batches, start_offset, key=lambda it: it.base_offset)
        high = bisect_left(self.batches, end_offset, key=lambda it: it.last_offset)
        return self.batches[low:high]

    def at(self, offset: int) -> list[CommittedBatch]:
        """The batch that begins at an offset, if there is one."""
        index = bisect_left(self.batches, offset, key=lambda it: it.base_offset)
        found = self.batches[index : index + 1]
        return found if found and found[0].base_offset == offset else []


class _Seen(NamedTuple):
    """A replica as it was when last looked at."""

    log: UnifiedLog | None
    role: Role
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class _Replica:
    seen: _Seen
    # Up to here its log is known to have what the ledger has.
    checked_end: int = 0


class Invariants:
    """Watches a SimCluster from its beginning."""

    def __init__(self, cluster: SimCluster) -> None:
        self.ledgers: dict[Key, Ledger] = {}
        # Batches looked at.
        self.checks = 0
        self._cluster = cluster
        protocol = cluster.settings.get("inter.broker.protocol.version", "2.7-IV2")
        self._do_leaders_write = protocol < "2.7"
        self._tree = cluster.store.database.tree
        # By the identity of the process: a restart begins anew.
        self._replicas: dict[int, tuple[NodeScheduler, dict[Key, _Replica]]] = {}
        self._leaders: dict[tuple[str, int, int], int] = {}
        self._zxid = 0
        # Path of a partition's state, or of a topic -> the last change that was looked at.
        self._mzxids: dict[str, int] = {}
        self._store_epochs: dict[Key, int] = {}
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        # What the store says the ISRs are.
        self.isrs: dict[Key, tuple[int, ...]] = {}
        self.leaders: dict[Key, int] = {}
        cluster.world.after_event = self.after_event

    # --- after every event -------------------------------------------------------------------

    def after_event(self, node: NodeScheduler) -> None:
        """Look at what this event may have changed."""
        tree = self._tree
        if tree.last_zxid != self._zxid:
            self._zxid = tree.last_zxid
            self._check_store()
        sim_broker = self._cluster.brokers_by_scheduler.get(node)
        if sim_broker is None or node.is_dead or sim_broker.broker is None:
            return
        services = sim_broker.broker.services
        if services is None:
            return
        known = self._replicas.get(sim_broker.broker_id)
        if known is None or known[0] is not node:
            known = self._replicas[sim_broker.broker_id] = (node, {})
        for key, partition in services.replica_manager.partitions.items():
            log = partition.log
            if log is None:
                continue
            replica = known[1].get(key)
            if (
                replica is None
                or (seen := replica.seen).high_watermark != log.high_watermark
                or seen.log_end_offset != log.log_end_offset
                or seen.role is not partition.role
                or seen.leader_epoch != partition.leader_epoch
                or seen.log is not log
                or seen.isr is not partition.isr_state.isr
            ):
                known[1][key] = self._look_at(sim_broker, key, partition, log, replica)

    def _look_at(
        self, broker: SimBroker, key: Key, partition: Partition, log: UnifiedLog,
        replica: _Replica | None,
    ) -> _Replica:  # fmt: skip
        now = _Seen(
            log, partition.role, partition.leader_epoch, log.high_watermark, log.log_end_offset,
            partition.isr_state.isr,
        )  # fmt: skip
        if replica is None or replica.seen.log is not log:
            before = None
            replica = _Replica(now)
        else:
            before = replica.seen
            replica.seen = now
        replica.checked_end = min(replica.checked_end, now.log_end_offset)
        if before is not None:
            self._check_rises(broker, key, before, now)
        ledger = self.ledgers.setdefault(key, Ledger())
        if now.role is Role.LEADER:
            self._check_leader(broker, key, partition, now, before, ledger, replica)
            if now.high_watermark > ledger.high_watermark:
                ledger.high_watermark = now.high_watermark
                self._extend(broker, key, ledger, log, now.high_watermark)
                self._check_isr(key, ledger)
        elif now.high_watermark > ledger.high_watermark:
            self._fail(
                broker,
                key,
                f"the follower's high watermark is {now.high_watermark}, but only "
                f"{ledger.high_watermark} is committed",
            )
        if now.high_watermark > replica.checked_end:
            self._compare(broker, key, ledger, log, replica, now.high_watermark)
        return replica

    def _check_rises(self, broker: SimBroker, key: Key, before: _Seen, now: _Seen) -> None:
        if now.leader_epoch < before.leader_epoch:
            self._fail(
                broker, key, f"leader epoch {before.leader_epoch} fell to {now.leader_epoch}"
            )
        if now.high_watermark < before.high_watermark:
            self._fail(
                broker,
                key,
                f"high watermark {before.high_watermark} fell to {now.high_watermark}"
                f" (log end {before.log_end_offset} -> {now.log_end_offset})",
            )

    def _check_leader(
        self, broker: SimBroker, key: Key, partition: Partition, now: _Seen,
        before: _Seen | None, ledger: Ledger, replica: _Replica,
    ) -> None:  # fmt: skip
        is_new = (
            before is None
            or before.role is not Role.LEADER
            or before.leader_epoch != now.leader_epoch
        )
        if is_new:
            known = self._leaders.setdefault((*key, now.leader_epoch), broker.broker_id)
            if known != broker.broker_id:
                self._fail(
                    broker, key, f"leads in epoch {now.leader_epoch}, and so does broker {known}"
                )
            self._cluster.tell(
                broker.host,
                "leads",
                f"{key[0]}-{key[1]} epoch={now.leader_epoch} end={now.log_end_offset}"
                f" hw={now.high_watermark} isr={now.isr}",
            )
            if now.leader_epoch < self._store_epochs.get(key, 0):
                # The order came late: others lead in its place, and went on.
                pass
            elif now.log_end_offset < ledger.end_offset:
                self._fail(
                    broker,
                    key,
                    f"leads in epoch {now.leader_epoch} with a log that ends at"
                    f" {now.log_end_offset}; {ledger.end_offset} is committed",
                )
            elif now.log is not None:
                self._compare(broker, key, ledger, now.log, replica, ledger.end_offset)
        if not set(now.isr) <= set(partition.assignment):
            self._fail(broker, key, f"ISR {now.isr} is not part of {partition.assignment}")

    # --- the ledger --------------------------------------------------------------------------

    def _extend(
        self, broker: SimBroker, key: Key, ledger: Ledger, log: UnifiedLog, end_offset: int
    ) -> None:
        for batch in batches_between(log, ledger.end_offset, end_offset):
            self.checks += 1
            if batch.base_offset != ledger.end_offset:
                self._fail(
                    broker, key, f"commits {batch} where {ledger.end_offset} is the next offset"
                )
            self._check_sequence(broker, key, ledger, batch)
            ledger.batches.append(batch)
            ledger.end_offset = batch.last_offset + 1
        if log.log_end_offset < end_offset:
            self._fail(
                broker,
                key,
                f"high watermark {end_offset}, but its log ends at {log.log_end_offset}",
            )

    def _check_sequence(
        self, broker: SimBroker, key: Key, ledger: Ledger, batch: CommittedBatch
    ) -> None:
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return
        producer = (batch.producer_id, batch.producer_epoch)
        expected = ledger.next_sequence.get(producer, 0)
        if batch.base_sequence != expected:
            self._fail(
                broker,
                key,
                f"commits {batch}: sequence {expected} is the producer's next",
            )
        count = batch.last_offset - batch.base_offset + 1
        ledger.next_sequence[producer] = batch.base_sequence + count

    def _compare(
        self, broker: SimBroker, key: Key, ledger: Ledger, log: UnifiedLog, replica: _Replica,
        end_offset: int,
    ) -> None:  # fmt: skip
        end_offset = min(end_offset, ledger.end_offset)
        start_offset = max(replica.checked_end, log.log_start_offset)
        expected = ledger.between(start_offset, end_offset)
        found = batches_between(log, start_offset, end_offset)
        self.checks += len(found)
        for ours, committed in zip(found, expected, strict=False):
            if ours != committed:
                self._fail(broker, key, f"has {ours} where {committed} is committed")
                return
        if len(found) < len(expected):
            self._fail(broker, key, f"does not have {expected[len(found)]}, which is committed")
        if found:
            replica.checked_end = max(replica.checked_end, found[-1].last_offset + 1)

    # --- the store ---------------------------------------------------------------------------

    def _check_store(self) -> None:
        nodes = self._tree.nodes
        topics = nodes.get(znodes.TOPICS)
        if topics is None or not topics.children:
            return
        for topic in sorted(topics.children):
            path = znodes.topic_path(topic)
            if self._is_changed(path):
                self._assignments[topic] = znodes.decode_topic(topic, nodes[path].data)
            for number in self._assignments[topic]:
                path = f"/brokers/topics/{topic}/partitions/{number}/state"
                if path in nodes and self._is_changed(path):
                    self._check_state(TopicPartition(topic, number), nodes[path].data)

    def _is_changed(self, path: str) -> bool:
        mzxid = self._tree.nodes[path].mzxid
        if self._mzxids.get(path) == mzxid:
            return False
        self._mzxids[path] = mzxid
        return True

    def _check_state(self, tp: TopicPartition, data: bytes) -> None:
        state = znodes.decode_partition_state(tp, data, 0).leader_and_isr
        key = (tp.topic, tp.partition)
        isr = tuple(state.isr)
        if state.leader_epoch < self._store_epochs.get(key, 0):
            self._cluster.fail(f"{tp}: leader epoch fell to {state.leader_epoch} in the store")
        is_same = state.leader_epoch == self._store_epochs.get(key)
        if is_same and state.leader != self.leaders.get(key):
            self._cluster.fail(f"{tp}: another leader in epoch {state.leader_epoch}")
        if state.leader != NO_LEADER and state.leader not in isr:
            self._cluster.fail(f"{tp}: leader {state.leader} is not in ISR {isr}")
        replicas = self._assignments[tp.topic][tp.partition].replicas
        # Below 2.7-IV2 a leader writes its ISR itself, and may not know of a cancelled move yet.
        may_be_late = is_same and self._do_leaders_write
        if not set(isr) <= set(replicas) and not may_be_late:
            self._cluster.fail(f"{tp}: ISR {isr} is not part of assignment {replicas}")
        self._store_epochs[key] = state.leader_epoch
        self.isrs[key] = isr
        self.leaders[key] = state.leader
        self._cluster.tell(
            "store", "state",
            f"{tp.topic}-{tp.partition} leader={state.leader} epoch={state.leader_epoch} isr={isr}",
        )  # fmt: skip
        ledger = self.ledgers.get(key)
        if ledger is not None:
            self._check_isr(key, ledger)

    def _check_isr(self, key: Key, ledger: Ledger) -> None:
        for broker_id in self.isrs.get(key, ()):
            broker = self._cluster.brokers[broker_id]
            partition = partition_of(broker, key)
            if partition is None or partition.log is None:
                continue
            end_offset = partition.log.log_end_offset
            if end_offset < ledger.end_offset:
                self._fail(
                    broker,
                    key,
                    f"is in the ISR with a log that ends at {end_offset};"
                    f" {ledger.end_offset} is committed",
                )

    def assignment(self, key: Key) -> tuple[int, ...]:
        """The replicas that the store names."""
        return tuple(self._assignments[key[0]][key[1]].replicas)

    def knows(self, topic: str) -> bool:
        """Whether the store has an assignment for the topic."""
        return topic in self._assignments

    def partitions(self) -> list[Key]:
        """Every partition there is."""
        return [(topic, n) for topic, found in self._assignments.items() for n in found]

    def _fail(self, broker: SimBroker, key: Key, words: str) -> None:
        self._cluster.fail(f"{broker.host} {key[0]}-{key[1]}: {words}")


def partition_of(broker: SimBroker, key: Key) -> Partition | None:
    """The partition as a live broker has it."""
    if broker.broker is None or broker.broker.services is None:
        return None
    return broker.broker.services.replica_manager.partitions.get(key)


def batches_between(log: UnifiedLog, start_offset: int, end_offset: int) -> list[CommittedBatch]:
    """The batches of a log from `start_offset` up to `end_offset`."""
    batches: list[CommittedBatch] = []
    while start_offset < end_offset:
        # A read ends with its segment.
        found = log.read(start_offset, READ_BYTES_MAX, isolation=FetchIsolation.LOG_END).records
        data = found.file.pread(found.length, found.position) if found is not None else b""
        read = identities(data, end_offset)
        if not read:
            break
        batches += read
        start_offset = read[-1].last_offset + 1
    return batches


def identities(data: bytes, end_offset: int) -> list[CommittedBatch]:
    """What identifies the batches in `data` that are whole and end before `end_offset`."""
    batches = []
    position = 0
    while len(data) - position >= 61:
        batch = RecordBatch(data, position)
        if batch.last_offset >= end_offset or position + batch.size > len(data):
            break
        batches.append(
            CommittedBatch(
                batch.base_offset,
                batch.last_offset,
                batch.partition_leader_epoch,
                batch.crc,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
            )
        )
        position += batch.size
    return batches
