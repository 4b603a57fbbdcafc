"""Invariants that must hold after every event, checked against what was committed (`ledger.py`).

A record is committed once its leader's high watermark has passed it. The ledger keeps, for each
partition, what was committed in the order of offsets, as the first leader to commit it had it.
Everything else is compared with the ledger.

After every event, of the broker whose event it was:
- per partition and leader epoch there is one leader, and a new one has all that was committed;
- no broker follows an order of an epoch that had ended before the broker registered (KIP-380);
- leader epochs, log starts and high watermarks only rise while the process lives;
- up to its high watermark a replica equals the ledger, byte for byte (by header and CRC), but for
  what the cleaner removed of a compacted topic;
- a leader's ISR is part of its assignment, and its followers have what it believes they have;
- a log does not begin after an offset that is not committed;
- batches that a leader commits of an idempotent producer have no gap, no duplicate and one order;
- a new replica begins empty: data of a deleted topic does not come back under its name.
After every write to the store:
- leader epochs, controller epochs and the ISRs of assignments are consistent;
- every live replica of the ISR has all that was committed, byte for byte (StrongIsr);
- a leader of the epoch in the store counts with the whole ISR of the store (KIP-497);
- only an in-sync replica becomes leader, unless the operator allows unclean elections; and only the
  leader adds replicas to the ISR, a new epoch does not.

An unclean election begins a new ledger. Replicas that do not know of it yet are exempt (they may
still lead, and commit records that are given up); each is checked again once it agrees with the new
ledger, and only then may it be in the ISR. A topic whose deletion was requested is not checked.

kafka-specification: WeakIsr, StrongIsr, LeaderInIsr; Kafka 2.7: KIP-101, KIP-279, KIP-320, KIP-497.
"""

from dataclasses import field
from typing import NamedTuple

from kctl.broker.log.unified_log import UnifiedLog
from kctl.broker.replication.partition import Partition, Role
from kctl.lazy_dataclass import dataclass
from kctl.model import NO_LEADER, ReplicaAssignment, TopicPartition
from kctl.protocol.constants import GROUP_METADATA_TOPIC, INTERNAL_TOPICS
from kctl.simulation.cluster import SimBroker, SimCluster
from kctl.simulation.compacted import CompactedRecords
from kctl.simulation.ledger import CommittedBatch, Key, Ledger, batches_between
from kctl.simulation.scheduler import NodeScheduler
from kctl.store import znodes


class _Seen(NamedTuple):
    """A replica as last checked."""

    log: UnifiedLog
    role: Role
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    log_start_offset: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class _Replica:
    partition: Partition
    seen: _Seen
    # The ledger it is compared with; None if its topic is deleted, or will be.
    ledger: Ledger | None = None
    # The epoch of the unclean election since which it agrees with the ledger.
    first_epoch: int = 0
    # Up to this offset its log is known to equal the ledger.
    checked_end: int = 0
    # The end offsets of followers that it was last checked to believe.
    believed: dict[int, int] = field(default_factory=dict)


