"""TransactionCoordinator: the transactional ids of one partition of __transaction_state. Pure.

Each id has an `Entry`: its current Transaction, which changes only in `replay`, and the one that is
being written to the log (`pending`). Meanwhile every other request for the id gets
CONCURRENT_TRANSACTIONS. Once a transaction's end is in the log (PrepareCommit, PrepareAbort) an
`EndMarkers` message goes out; `partitions_marked` and `markers_refused` report its result, and when
no partition is left the transaction is completed by one more record. A request that begins the next
transaction may be notified of this (`wait_for_completion`).

Invariants: at most one record of an id is in flight; markers go out only for ends that are in the
log; an id's current Transaction equals the result of replaying the log, except for the epochs
before the last (`last_producer_*`), which are not stored.

Kafka 2.7: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager; KIP-98,
KIP-360, KIP-588.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import field

from kctl.broker.coordinator.outcome import Moment, Outcome, Reply, Write
from kctl.broker.coordinator.timers import Timer, TimerQueue
from kctl.broker.coordinator.transaction.append_errors import producer_error
from kctl.broker.coordinator.transaction.records import (
    TransactionRecord,
    read_record,
    tombstone,
    transaction_record,
)
from kctl.broker.coordinator.transaction.settings import TransactionSettings
from kctl.broker.coordinator.transaction.transaction import Transaction, new_transaction
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.transaction_state import TransactionState
from kctl.records.memory_records import Batch
from kctl.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kctl.work import Work

# Maximum ids that one round of expiry removes in one shard; the next round continues.
EXPIRED_IDS_PER_ROUND = 10_000
# Transactional ids examined per turn of the loop while a shard is loaded or unloaded, and by the
# rounds that abort and expire.
ENTRIES_PER_TURN = 1_000
# Delay before a completion that the log rejected is written again.
COMPLETION_RETRY_MS = 100

_NONE = int(ErrorCode.NONE)
_CONCURRENT = int(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED = int(ErrorCode.PRODUCER_FENCED)
_UNKNOWN_PRODUCER = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_INVALID_STATE = int(ErrorCode.INVALID_TXN_STATE)


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer that a request names."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdResult:
    """The result of InitProducerId."""

    error_code: int = _NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class EndMarkers:
    """Markers of a transaction that has ended, to be written into each of `partitions`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    # Sorted.
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Entry:
    """A transactional id; see the module docstring."""

    # None until its first record is in the log.
    current: Transaction | None = None
    pending: Transaction | None = None
    # The markers sent for a prepared `current`, and the partitions that have none yet.
    markers: EndMarkers | None = None
    unmarked: set[TopicPartition] = field(default_factory=set)
    # Called once with None when `current` is complete or gone, then cleared.
    waiter: Reply | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether a record or markers must settle before the next request can be handled."""
        current = self.current
        return self.pending is not None or (current is not None and current.is_prepared)


class TransactionCoordinator:
    """One shard; see the module docstring."""

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int) -> None:
        """Create an empty shard; `coordinator_epoch` is the partition's leader epoch, for
        markers."""
        self.entries: dict[str, Entry] = {}
        self.timers = TimerQueue()
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        # Ids whose transaction is Ongoing and may hang, in the order of their beginning.
        self._ongoing: dict[str, None] = {}
        # Ids whose completion the log rejected.
        self._incomplete: dict[str, None] = {}
        # Ids that the round in progress has yet to look at, the next one last.
        self._to_abort: list[str] = []
        self._to_expire: list[str] = []
        # Those that expired in this round.
        self._expired = 0
        self._abort_timer = Timer(self._abort_hanging)
        self._expiry_timer = Timer(self._expire)
        self._retry_timer = Timer(self._complete_again)
        self._unknown_records = 0

    # The log

    def load(self, batch: Batch) -> Work[None]:
        """Load the next batch of the log, with a `yield` after every ENTRIES_PER_TURN records."""
        for number, record in enumerate(batch.records(), 1):
            if number % ENTRIES_PER_TURN == 0:
                yield
            read = read_record(record.key, record.value)
            if read is None:
                self._unknown_records += 1
            else:
                self._adopt(read)

    def loaded(self, moment: Moment) -> Work[Outcome]:
        """End loading and send the markers of transactions whose end was decided."""
        outcome = Outcome()
        if self._unknown_records:
            outcome.event("transaction_records_skipped", count=self._unknown_records)
        for number, (transactional_id, entry) in enumerate(self.entries.items(), 1):
            if number % ENTRIES_PER_TURN == 0:
                yield
            if entry.current is not None and entry.current.is_prepared:
                self._send_markers(transactional_id, entry, moment, outcome)
        self.timers.set(self._abort_timer, moment.monotonic_ms + self._settings.abort_interval_ms)
        self.timers.set(self._expiry_timer, moment.monotonic_ms + self._settings.expiry_interval_ms)
        return outcome

    def replay(self, record: TransactionRecord, _record_offset: int, _producer_id: int) -> None:
        """Apply a record that this shard wrote and that is now committed."""
        self._adopt(record)

    def _adopt(self, record: TransactionRecord) -> None:
        name, transaction = record.transactional_id, record.transaction
        self._ongoing.pop(name, None)
        if transaction is None:
            self.entries.pop(name, None)
            return
        entry = self.entries.get(name)
        if entry is None:
            entry = self.entries[name] = Entry()
        entry.current = transaction
        if transaction.state is TransactionState.ONGOING:
            self._ongoing[name] = None

    def unload(self, _moment: Moment) -> Work[Outcome]:
        """Release the entries because the partition moves away."""
        outcome = Outcome()
        for number, entry in enumerate(list(self.entries.values()), 1):
            if number % ENTRIES_PER_TURN == 0:
                yield
            _wake(entry, outcome)
        self.entries.clear()
        self._ongoing.clear()
        self._incomplete.clear()
        return outcome

    # Time

    def next_deadline_ms(self) -> int:
        """Return when to call `fire_timers`, in monotonic milliseconds."""
        return self.timers.next_ms()

    def fire_timers(self, moment: Moment) -> Outcome:
        """Handle hanging transactions, expired ids and completions to write again."""
        outcome = Outcome()
        self.timers.fire_due(moment, outcome)
        return outcome

    # InitProducerId

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Return whether `init_producer_id` may have to assign a fresh producer id."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.current is None:
            return True
        return entry.current.is_epoch_exhausted

    def init_producer_id(
        self, claimed: Producer, timeout_ms: int, fresh_id: int, moment: Moment, reply: Reply
    ) -> Outcome:
        """Handle InitProducerId: a producer begins (without id and epoch), or continues after an
        error (with its own).

        `reply` takes a ProducerIdResult. `fresh_id` is an unused producer id, or -1 if
        `needs_producer_id` returned False.
        """
        outcome = Outcome()
        if not 0 < timeout_ms <= self._settings.timeout_max_ms:
            code = int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return outcome.reply(reply, ProducerIdResult(code))
        entry = self.entries.get(claimed.transactional_id)
        code = self._check_init(entry, claimed, fresh_id)
        if code != _NONE:
            return outcome.reply(reply, ProducerIdResult(code))
        if entry is None:
            entry = Entry()
        current = entry.current
        if current is not None and current.state is TransactionState.ONGOING:
            # Abort the transaction that the old instance left open; the producer retries.
            def fenced(code: int) -> None:
                reply(ProducerIdResult(code or _CONCURRENT))

            self._end(entry, current.fenced(moment.wall_ms), moment, fenced, outcome)
            return outcome
        following = _following(current, claimed, timeout_ms, fresh_id, moment.wall_ms)
        if following is None:
            return outcome.reply(reply, ProducerIdResult(_FENCED))

        def settled(code: int, _moment: Moment) -> Outcome:
            self._settle(entry, following)
            result = ProducerIdResult(0, following.producer_id, following.producer_epoch)
            if code != _NONE:
                self._forget_if_unknown(following.transactional_id, entry)
                result = ProducerIdResult(producer_error(code))
            return Outcome().reply(reply, result)

        self._write(entry, following, settled, outcome)
        self.entries[claimed.transactional_id] = entry
        return outcome

    def _check_init(self, entry: Entry | None, claimed: Producer, fresh_id: int) -> int:
        if entry is None:
            return _NONE if fresh_id != NO_PRODUCER_ID else _CONCURRENT
        if entry.is_busy:
            return _CONCURRENT
        current = entry.current
        assert current is not None
        is_known = claimed.producer_id == NO_PRODUCER_ID or current.knows_producer(
            claimed.producer_id, claimed.producer_epoch
        )
        if not is_known:
            return _FENCED
        if current.is_epoch_exhausted and fresh_id == NO_PRODUCER_ID:
            return _CONCURRENT  # exhausted since `needs_producer_id` was called
        return _NONE

    # AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        producer: Producer,
        partitions: Collection[TopicPartition],
        moment: Moment,
        reply: Reply,
    ) -> Outcome:
        """Add partitions to the producer's transaction; `reply` takes an error code."""
        outcome = Outcome()
        entry = self.entries.get(producer.transactional_id)
        if entry is None or entry.current is None:
            return outcome.reply(reply, _UNKNOWN_PRODUCER)
        current = entry.current
        if current.producer_id != producer.producer_id:
            return outcome.reply(reply, _UNKNOWN_PRODUCER)
        if current.producer_epoch != producer.producer_epoch:
            return outcome.reply(reply, _FENCED)
        if entry.is_busy:
            return outcome.reply(reply, _CONCURRENT)
        if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
            return outcome.reply(reply, _NONE)
        following = current.with_partitions(partitions, moment.wall_ms)

        def settled(code: int, _moment: Moment) -> Outcome:
            self._settle(entry, following)
            return Outcome().reply(reply, producer_error(code))

        self._write(entry, following, settled, outcome)
        return outcome

    def wait_for_completion(self, producer: Producer, waiter: Reply) -> bool:
        """Return whether the producer's transaction has ended and awaits completion.

        If so, `waiter` is called with None when it is complete or the partition moves away;
        possibly never.
        """
        entry = self.entries.get(producer.transactional_id)
        if entry is None or entry.current is None or not entry.current.is_prepared:
            return False
        current = entry.current
        is_its_own = current.producer_id == producer.producer_id
        if not is_its_own or current.producer_epoch != producer.producer_epoch:
            return False
        if entry.waiter is not None:
            return False
        entry.waiter = waiter
        return True

    def stop_waiting(self, producer: Producer, waiter: Reply) -> None:
        """Remove `waiter` so that it is not called."""
        entry = self.entries.get(producer.transactional_id)
        if entry is not None and entry.waiter is waiter:
            entry.waiter = None

    # EndTxn

    def end_transaction(
        self, producer: Producer, moment: Moment, reply: Reply, *, is_commit: bool
    ) -> Outcome:
        """Commit or abort the producer's transaction.

        `reply` takes an error code when the decision is in the log; the markers follow.
        """
        outcome = Outcome()
        entry = self.entries.get(producer.transactional_id)
        if entry is None or entry.current is None:
            return outcome.reply(reply, _UNKNOWN_PRODUCER)
        current = entry.current
        if current.producer_id != producer.producer_id:
            return outcome.reply(reply, _UNKNOWN_PRODUCER)
        if current.producer_epoch != producer.producer_epoch:
            return outcome.reply(reply, _FENCED)
        if entry.is_busy:
            return outcome.reply(reply, _CONCURRENT)
        if current.state is TransactionState.ONGOING:
            prepared = current.prepared(moment.wall_ms, is_commit=is_commit)
            self._end(entry, prepared, moment, reply, outcome)
            return outcome
        # The producer may retry after a lost response: reporting success again does no harm.
        wanted = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        return outcome.reply(reply, _NONE if current.state is wanted else _INVALID_STATE)

    def _end(
        self,
        entry: Entry,
        following: Transaction,
        moment: Moment,
        reply: Reply | None,
        outcome: Outcome,
    ) -> None:
        """Write the transaction's end (a fence is an abort), then send the markers."""
        if following.state is TransactionState.PREPARE_EPOCH_FENCE:
            following = following.prepared(moment.wall_ms, is_commit=False)

        def settled(code: int, moment: Moment) -> Outcome:
            self._settle(entry, following)
            result = Outcome()
            if code == _NONE:
                self._send_markers(following.transactional_id, entry, moment, result)
            if reply is not None:
                result.reply(reply, producer_error(code))
            return result

        self._write(entry, following, settled, outcome)

    # Markers

    def _send_markers(
        self, transactional_id: str, entry: Entry, moment: Moment, outcome: Outcome
    ) -> None:
        current = entry.current
        assert current is not None
        entry.unmarked = set(current.partitions)
        if not entry.unmarked:
            self._complete(entry, current, moment, outcome)
            return
        entry.markers = EndMarkers(
            transactional_id,
            current.producer_id,
            current.producer_epoch,
            self._coordinator_epoch,
            current.is_commit,
            tuple(sorted(current.partitions)),
        )
        outcome.messages.append(entry.markers)

    def partitions_marked(
        self, markers: EndMarkers, partitions: Iterable[TopicPartition], moment: Moment
    ) -> Outcome:
        """Record that these partitions have their marker, or were deleted and need none."""
        outcome = Outcome()
        entry = self.entries.get(markers.transactional_id)
        if entry is None or entry.markers is not markers:
            return outcome
        entry.unmarked.difference_update(partitions)
        if not entry.unmarked and entry.current is not None:
            entry.markers = None
            self._complete(entry, entry.current, moment, outcome)
        return outcome

    def markers_refused(self, markers: EndMarkers, code: int) -> Outcome:
        """Report markers that a leader rejected because a newer coordinator or producer exists;
        that one completes the transaction."""
        outcome = Outcome()
        outcome.event(
            "markers_refused", transactional_id=markers.transactional_id, error=ErrorCode(code).name
        )
        return outcome

    def _complete(
        self, entry: Entry, current: Transaction, moment: Moment, outcome: Outcome
    ) -> None:
        following = current.completed(moment.wall_ms)

        def settled(code: int, moment: Moment) -> Outcome:
            self._settle(entry, following)
            if producer_error(code) == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._incomplete[following.transactional_id] = None
                self.timers.set(self._retry_timer, moment.monotonic_ms + COMPLETION_RETRY_MS)
            result = Outcome()
            if code == _NONE:
                _wake(entry, result)
            return result

        self._write(entry, following, settled, outcome)

    def _complete_again(self, moment: Moment, outcome: Outcome) -> None:
        waiting, self._incomplete = self._incomplete, {}

        def complete(transactional_id: str, entry: Entry, current: Transaction) -> None:
            if not current.is_prepared:
                return
            try:
                self._complete(entry, current, moment, outcome)
            except Exception:
                # A transaction that was decided must end: it is tried again, not too often.
                self._incomplete[transactional_id] = None
                retry_ms = moment.monotonic_ms + self._settings.abort_interval_ms
                self.timers.set(self._retry_timer, retry_ms)
                raise

        self._for_each(list(waiting), complete, outcome)

    def _for_each(
        self,
        transactional_ids: Iterable[str],
        handle: Callable[[str, Entry, Transaction], object],
        outcome: Outcome,
    ) -> None:
        """Handle those of the ids that are known; an error of one does not concern the others."""
        for transactional_id in transactional_ids:
            entry = self.entries.get(transactional_id)
            if entry is None or entry.current is None:
                continue
            try:
                handle(transactional_id, entry, entry.current)
            except Exception as error:  # noqa: BLE001 - one id's bug must not stop the round
                outcome.errors.append(error)

    # Hanging transactions and expired ids

    def _abort_hanging(self, moment: Moment, outcome: Outcome) -> None:
        """Abort transactions that take too long; ENTRIES_PER_TURN are looked at in a turn."""
        left = self._to_abort or list(reversed(self._ongoing))

        def abort(transactional_id: str, entry: Entry, current: Transaction) -> None:
            if entry.is_busy or transactional_id not in self._ongoing:
                return
            if current.has_timed_out(moment.wall_ms):
                outcome.event("transaction_timed_out", transactional_id=transactional_id)
                self._end(entry, current.fenced(moment.wall_ms), moment, None, outcome)

        self._for_each(_taken(left), abort, outcome)
        self._to_abort = left
        delay_ms = 0 if left else self._settings.abort_interval_ms
        self.timers.set(self._abort_timer, moment.monotonic_ms + delay_ms)

    def _expire(self, moment: Moment, outcome: Outcome) -> None:
        """Remove ids that are not used any longer; ENTRIES_PER_TURN are looked at in a turn."""
        expiration_ms = self._settings.id_expiration_ms
        if not self._to_expire:
            self._to_expire = list(reversed(self.entries))
            self._expired = 0

        def expire(transactional_id: str, entry: Entry, current: Transaction) -> None:
            if entry.is_busy or self._expired == EXPIRED_IDS_PER_ROUND:
                return
            if current.has_expired(moment.wall_ms, expiration_ms):
                self._forget(transactional_id, entry, current, outcome)
                self._expired += 1

        self._for_each(_taken(self._to_expire), expire, outcome)
        if self._expired == EXPIRED_IDS_PER_ROUND:
            self._to_expire = []
        delay_ms = 0 if self._to_expire else self._settings.expiry_interval_ms
        self.timers.set(self._expiry_timer, moment.monotonic_ms + delay_ms)

    def _forget(
        self, transactional_id: str, entry: Entry, current: Transaction, outcome: Outcome
    ) -> None:
        def settled(code: int, _moment: Moment) -> Outcome:
            entry.pending = None
            result = Outcome()
            if code == _NONE:
                result.event("transactional_id_expired", transactional_id=transactional_id)
            return result

        outcome.writes.append(Write([tombstone(transactional_id)], settled))
        entry.pending = current

    # Writing

    def _write(
        self,
        entry: Entry,
        following: Transaction,
        settled: Callable[[int, Moment], Outcome],
        outcome: Outcome,
    ) -> None:
        # First: a record that cannot be encoded must leave nothing pending.
        outcome.writes.append(Write([transaction_record(following)], settled))
        entry.pending = following

    def _settle(self, entry: Entry, following: Transaction) -> None:
        if entry.pending is following:
            entry.pending = None

    def _forget_if_unknown(self, transactional_id: str, entry: Entry) -> None:
        if entry.current is None and self.entries.get(transactional_id) is entry:
            del self.entries[transactional_id]


