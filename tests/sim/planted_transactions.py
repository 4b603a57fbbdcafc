"""Known bugs of transactions and groups, each planted in the real code; see `resurrection`."""

from dataclasses import replace
from functools import partial

from kctl.broker.controller.znode_events import ZnodeEvents
from kctl.broker.coordinator.connection_order import ConnectionOrder
from kctl.broker.coordinator.group.group_loader import GroupLoader
from kctl.broker.coordinator.group.membership import Membership
from kctl.broker.coordinator.group.offset_commits import OffsetCommits
from kctl.broker.coordinator.group.offsets import GroupOffsets
from kctl.broker.coordinator.transaction.transaction import Transaction
from kctl.broker.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kctl.broker.log.producer_state_manager import ProducerStateManager
from kctl.broker.log.unified_log import FetchIsolation
from kctl.broker.log.validation_rules import AppendOrigin
from kctl.broker.replication.delayed import FetchParams
from kctl.protocol.error_codes import ErrorCode
from kctl.storage.transaction_index import TransactionIndex
from kctl.store.topic_registry import TopicRegistry
from tests.sim import resurrection

planted = partial(resurrection.planted, has_transactions=True)


# --- the transaction coordinator -----------------------------------------------------------------


@planted("KAFKA-17754", 999)
def late_requests_are_carried_out(patch):
    """An EndTxn that its producer has given up ends the transaction after the one it was for."""
    patch(ConnectionOrder, "is_late", lambda *_: False)


@planted("found here; Apache Kafka 2.7.2 does so", 43)
def what_is_not_known_yet_is_deleted(patch):
    """A coordinator leaves out the markers of partitions that its broker has not heard of."""

    async def topic_stays(*_):
        return False

    patch(TopicRegistry, "topic_stays", topic_stays)


@planted("KIP-98 (completion)", 14)
def complete_with_the_first_marker(patch):
    """A transaction is complete when one partition has its marker."""

    def partitions_marked(self, markers, partitions, moment):
        entry = self.entries.get(markers.transactional_id)
        if entry is not None and entry.markers is markers:
            entry.unmarked.clear()
        return original(self, markers, partitions, moment)

    original = TransactionCoordinator.partitions_marked
    patch(TransactionCoordinator, "partitions_marked", partitions_marked)


@planted("KIP-98 (failover)", 1)
def decided_ends_are_forgotten(patch):
    """A coordinator that takes over does not carry out what was decided."""

    def loaded(self, moment):
        outcome = yield from original(self, moment)
        outcome.messages.clear()
        return outcome

    original = TransactionCoordinator.loaded
    patch(TransactionCoordinator, "loaded", loaded)


@planted("KIP-98 (decision)", 11)
def decided_before_it_is_written(patch):
    """Markers are sent and the producer is answered before the decision is in the log."""

    def end(self, entry, following, moment, reply, outcome):
        original(self, entry, following, moment, reply, outcome)
        write = outcome.writes[-1]
        entry.current = entry.pending
        outcome.writes[-1] = replace(write, on_settled=None)
        now = write.on_settled(0, moment)
        outcome.replies += now.replies
        outcome.messages += now.messages
        outcome.writes += now.writes

    original = TransactionCoordinator._end
    patch(TransactionCoordinator, "_end", end)


@planted("KIP-98 (timeouts)", 3)
def hanging_transactions_hang(patch):
    """The coordinator does not abort transactions that time out."""
    patch(Transaction, "has_timed_out", lambda *_: False)


@planted("KIP-98 (fencing by the coordinator)", 4)
def zombies_may_end_transactions(patch):
    """EndTxn and AddPartitionsToTxn are carried out whatever epoch they name."""

    def unfenced(name):
        original = getattr(TransactionCoordinator, name)

        def ask(self, producer, *args, **kwargs):
            entry = self.entries.get(producer.transactional_id)
            if entry is not None and entry.current is not None:
                producer = replace(producer, producer_epoch=entry.current.producer_epoch)
            return original(self, producer, *args, **kwargs)

        patch(TransactionCoordinator, name, ask)

    unfenced("end_transaction")
    unfenced("add_partitions")


# --- logs ----------------------------------------------------------------------------------------


@planted("KIP-98 (fencing by the log)", 1)
def zombies_may_write(patch):
    """A log takes what producers of older epochs send."""
    patch(ProducerStateManager, "_check_epoch", lambda *_: None)