class Invariants:
    """Watches a SimCluster from its beginning."""

    def __init__(self, cluster: SimCluster) -> None:
        self.ledgers: dict[Key, Ledger] = {}
        # Batches checked.
        self.checks = 0
        # Topics for which the operator allows unclean elections.
        self.unclean_topics: set[str] = set()
        self.unclean_elections = 0
        self.topics_deleted = 0
        # How often a log began later than any replica's before.
        self.logs_cut = 0
        self._cluster = cluster
        protocol = cluster.settings.get("inter.broker.protocol.version", "2.7-IV2")
        self._do_leaders_write = protocol < "2.7"
        self._tree = cluster.store.database.tree
        # By the identity of the process: a restart starts from scratch.
        self._replicas: dict[int, tuple[NodeScheduler, dict[Key, _Replica]]] = {}
        self._leaders: dict[Key, dict[int, int]] = {}
        self._zxid = 0
        # Path of a partition's state, or of a topic -> the last change that was checked.
        self._mzxids: dict[str, int] = {}
        self._store_epochs: dict[Key, int] = {}
        # Partition -> leader epoch -> the zxid with which it ended.
        self._epoch_ends: dict[Key, dict[int, int]] = {}
        # Topic -> an id that differs between topics of the same name.
        self._incarnations: dict[str, int] = {}
        self._topics_pzxid = 0
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        # Topics that were deleted, some of them created again.
        self._deleted: set[str] = set()
        # Every broker that was ever assigned.
        self._ever_assigned: dict[Key, set[int]] = {}
        # The ISRs in the store.
        self.isrs: dict[Key, tuple[int, ...]] = {}
        self.leaders: dict[Key, int] = {}
        cluster.world.after_event = self.after_event

    # --- after every event -------------------------------------------------------------------

    def after_event(self, node: NodeScheduler) -> None:
        """Check what this event may have changed."""
        tree = self._tree
        if tree.last_zxid != self._zxid:
            self._zxid = tree.last_zxid
            self._check_store()
        serving = self._cluster.serving(node)
        if serving is None:
            return
        sim_broker, services = serving
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
                or seen.log_start_offset != log.log_start_offset
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
            log.log_start_offset, partition.isr_state.isr,
        )  # fmt: skip
        before = None
        if replica is None or replica.partition is not partition:
            replica = _Replica(partition, now)
        else:
            before = replica.seen
            replica.seen = now
            if before.log is not log:
                # It moved to another directory.
                replica.checked_end = 0
        replica.checked_end = min(replica.checked_end, now.log_end_offset)
        if before is None or before.leader_epoch != now.leader_epoch:
            self._check_order(broker, key, now)
        ledger = self._ledger(broker, key, now, replica)
        if ledger is not None:
            if before is not None:
                is_sure = replica.first_epoch == ledger.first_epoch
                self._check_rises(broker, key, before, now, is_sure=is_sure)
            if self._is_part(broker, key, ledger, now, before, replica):
                self._check(broker, key, partition, now, before, ledger, replica)
        return replica

    def _check(
        self, broker: SimBroker, key: Key, partition: Partition, now: _Seen,
        before: _Seen | None, ledger: Ledger, replica: _Replica,
    ) -> None:  # fmt: skip
        if now.log_start_offset > ledger.log_start_offset:
            ledger.log_start_offset = now.log_start_offset
            self.logs_cut += 1
        if now.role is Role.LEADER:
            self._check_leader(broker, key, partition, now, before, ledger, replica)
            if now.high_watermark > ledger.high_watermark:
                ledger.high_watermark = now.high_watermark
                self._extend(broker, key, ledger, now.log, now.high_watermark)
                self._check_isr(key, ledger)
        elif now.high_watermark > ledger.high_watermark:
            self._fail(
                broker,
                key,
                f"the follower's high watermark is {now.high_watermark}, but only "
                f"{ledger.high_watermark} is committed",
            )
        if now.high_watermark > replica.checked_end:
            self._compare(broker, key, ledger, now.log, replica, now.high_watermark)

    def _ledger(self, broker: SimBroker, key: Key, now: _Seen, replica: _Replica) -> Ledger | None:
        """Return the ledger that the replica is checked against, or None if there is no such
        partition."""
        if not self.is_alive(key[0]) or now.leader_epoch > self._store_epochs.get(key, -1):
            # Its topic is deleted, or will be, whatever was created since under the same name.
            replica.ledger = None
            return None
        was_deleted = key[0] in self._deleted
        if replica.ledger is None and was_deleted:
            assignment = self._assignments[key[0]].get(key[1])
            if assignment is None or broker.broker_id not in assignment.replicas:
                return None
        ledger = self.ledgers.get(key)
        if ledger is None:
            is_cleaned = key[0] in INTERNAL_TOPICS
            ledger = Ledger(compacted=CompactedRecords() if is_cleaned else None)
            self.ledgers[key] = ledger
            ledger.takes_any_first_sequence = was_deleted
        if replica.ledger is not ledger:
            replica.ledger = ledger
            replica.checked_end = 0
            if broker.broker_id not in ledger.holders and now.log_end_offset > 0:
                self._fail(
                    broker,
                    key,
                    f"a new replica begins with a log that ends at {now.log_end_offset}",
                )
            ledger.holders.add(broker.broker_id)
        return ledger

    def _is_part(
        self, broker: SimBroker, key: Key, ledger: Ledger, now: _Seen, before: _Seen | None,
        replica: _Replica,
    ) -> bool:  # fmt: skip
        """Return whether the replica agrees with the ledger since the last unclean election."""
        if replica.first_epoch == ledger.first_epoch and not ledger.is_open:
            return True
        if now.leader_epoch < ledger.first_epoch:
            if now.role is Role.LEADER and before is not None:
                before_offset = max(before.high_watermark, now.log_start_offset)
                ledger.lost.update(batches_between(now.log, before_offset, now.high_watermark))
            return False
        if ledger.is_open:
            if now.role is not Role.LEADER:
                return False
            ledger.restart(now.log)
            self._cluster.record_event(
                broker.host, "restarts", f"{key[0]}-{key[1]} from {ledger.end_offset}"
            )
        elif now.role is not Role.LEADER and not _agrees(ledger, now):
            return False
        replica.first_epoch = ledger.first_epoch
        replica.checked_end = 0
        return True

    def _check_order(self, broker: SimBroker, key: Key, now: _Seen) -> None:
        """Check that the order was given to this registration of the broker. An order may arrive
        late, when others already lead in its place, but not from before the broker registered."""
        ended_zxid = self._epoch_ends.get(key, {}).get(now.leader_epoch)
        services = broker.broker.services if broker.broker is not None else None
        if ended_zxid is None or services is None:
            return
        if ended_zxid < services.controller.broker_epoch:
            self._fail(
                broker,
                key,
                f"follows an order of epoch {now.leader_epoch}, which ended (zxid {ended_zxid})"
                f" before it registered (zxid {services.controller.broker_epoch})",
            )

    def _check_rises(
        self, broker: SimBroker, key: Key, before: _Seen, now: _Seen, *, is_sure: bool
    ) -> None:
        if now.leader_epoch < before.leader_epoch:
            self._fail(
                broker, key, f"leader epoch {before.leader_epoch} fell to {now.leader_epoch}"
            )
        if not is_sure:
            # It returns to what is left since an unclean election.
            return
        if now.high_watermark < before.high_watermark:
            self._fail(
                broker,
                key,
                f"high watermark {before.high_watermark} fell to {now.high_watermark}"
                f" (log end {before.log_end_offset} -> {now.log_end_offset})",
            )
        if now.log_start_offset < before.log_start_offset:
            self._fail(
                broker, key, f"log start {before.log_start_offset} fell to {now.log_start_offset}"
            )
        if now.log_start_offset > now.high_watermark:
            self._fail(
                broker, key, f"log start {now.log_start_offset} is above {now.high_watermark}"
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
            replica.believed.clear()
            leaders = self._leaders.setdefault(key, {})
            known = leaders.setdefault(now.leader_epoch, broker.broker_id)
            if known != broker.broker_id:
                self._fail(
                    broker, key, f"leads in epoch {now.leader_epoch}, and so does broker {known}"
                )
            self._cluster.record_event(
                broker.host,
                "leads",
                f"{key[0]}-{key[1]} epoch={now.leader_epoch} end={now.log_end_offset}"
                f" hw={now.high_watermark} isr={now.isr}",
            )
            # An order that arrived late promises nothing (see `_check_order`): others lead instead
            # and have committed more. This leader cannot commit, as its followers have left it.
            if now.leader_epoch == self._store_epochs.get(key):
                self._check_has(broker, key, ledger, now.log, replica)
        if not set(now.isr) <= set(partition.assignment):
            self._fail(broker, key, f"ISR {now.isr} is not part of {partition.assignment}")
        self._check_counts(broker, key, partition)
        if now.leader_epoch == self._store_epochs.get(key):
            self._check_beliefs(broker, key, partition, now.log, replica)

    def _check_beliefs(
        self, broker: SimBroker, key: Key, partition: Partition, log: UnifiedLog, replica: _Replica
    ) -> None:
        """Check that each fetching follower is where the leader believes it to be: the last epoch
        that it has reaches as far in the leader's log."""
        for broker_id, follower in partition.followers.items():
            end_offset = min(follower.log_end_offset, log.log_end_offset)
            if end_offset <= replica.believed.get(broker_id, log.log_start_offset):
                continue
            replica.believed[broker_id] = end_offset
            theirs = partition_of(self._cluster.brokers[broker_id], key)
            if theirs is None or theirs.log is None or theirs.log.log_end_offset > end_offset:
                continue
            if theirs.log.log_start_offset == end_offset:
                # It is empty: it began where another leader's truncated log began.
                continue
            epoch = theirs.log.latest_epoch
            older = theirs.log.end_offset_for_epoch(epoch - 1)
            if older is not None and older[1] >= end_offset:
                # It led in the latest epoch and wrote nothing.
                epoch = older[0]
            found = log.end_offset_for_epoch(epoch)
            is_same = found is not None and found[0] == epoch and found[1] >= end_offset
            if theirs.log.log_end_offset < end_offset or not is_same:
                self._fail(
                    broker,
                    key,
                    f"believes that broker {broker_id} has all up to {end_offset}; it has epoch"
                    f" {epoch} up to {theirs.log.log_end_offset}, where here is {found}",
                )

    def _check_counts(self, broker: SimBroker, key: Key, partition: Partition) -> None:
        """Check that the leader waits for every replica that is in sync, as long as it leads
        (KIP-497)."""
        if partition.role is not Role.LEADER:
            return
        counted = partition.isr_state.maximal
        in_sync = self.isrs.get(key, ())
        is_current = partition.leader_epoch == self._store_epochs.get(key)
        if is_current and not set(in_sync) <= set(counted):
            self._fail(broker, key, f"counts with {counted}, but the ISR is {in_sync}")

    def _check_has(
        self, broker: SimBroker, key: Key, ledger: Ledger, log: UnifiedLog, replica: _Replica
    ) -> None:
        """Check that a leader or in-sync replica has all that was committed."""
        if log.log_end_offset < ledger.end_offset:
            self._fail(
                broker,
                key,
                f"leads or is in sync with a log that ends at {log.log_end_offset};"
                f" {ledger.end_offset} is committed",
            )
        else:
            self._compare(broker, key, ledger, log, replica, ledger.end_offset)

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
            ledger.append(log, batch)
        if log.log_end_offset < end_offset:
            self._fail(
                broker,
                key,
                f"high watermark {end_offset}, but its log ends at {log.log_end_offset}",
            )

    def _check_sequence(
        self, broker: SimBroker, key: Key, ledger: Ledger, batch: CommittedBatch
    ) -> None:
        if batch.producer_id < 0 or batch.base_sequence < 0 or key[0] == GROUP_METADATA_TOPIC:
            # The coordinator gives each commit of a transaction the sequence 0.
            return
        expected = ledger.expected_sequence(batch)
        if batch.base_sequence != expected:
            self._fail(
                broker,
                key,
                f"commits {batch}: sequence {expected} is the producer's next",
            )
        ledger.last_batches[batch.producer_id, batch.producer_epoch] = batch

    def _compare(
        self, broker: SimBroker, key: Key, ledger: Ledger, log: UnifiedLog, replica: _Replica,
        end_offset: int,
    ) -> None:  # fmt: skip
        end_offset = min(end_offset, ledger.end_offset)
        start_offset = max(replica.checked_end, log.log_start_offset, ledger.start_offset)
        found = batches_between(log, start_offset, end_offset)
        self.checks += len(found)
        difference = ledger.difference(log, found, start_offset, end_offset)
        if difference is not None:
            self._fail(broker, key, difference)
        elif found:
            replica.checked_end = max(replica.checked_end, found[-1].last_offset + 1)

    # --- the store ---------------------------------------------------------------------------

    def _check_store(self) -> None:
        nodes = self._tree.nodes
        topics = nodes.get(znodes.TOPICS)
        if topics is None:
            return
        if topics.pzxid != self._topics_pzxid:
            self._topics_pzxid = topics.pzxid
            self._look_for_deleted()
        for topic in sorted(topics.children or ()):
            path = znodes.topic_path(topic)
            if self._is_changed(path):
                self._incarnations[topic] = nodes[path].czxid
                found = self._assignments[topic] = znodes.decode_topic(topic, nodes[path].data)
                for number, assignment in found.items():
                    ever = self._ever_assigned.setdefault((topic, number), set())
                    ever.update(assignment.replicas)
            for number in self._assignments[topic]:
                path = f"/brokers/topics/{topic}/partitions/{number}/state"
                if path in nodes and self._is_changed(path):
                    self._check_state(TopicPartition(topic, number), path)

    def _look_for_deleted(self) -> None:
        """Forget deleted topics: a new topic of the same name is independent of the old one."""
        nodes = self._tree.nodes
        for topic, czxid in list(self._incarnations.items()):
            node = nodes.get(znodes.topic_path(topic))
            if node is not None and node.czxid == czxid:
                continue
            self.topics_deleted += 1
            self._cluster.record_event("store", "deleted", topic)
            del self._incarnations[topic]
            self._deleted.add(topic)
            for number in self._assignments.pop(topic):
                key = (topic, number)
                for known in (
                    self.ledgers, self.isrs, self.leaders, self._store_epochs, self._epoch_ends,
                    self._leaders, self._ever_assigned,
                ):  # fmt: skip
                    known.pop(key, None)

    def _is_changed(self, path: str) -> bool:
        mzxid = self._tree.nodes[path].mzxid
        if self._mzxids.get(path) == mzxid:
            return False
        self._mzxids[path] = mzxid
        return True

    def _check_state(self, tp: TopicPartition, path: str) -> None:
        node = self._tree.nodes[path]
        state = znodes.decode_partition_state(tp, node.data, 0).leader_and_isr
        key = (tp.topic, tp.partition)
        isr = tuple(state.isr)
        epoch = self._store_epochs.get(key)
        if epoch is not None and state.leader_epoch < epoch:
            self._cluster.fail(f"{tp}: leader epoch fell to {state.leader_epoch} in the store")
        is_same = state.leader_epoch == epoch
        if is_same and state.leader != self.leaders.get(key):
            self._cluster.fail(f"{tp}: another leader in epoch {state.leader_epoch}")
        if state.leader != NO_LEADER and state.leader not in isr:
            self._cluster.fail(f"{tp}: leader {state.leader} is not in ISR {isr}")
        strangers = set(isr) - set(self._assignments[tp.topic][tp.partition].replicas)
        if strangers and not self._may_be_late(key, strangers, is_same=is_same):
            self._cluster.fail(f"{tp}: ISR {isr} has {strangers}, which are not assigned")
        self._cluster.record_event(
            "store", "state",
            f"{tp.topic}-{tp.partition} leader={state.leader} epoch={state.leader_epoch} isr={isr}",
        )  # fmt: skip
        if epoch is not None and not is_same:
            ends = self._epoch_ends.setdefault(key, {})
            ends.update(dict.fromkeys(range(epoch, state.leader_epoch), node.mzxid))
        ledger = self.ledgers.get(key)
        before = self.isrs.get(key, isr)
        if state.leader != NO_LEADER and state.leader not in before:
            self._elected_uncleanly(tp, ledger, state.leader, state.leader_epoch)
        elif not is_same and not set(isr) <= set(before):
            self._cluster.fail(f"{tp}: ISR {before} became {isr} with another epoch")
        self._store_epochs[key] = state.leader_epoch
        self.isrs[key] = isr
        self.leaders[key] = state.leader
        if ledger is not None:
            self._check_isr(key, ledger)
        broker = self._cluster.brokers.get(state.leader)
        partition = None if broker is None else partition_of(broker, key)
        if broker is not None and partition is not None and self.is_alive(tp.topic):
            self._check_counts(broker, key, partition)

    def _may_be_late(self, key: Key, strangers: set[int], *, is_same: bool) -> bool:
        """Return whether a leader may have added `strangers` to the ISR before it knew better.

        Below 2.7-IV2 a leader writes its ISR itself. It may add a replica of a cancelled move
        before it receives the controller's order with the next epoch: the znodes of the assignment
        and of the state cannot be written at once, and the leader knows the version of the state.
        Replicas that were never assigned, or an ISR of a new epoch, are not excused.
        """
        return is_same and self._do_leaders_write and strangers <= self._ever_assigned[key]

    def _elected_uncleanly(
        self, tp: TopicPartition, ledger: Ledger | None, leader: int, epoch: int
    ) -> None:
        self.unclean_elections += 1
        if tp.topic not in self.unclean_topics:
            self._cluster.fail(f"{tp}: leader {leader} of epoch {epoch} was not in sync")
        if ledger is not None:
            ledger.elected_uncleanly(epoch)

    def _check_isr(self, key: Key, ledger: Ledger) -> None:
        if ledger.is_open or not self.is_alive(key[0]):
            return
        for broker_id in self.isrs.get(key, ()):
            broker = self._cluster.brokers[broker_id]
            partition = partition_of(broker, key)
            if partition is None or partition.log is None:
                continue
            _, replicas = self._replicas.get(broker_id, (None, {}))
            replica = replicas.get(key)
            if replica is not None and replica.partition is partition:
                self._check_has(broker, key, ledger, partition.log, replica)

    # --- what others ask ---------------------------------------------------------------------

    def assignment(self, key: Key) -> tuple[int, ...]:
        """Return the replicas that the store assigns."""
        return tuple(self._assignments[key[0]][key[1]].replicas)

    def is_alive(self, topic: str) -> bool:
        """Return whether the topic exists and its deletion has not been requested."""
        return (
            topic in self._incarnations and f"/admin/delete_topics/{topic}" not in self._tree.nodes
        )

    def knows(self, topic: str) -> bool:
        """Return whether the topic exists."""
        return topic in self._incarnations

    def incarnation(self, topic: str) -> int:
        """Return an id that differs between topics of the same name; 0 without such a topic."""
        return self._incarnations.get(topic, 0)

    def partitions_of(self, topic: str) -> list[Key]:
        """Return the partitions of a topic; none if it is deleted, or will be."""
        return [(topic, n) for n in self._assignments[topic]] if self.is_alive(topic) else []

    def partitions(self) -> list[Key]:
        """Return every partition that exists."""
        return [(topic, n) for topic, found in self._assignments.items() for n in found]

    def _fail(self, broker: SimBroker, key: Key, text: str) -> None:
        self._cluster.fail(f"{broker.host} {key[0]}-{key[1]}: {text}")


def partition_of(broker: SimBroker, key: Key) -> Partition | None:
    """Return a live broker's object for the partition."""
    if broker.broker is None or broker.broker.services is None:
        return None
    return broker.broker.services.replica_manager.partitions.get(key)


def _agrees(ledger: Ledger, now: _Seen) -> bool:
    """Return whether everything that a replica takes for committed is in the ledger. It may yet be
    truncated inside a batch, or before the leader's first record."""
    if not ledger.start_offset <= now.high_watermark <= ledger.high_watermark:
        return False
    if ledger.is_inside_a_batch(now.high_watermark):
        return False
    start_offset = max(now.log_start_offset, ledger.start_offset)
    end_offset = min(now.high_watermark, ledger.end_offset)
    found = batches_between(now.log, start_offset, end_offset)
    is_whole = (found[-1].last_offset + 1 if found else start_offset) == end_offset
    return is_whole and ledger.difference(now.log, found, start_offset, end_offset) is None
