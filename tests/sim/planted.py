"""Known bugs of replicated logs, each planted in the real code; see `resurrection`."""

from dataclasses import replace

from kctl.broker.controller import isr_changes
from kctl.broker.controller import leader_election_algorithms as elections
from kctl.broker.controller.reassignment import Reassignment
from kctl.broker.log.leader_epoch_file_cache import LeaderEpochFileCache
from kctl.broker.log.local_log import FlushJob
from kctl.broker.log.log_loader import LogLoader
from kctl.broker.log.producer_state_manager import ProducerStateManager
from kctl.broker.log.unified_log import FetchIsolation, UnifiedLog
from kctl.broker.log.unknown_producers import UnknownProducers
from kctl.broker.replication import replica_fetcher
from kctl.broker.replication.delayed import FetchParams
from kctl.broker.replication.fetcher_manager import FetcherManager
from kctl.broker.replication.isr_state import IsrState
from kctl.broker.replication.leadership import Leadership
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.partition_writer import ReplicatedPartitionWriter
from kctl.broker.replication.replica_fetcher import ReplicaFetcher, Truncate
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.services import Services
from kctl.model import LeaderAndIsr
from kctl.simulation.pipelined_producer import PipelinedProducer
from kctl.simulation.plan import Plan
from kctl.store.topic_registry import TopicRegistry
from kctl.work import at_once
from tests.sim.resurrection import SEEDS_MAX, planted

# --- truncation ----------------------------------------------------------------------------------


@planted("before KIP-101", 3)
def truncates_to_the_high_watermark(patch):
    """A new follower cuts its log at its own high watermark, which may be behind."""

    def add(self, tp, leader_epoch, log):
        original(self, tp, leader_epoch, log)
        if log.high_watermark < log.log_end_offset:
            log.truncate_to(log.high_watermark)

    original = ReplicaFetcher.add
    patch(ReplicaFetcher, "add", add)


@planted("KIP-101", 1)
def never_truncates(patch):
    """A follower fetches from its own end, whatever its leader has."""
    patch(replica_fetcher, "common_end", lambda log, _epoch, _offset: (log.log_end_offset, True))
    original = Partition.find_divergence
    patch(Partition, "find_divergence", lambda self, *a, **k: original(self, *a, **k) and None)


@planted("KIP-279", 9)
def truncates_once_by_the_leaders_answer(patch):
    """The follower cuts where the leader's older epoch ends, though it never had that epoch, and
    takes its log for the leader's."""

    def common_end(log, epoch, end_offset):
        del epoch
        return min(end_offset if end_offset >= 0 else log.high_watermark, log.log_end_offset), True

    patch(replica_fetcher, "common_end", common_end)
    original = Partition.find_divergence
    patch(Partition, "find_divergence", lambda self, *a, **k: original(self, *a, **k) and None)


@planted("KIP-595", 9)
def leader_does_not_look_for_divergence(patch):
    """The leader serves a follower whose last epoch it never had."""
    patch(Partition, "find_divergence", lambda *_, **__: None)


@planted("KAFKA-14704", 47)
def takes_the_high_watermark_before_truncating(patch):
    """A response that makes a follower truncate moves its high watermark first."""

    def on_fetched(self, tp, followed, answer, now_ms):
        for action in list(original(self, tp, followed, answer, now_ms)):
            if isinstance(action, Truncate):
                followed.log.update_high_watermark(followed.log.log_end_offset)
            yield action

    original = ReplicaFetcher._on_fetched
    patch(ReplicaFetcher, "_on_fetched", on_fetched)


@planted("KAFKA-10706", 9)
def epochs_survive_truncation(patch):
    """The epochs of records that were cut off stay known."""
    patch(LeaderEpochFileCache, "truncate_from_end", lambda *_: None)


@planted("KAFKA-6361", 0)
def stale_answers_count(patch):
    """The response to a fetch that is out of date is still appended or truncated by."""
    patch(ReplicaFetcher, "_current", lambda self, tp: self._partitions.get(tp))


@planted("KAFKA-9835", 22)
def keeps_fetching_what_it_leads(patch):
    """A broker that became leader still appends what the old leader sends."""
    patch(FetcherManager, "_stop", lambda *_: None)


# --- fencing -------------------------------------------------------------------------------------


@planted("KIP-101 (fencing of LeaderAndIsr)", 41)
def old_leader_epochs_are_obeyed(patch):
    """A LeaderAndIsr request that came late makes a leader of an old epoch."""

    def apply(self, topic, state):
        partition = self._replicas.partitions.get((topic, state.partition_index))
        if partition is not None and state.leader_epoch <= partition.leader_epoch:
            partition.leader_epoch = state.leader_epoch - 1
        return original(self, topic, state)

    original = Leadership._apply
    patch(Leadership, "_apply", apply)
    patch(Leadership, "refusal", lambda *_: 0)