@planted("KIP-98 (TxnOffsetCommit)", 9)
def zombies_may_commit_offsets(patch):
    """The group coordinator takes offsets of producers of older epochs."""

    def check(self, batch, origin):
        if origin is AppendOrigin.CLIENT or batch.is_control:
            original(self, batch, origin)

    original = ProducerStateManager.check
    patch(ProducerStateManager, "check", check)


@planted("KIP-98 (read_committed)", 1)
def open_transactions_are_read(patch):
    """Readers of committed data read up to the high watermark."""

    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if self.isolation is FetchIsolation.TXN_COMMITTED:
            self.isolation = FetchIsolation.HIGH_WATERMARK

    original = FetchParams.__init__
    patch(FetchParams, "__init__", init)


@planted("KIP-98 (last stable offset)", 999)
def stable_at_the_marker(patch):
    """A transaction is stable as soon as its marker is written, not when that is committed."""

    def complete(self, completed):
        original(self, completed)
        self._unreplicated.clear()

    original = ProducerStateManager.complete
    patch(ProducerStateManager, "complete", complete)


@planted("KIP-98 (.txnindex)", 1)
def aborted_transactions_are_not_indexed(patch):
    """Responses do not list the aborted transactions."""
    patch(TransactionIndex, "append", lambda *_: None)


@planted("found here", 6)
def truncation_opens_what_has_ended(patch):
    """A log that is cut takes ended transactions for open until its high watermark moves."""

    def on_high_watermark(self, high_watermark):
        if self.map_end_offset != cut_at.get(self):
            original(self, high_watermark)

    def adopt(self, other, start):
        cut_at[self] = other.map_end_offset
        adopted(self, other, start)

    cut_at = {}
    original = ProducerStateManager.on_high_watermark
    adopted = ProducerStateManager.adopt
    patch(ProducerStateManager, "on_high_watermark", on_high_watermark)
    patch(ProducerStateManager, "adopt", adopt)


@planted("found here; Apache Kafka 2.7.2 does so", 999)
def a_leader_that_was_away_leads_on(patch):
    """A new controller lets a restarted leader keep its old epoch."""
    patch(ZnodeEvents, "_is_led_from_before", lambda *_: False)


# --- groups --------------------------------------------------------------------------------------


@planted("KIP-98 (pending offsets)", 1)
def offsets_count_before_the_end(patch):
    """Offsets that a transaction commits count at once."""

    def replay_in_transaction(self, producer_id, partition, committed, offset, key):
        original(self, producer_id, partition, committed, offset, key)
        self.replay(partition, committed, offset, key)

    original = GroupOffsets.replay_in_transaction
    patch(GroupOffsets, "replay_in_transaction", replay_in_transaction)


@planted("KIP-98 (loading of offsets)", 36)
def aborted_offsets_count_after_loading(patch):
    """A coordinator that takes over counts the offsets of aborted transactions."""

    def load_marker(self, batch):
        yield from self._commits.ending_transaction(batch.producer_id, is_commit=True)

    patch(GroupLoader, "_load_marker", load_marker)


@planted("KIP-447 (fencing)", 10)
def consumers_left_behind_may_commit_in_transactions(patch):
    """TxnOffsetCommit does not ask which generation its consumer is of."""
    patch(OffsetCommits, "_check_in_transaction", lambda *_: 0)


@planted("KIP-447 (stable offsets)", 243)
def unstable_offsets_are_returned(patch):
    """A consumer starts from what is committed, though a transaction is about to change it."""
    patch(GroupOffsets, "is_unstable", lambda *_: False)


@planted("ILLEGAL_GENERATION", 999)
def commits_of_older_generations_count(patch):
    """OffsetCommit does not ask which generation its member is of."""

    def check(self, group, commit):
        code = original(self, group, commit)
        return 0 if code == ErrorCode.ILLEGAL_GENERATION and group is not None else code

    original = OffsetCommits._check
    patch(OffsetCommits, "_check", check)


@planted("SyncGroup answered early", 999)
def assignments_are_sent_before_they_are_written(patch):
    """A generation number that repeats after a failover gets another assignment."""

    def store_assignment(self, group, body, outcome):
        before = len(outcome.writes)
        original(self, group, body, outcome)
        if len(outcome.writes) > before:
            write = outcome.writes[-1]
            outcome.writes[-1] = replace(write, on_settled=None)
            now = write.on_settled(0, moments[0])
            outcome.replies += now.replies

    def sync(self, body, reply, moment):
        moments[:] = [moment]
        return original_sync(self, body, reply, moment)

    moments = []
    original, original_sync = Membership._store_assignment, Membership.sync
    patch(Membership, "_store_assignment", store_assignment)
    patch(Membership, "sync", sync)