def _wake(entry: Entry, outcome: Outcome) -> None:
    if entry.waiter is not None:
        outcome.reply(entry.waiter, None)
        entry.waiter = None


def _following(
    current: Transaction | None, claimed: Producer, timeout_ms: int, fresh_id: int, wall_ms: int
) -> Transaction | None:
    """Return the result of InitProducerId for an id without an open transaction, or None if the
    producer was replaced."""
    if current is None:
        return new_transaction(claimed.transactional_id, fresh_id, timeout_ms, wall_ms)
    epoch = current.producer_epoch
    is_continuing = claimed.producer_epoch != NO_PRODUCER_EPOCH
    if current.is_epoch_exhausted and (not is_continuing or claimed.producer_epoch == epoch):
        return current.with_new_producer(
            fresh_id, timeout_ms, wall_ms, remember_epoch=is_continuing
        )
    if not is_continuing:
        return current.with_epoch(epoch + 1, NO_PRODUCER_EPOCH, timeout_ms, wall_ms)
    if claimed.producer_epoch == epoch:
        return current.with_epoch(epoch + 1, epoch, timeout_ms, wall_ms)
    if claimed.producer_epoch == current.last_producer_epoch:
        # The producer retries after a lost response (KIP-360).
        return current.again(timeout_ms, wall_ms)
    return None


def _taken(ids: list[str]) -> list[str]:
    """Remove and return what one turn looks at, from the end of `ids`."""
    taken = ids[-ENTRIES_PER_TURN:]
    del ids[-ENTRIES_PER_TURN:]
    taken.reverse()
    return taken