@planted("KIP-320", SEEDS_MAX)
def other_leader_epochs_are_served(patch):
    """A leader accepts a fetch of a follower that follows another epoch. With protocol 2.6:
    from 2.7 on, a fetch names the follower's last epoch, which reveals the same."""
    _speak_2_6(patch)
    patch(Partition, "check_epoch", lambda *_: None)


def _speak_2_6(patch):
    def drawn(cls, entropy):
        plan = original(cls, entropy)
        plan.settings["inter.broker.protocol.version"] = "2.6"
        return plan

    original = Plan.drawn.__func__
    patch(Plan, "drawn", classmethod(drawn))


@planted("KIP-380", 25)
def orders_for_an_earlier_registration_are_obeyed(patch):
    """The controller's requests are carried out whichever broker epoch they were meant for."""
    original = Leadership.refusal
    patch(Leadership, "refusal", lambda self, epoch, _: original(self, epoch, -1))


@planted("KIP-497 (late answers)", SEEDS_MAX)
def isr_answers_of_older_states_count(patch):
    """A leader takes the ISR that the controller agreed to, for whatever epoch and state."""

    def isr_altered(self, isr, leader_epoch, zk_version, now_ms):
        del leader_epoch
        self.isr_state = IsrState.committed(isr)
        self.zk_version = zk_version
        return self.maybe_increment_high_watermark(now_ms)

    patch(Partition, "isr_altered", isr_altered)


@planted("KIP-497 (versions of states)", SEEDS_MAX)
def partition_states_are_overwritten(patch):
    """The controller writes a partition's state whatever its version is by then. With protocol
    2.6: from 2.7 on no broker writes it, and the epoch's version fences other controllers."""
    _speak_2_6(patch)

    async def set_states(self, states, controller_epoch_zk_version):
        unread = {
            tp: state._replace(leader_and_isr=state.leader_and_isr._replace(zk_version=-1))
            for tp, state in states.items()
        }
        return await original(self, unread, controller_epoch_zk_version)

    original = TopicRegistry.set_partition_states
    patch(TopicRegistry, "set_partition_states", set_states)


# --- high watermark and ISR ----------------------------------------------------------------------


@planted("found here", 17)
def a_fetch_that_must_truncate_acknowledges(patch):
    """The leader takes a follower's diverging tail for its own records."""

    def note_follower(self, broker_id, results):
        diverging = [result.diverging_epoch for result in results]
        for result in results:
            result.diverging_epoch = None
        original(self, broker_id, results)
        for result, found in zip(results, diverging, strict=True):
            result.diverging_epoch = found

    original = ReplicaManager._record_follower_fetches
    patch(ReplicaManager, "_record_follower_fetches", note_follower)


@planted("found here", 194)
def anybody_raises_a_high_watermark(patch):
    """A flush that a leader waited for raises its high watermark when it follows another."""

    def maybe_increment(self, now_ms):
        if self.role is Role.FOLLOWER and self.log is not None and self.log.is_write_through:
            return self.log.maybe_increment_high_watermark(self.log.recovery_point)
        return original(self, now_ms)

    original = Partition.maybe_increment_high_watermark
    patch(Partition, "maybe_increment_high_watermark", maybe_increment)


@planted("found here; Apache Kafka 2.7.2 does so", 7)
def high_watermark_falls_with_a_new_leader(patch):
    """A follower takes over the lower high watermark of a leader that was just elected."""

    def append_as_follower(self, records, leader_high_watermark, leader_start_offset):
        risen = original(self, records, leader_high_watermark, leader_start_offset)
        self.log.update_high_watermark(min(leader_high_watermark, self.log.log_end_offset))
        return risen

    original = Partition.append_as_follower
    patch(Partition, "append_as_follower", append_as_follower)


@planted("acks=all by the leader alone", 0)
def high_watermark_is_the_leaders_end(patch):
    """The leader commits what only it has."""
    patch(
        Partition,
        "maybe_increment_high_watermark",
        lambda self, _: (
            self.role is Role.LEADER
            and self.log.maybe_increment_high_watermark(self.log.log_end_offset)
        ),
    )


@planted("KAFKA-9491", 17)
def new_leader_takes_its_end_for_committed(patch):
    """A new leader takes all its records for committed."""

    def become_leader(self, state, log, now_ms):
        is_new = original(self, state, log, now_ms)
        if is_new:
            log.maybe_increment_high_watermark(log.log_end_offset)
        return is_new

    original = Partition.become_leader
    patch(Partition, "become_leader", become_leader)


@planted("found here; Apache Kafka 2.7.2 does so", 999)
def progress_of_older_epochs_counts(patch):
    """A leader that leads on in a newer epoch takes its followers to be where they were."""

    def become_leader(self, state, log, now_ms):
        progress = self.followers if self.role is Role.LEADER else {}
        is_new = original(self, state, log, now_ms)
        for broker_id, follower in progress.items():
            if broker_id in self.followers:
                self.followers[broker_id].log_end_offset = follower.log_end_offset
        self.maybe_increment_high_watermark(now_ms)
        return is_new

    original = Partition.become_leader
    patch(Partition, "become_leader", become_leader)


@planted("KIP-497", 21)
def replicas_about_to_join_do_not_count(patch):
    """While the controller has not answered, the high watermark waits for the old ISR only."""

    def maybe_increment(self, now_ms):
        kept, self.followers = (
            self.followers,
            {
                broker_id: follower
                for broker_id, follower in self.followers.items()
                if broker_id in self.isr_state.isr
            },
        )
        try:
            if not self.followers and len(self.isr_state.isr) > 1:
                return False
            return original(self, now_ms)
        finally:
            self.followers = kept

    original = Partition.maybe_increment_high_watermark
    patch(Partition, "maybe_increment_high_watermark", maybe_increment)


@planted("KIP-497 (shrink)", 0)
def replicas_about_to_leave_do_not_count(patch):
    """A leader that asks for a smaller ISR counts with it at once."""

    def shrink(self, broker_ids):
        state = original(self, broker_ids)
        return IsrState(state.wanted, state.change, state.wanted)

    original = IsrState.shrink
    patch(IsrState, "shrink", shrink)
    # A replica with any lag at all is asked to leave.
    make = Partition.__init__
    patch(Partition, "__init__", lambda self, tp, broker_id, _=0: make(self, tp, broker_id, 1))


@planted("KAFKA-7128", 52)
def joins_before_the_leaders_epoch_began(patch):
    """A follower joins the ISR with less than the leader had when it was elected."""

    def wants_in_sync(self, broker_id):
        kept, self.leader_epoch_start_offset = self.leader_epoch_start_offset, 0
        try:
            return original(self, broker_id)
        finally:
            self.leader_epoch_start_offset = kept

    original = Partition.wants_in_sync
    patch(Partition, "wants_in_sync", wants_in_sync)


@planted("KAFKA-1367", 0)
def joins_wherever_it_is(patch):
    """A follower joins the ISR as soon as it fetches."""
    patch(
        Partition,
        "wants_in_sync",
        lambda self, broker_id: (
            self.role is Role.LEADER
            and broker_id in self.followers
            and broker_id not in self.isr_state.maximal
            and not self.isr_state.is_in_flight
        ),
    )


@planted("KAFKA-14140", 0)
def controller_lets_strangers_into_the_isr(patch):
    """The controller agrees to an ISR with everybody who is alive in it."""

    def eligible(self, leader, isr):
        del leader
        return tuple(dict.fromkeys([*isr, *sorted(self._context.live_broker_ids)]))

    patch(isr_changes.IsrChanges, "_eligible", eligible)


@planted("KAFKA-14334 (acks=all answered early)", 0)
def acks_all_does_not_wait(patch):
    """A producer is answered once its leader has the records."""
    patch(Partition, "has_enough_replicas_reached", lambda self, _: (True, 0))


# --- elections -----------------------------------------------------------------------------------


@planted("unclean election", 1)
def elects_any_live_replica(patch):
    """The first live replica leads, in sync or not."""

    def offline_leader(assignment, isr, live, *, unclean_allowed):
        del isr, unclean_allowed
        return next((replica for replica in assignment if replica in live), None)

    patch(elections, "offline_leader", offline_leader)


@planted("KAFKA-8069", 4)
def prefers_leaders_that_are_not_in_sync(patch):
    """A preferred election makes the first replica leader wherever it is."""
    patch(
        elections, "preferred_leader", lambda assignment, _isr, live: next(
            (replica for replica in assignment[:1] if replica in live), None
        ),
    )  # fmt: skip


@planted("KAFKA-9750", 0)
def epochs_do_not_rise_with_an_election(patch):
    """A new leader leads in its predecessor's epoch."""

    def led_by(current, leader, isr):
        if leader is None:
            return None
        return LeaderAndIsr(leader, current.leader_epoch, isr, current.zk_version)

    patch(elections, "_led_by", led_by)


@planted("KAFKA-9672", 1)
def reassignment_does_not_wait_for_new_replicas(patch):
    """The old replicas go before the new ones have what they had."""
    patch(Reassignment, "is_in_sync", lambda *_: True)
    patch(
        elections,
        "reassigned_leader",
        lambda target, _isr, live: next((it for it in target if it in live), None),
    )


# --- idempotence ---------------------------------------------------------------------------------


@planted("KIP-98", 1)
def duplicates_are_appended(patch):
    """A batch that is sent again is appended again."""
    patch(ProducerStateManager, "find_duplicate", lambda *_: None)
    patch(ProducerStateManager, "check", lambda *_: None)


@planted("KIP-98 (order)", 1, is_pipelined=True)
def a_gap_in_the_sequences_is_accepted(patch):
    """A leader appends a batch though the one before it was refused."""

    def check_sequence(self, state, batch):
        if batch.base_sequence <= state.last_sequence:
            original(self, state, batch)

    original = ProducerStateManager._check_sequence
    patch(ProducerStateManager, "_check_sequence", check_sequence)


@planted("found here; Apache Kafka 2.7.2 does so", 0, is_pipelined=True)
def unknown_producers_begin_anywhere(patch):
    """The second batch of a producer is accepted as its first, where the first one was refused."""
    patch(UnknownProducers, "accepts", lambda *_: True)


@planted("librdkafka 4953", 1, is_pipelined=True)
def a_client_raises_its_epoch_whatever_may_be_stored(patch):
    """A producer renumbers, under another epoch, a batch whose response was lost."""
    patch(PipelinedProducer, "_may_raise_epoch", lambda _: True)


@planted("KAFKA-12153", 25)
def producers_are_not_reloaded_after_truncation(patch):
    """Records are truncated, but the state of their producers stays."""
    patch(ProducerStateManager, "adopt", lambda *_: None)


@planted("KAFKA-9144", 3)
def followers_do_not_learn_of_producers(patch):
    """A follower appends without noting the producers' sequences."""

    following = []

    def update_producer(self, batch, segment):
        if not following:
            update(self, batch, segment)

    def append_as_follower(self, records):
        following.append(self)
        try:
            return follow(self, records)
        finally:
            following.pop()

    update, follow = UnifiedLog._update_producer, UnifiedLog.append_as_follower
    patch(UnifiedLog, "_update_producer", update_producer)
    patch(UnifiedLog, "append_as_follower", append_as_follower)


# --- readers and groups --------------------------------------------------------------------------


@planted("KAFKA-9807", 1)
def consumers_read_what_is_not_committed(patch):
    """A consumer's read is bounded by the log's end."""
    original = FetchParams.__init__

    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.isolation = FetchIsolation.LOG_END

    patch(FetchParams, "__init__", init)


@planted("KAFKA-10614", 11)
def coordinator_does_not_load(patch):
    """Who is elected to lead __consumer_offsets begins with no offsets."""
    patch(ReplicatedPartitionWriter, "read", lambda *_: None)


@planted("found here", 59)
def offsets_leave_with_a_replica(patch):
    """A replica that is stopped takes along what groups have committed for its partition."""

    def stop(self, stopped):
        if stopped.delete:
            at_once(deleted[self].on_partitions_deleted([stopped.topic_partition]))
        return original(self, stopped)

    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        deleted[self.leadership] = self.group_coordinator

    deleted = {}
    original, make = Leadership._stop, Services.__init__
    patch(Leadership, "_stop", stop)
    patch(Services, "__init__", init)


# --- disks ---------------------------------------------------------------------------------------


@planted("flush.messages=1 (leader)", 0)
def commits_before_the_disk_has_it(patch):
    """The high watermark does not wait for the leader's own fsync."""

    def maybe_increment(self, now_ms):
        log = self.log
        if log is not None and log.is_write_through:
            log.is_write_through = False
            try:
                return original(self, now_ms)
            finally:
                log.is_write_through = True
        return original(self, now_ms)

    original = Partition.maybe_increment_high_watermark
    patch(Partition, "maybe_increment_high_watermark", maybe_increment)
    patch(FlushJob, "run", lambda _: None)


@planted("flush.messages=1 (follower)", 32)
def followers_acknowledge_before_the_disk_has_it(patch):
    """A follower fetches on before its records are on its disk."""

    def append_as_follower(self, records):
        kept, self._flush_messages = self._flush_messages, 1 << 62
        try:
            return original(self, records)
        finally:
            self._flush_messages = kept

    original = UnifiedLog.append_as_follower
    patch(UnifiedLog, "append_as_follower", append_as_follower)


@planted("KAFKA-3968", 36)
def new_names_are_not_made_durable(patch):
    """A new segment's data are on the disk, its name is not."""

    def run(self):
        self.directories.clear()
        original(self)

    original = FlushJob.run
    patch(FlushJob, "run", run)


@planted("KAFKA-10471", 0)
def a_crash_counts_as_a_clean_stop(patch):
    """Logs are not recovered after a crash."""

    def init(self, disk, trace, open_segments, request):
        original(self, disk, trace, open_segments, replace(request, had_clean_shutdown=True))

    original = LogLoader.__init__
    patch(LogLoader, "__init__", init)
