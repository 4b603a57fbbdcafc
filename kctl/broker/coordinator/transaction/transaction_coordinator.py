"""TransactionCoordinator: the transactional ids of one partition of __transaction_state. Pure.

Each id has an `Entry`: its current Transaction, which changes only in `replay`, and the one that is
on its way into the log (`pending`), during which every other request for it is told
CONCURRENT_TRANSACTIONS. Once a transaction's end is in the log (PrepareCommit, PrepareAbort) an
`EndMarkers` message goes out; `partitions_marked` and `markers_refused` say what became of it, and
when no partition is left the transaction is completed by one more record. Who wants to begin the
next one may be told when (`wait_for_completion`).

Invariants: at most one record of an id is on its way; markers go out only for what is in the log;
an id's current Transaction equals what replaying the log gives, but for the epochs before the last
(`last_producer_*`), which are not stored.

Kafka 2.7: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager; KIP-98,
KIP-360, KIP-588.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from kctl.broker.coordinator.outcome import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Moment,
    Outcome,
    Reply,
    Write,
)
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
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.transaction_state import TransactionState
from kctl.records.memory_records import Batch

# Transactional ids that one round of expiry forgets at most, in one shard; the next takes more.
EXPIRED_IDS_PER_ROUND = 10_000
# When to write a completion again that the log would not take.
COMPLETION_RETRY_MS = 100

_NONE = int(ErrorCode.NONE)
_CONCURRENT = int(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED = int(ErrorCode.PRODUCER_FENCED)
_UNKNOWN_PRODUCER = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_INVALID_STATE = int(ErrorCode.INVALID_TXN_STATE)


@dataclass(frozen=True, slots=True)
class Producer:
    """Who asks, as it says."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdResult:
    """The answer to InitProducerId."""

    error_code: int = _NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class EndMarkers:
    """Markers to be written into every one of `partitions`: a transaction has ended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    # Sorted.
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Entry:
    """A transactional id; see the module."""

    # None until its first record is in the log.
    current: Transaction | None = None
    pending: Transaction | None = None
    # What was sent for a prepared `current`, and the partitions that have no marker yet.
    markers: EndMarkers | None = None
    unmarked: set[TopicPartition] = field(default_factory=set)
    # Called with None when `current` is complete, or gone; and then forgotten.
    waiter: Reply | None = None

    @property
    def is_busy(self) -> bool:
        """Something must settle before the next request can be judged."""
        current = self.current
        return self.pending is not None or (current is not None and current.is_prepared)


class TransactionCoordinator:
    """One shard; see the module."""

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int) -> None:
        """`coordinator_epoch`: the leader epoch of the partition, which markers carry."""
        self.entries: dict[str, Entry] = {}
        self.timers = TimerQueue()
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        # Ids whose transaction is Ongoing: those that may hang. In the order of their beginning.
        self._ongoing: dict[str, None] = {}
        # Ids whose completion the log refused.
        self._incomplete: dict[str, None] = {}
        self._abort_timer = Timer(self._abort_hanging)
        self._expiry_timer = Timer(self._expire)
        self._retry_timer = Timer(self._complete_again)
        self._unknown_records = 0

    # The log

    def load(self, batch: Batch) -> None:
        """The next batch of the log that this shard is made from."""
        for record in batch.records():
            read = read_record(record.key, record.value)
            if read is None:
                self._unknown_records += 1
            else:
                self._adopt(read)

    def loaded(self, moment: Moment) -> Outcome:
        """That was all: requests may come. Ends that were decided are carried out."""
        outcome = Outcome()
        if self._unknown_records:
            outcome.event("transaction_records_skipped", count=self._unknown_records)
        for transactional_id, entry in self.entries.items():
            if entry.current is not None and entry.current.is_prepared:
                self._send_markers(transactional_id, entry, moment, outcome)
        self.timers.set(self._abort_timer, moment.monotonic_ms + self._settings.abort_interval_ms)
        self.timers.set(self._expiry_timer, moment.monotonic_ms + self._settings.expiry_interval_ms)
        return outcome

    def replay(self, record: TransactionRecord, _record_offset: int, _producer_id: int) -> None:
        """A record that this shard wrote is committed."""
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

    def unload(self, _moment: Moment) -> Outcome:
        """The partition moves away."""
        outcome = Outcome()
        for entry in self.entries.values():
            _wake(entry, outcome)
        self.entries.clear()
        self._ongoing.clear()
        self._incomplete.clear()
        return outcome

    # Time

    def next_deadline_ms(self) -> int:
        """When to call `fire_timers` (monotonic)."""
        return self.timers.next_ms()

    def fire_timers(self, moment: Moment) -> Outcome:
        """Look for transactions that hang, ids that expired, completions to write again."""
        outcome = Outcome()
        self.timers.fire_due(moment, outcome)
        return outcome

    # InitProducerId

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether `init_producer_id` may have to give out a fresh producer id."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.current is None:
            return True
        return entry.current.is_epoch_exhausted

    def init_producer_id(
        self, claimed: Producer, timeout_ms: int, fresh_id: int, moment: Moment, reply: Reply
    ) -> Outcome:
        """A producer begins (without id and epoch), or goes on after an error (with those that
        it has). `reply` takes a ProducerIdResult. `fresh_id`: a producer id that nobody has, or
        -1 if `needs_producer_id` said that none is needed."""
        outcome = Outcome()
        if not 0 < timeout_ms <= self._settings.timeout_max_ms:
            code = int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return outcome.reply(reply, ProducerIdResult(code))
        entry = self.entries.get(claimed.transactional_id)
        code = self._check_init(entry, claimed, fresh_id)
        if code != _NONE:
            return outcome.reply(reply, ProducerIdResult(code))
        if entry is None:
            entry = self.entries[claimed.transactional_id] = Entry()
        current = entry.current
        if current is not None and current.state is TransactionState.ONGOING:
            # Abort what the old instance left; who asked comes again.
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
            return _CONCURRENT  # used up since `needs_producer_id` was asked
        return _NONE

    # AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        producer: Producer,
        partitions: Collection[TopicPartition],
        moment: Moment,
        reply: Reply,
    ) -> Outcome:
        """The producer is going to write to these. `reply` takes an error code."""
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
        """Whether the producer's transaction has ended and is about to be complete: then `waiter`
        is called with None when it is, or when the partition moves away; maybe never."""
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
        """Do not call it."""
        entry = self.entries.get(producer.transactional_id)
        if entry is not None and entry.waiter is waiter:
            entry.waiter = None

    # EndTxn

    def end_transaction(
        self, producer: Producer, moment: Moment, reply: Reply, *, is_commit: bool
    ) -> Outcome:
        """The producer commits or aborts. `reply` takes an error code, when it is decided; the
        markers follow."""
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
        # It may ask again for an answer that was lost: once more is no harm.
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
        """Write how it ends (a fence is an abort), and then send the markers."""
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
        """These have their marker, or need none as they are gone."""
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
        """A leader has heard of a younger coordinator or producer: what is to be done is no
        longer this one's business."""
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
        for transactional_id in waiting:
            entry = self.entries.get(transactional_id)
            if entry is not None and entry.current is not None and entry.current.is_prepared:
                self._complete(entry, entry.current, moment, outcome)

    # What hangs, and what is old

    def _abort_hanging(self, moment: Moment, outcome: Outcome) -> None:
        for transactional_id in list(self._ongoing):
            entry = self.entries[transactional_id]
            current = entry.current
            if current is None or entry.is_busy or not current.has_timed_out(moment.wall_ms):
                continue
            outcome.event("transaction_timed_out", transactional_id=transactional_id)
            self._end(entry, current.fenced(moment.wall_ms), moment, None, outcome)
        self.timers.set(self._abort_timer, moment.monotonic_ms + self._settings.abort_interval_ms)

    def _expire(self, moment: Moment, outcome: Outcome) -> None:
        expiration_ms = self._settings.id_expiration_ms
        left = EXPIRED_IDS_PER_ROUND
        for transactional_id, entry in self.entries.items():
            current = entry.current
            if current is None or entry.is_busy:
                continue
            if current.has_expired(moment.wall_ms, expiration_ms):
                self._forget(transactional_id, entry, current, outcome)
                left -= 1
                if not left:
                    break
        self.timers.set(self._expiry_timer, moment.monotonic_ms + self._settings.expiry_interval_ms)

    def _forget(
        self, transactional_id: str, entry: Entry, current: Transaction, outcome: Outcome
    ) -> None:
        entry.pending = current

        def settled(code: int, _moment: Moment) -> Outcome:
            entry.pending = None
            result = Outcome()
            if code == _NONE:
                result.event("transactional_id_expired", transactional_id=transactional_id)
            return result

        outcome.writes.append(Write([tombstone(transactional_id)], settled))

    # Writing

    def _write(
        self,
        entry: Entry,
        following: Transaction,
        settled: Callable[[int, Moment], Outcome],
        outcome: Outcome,
    ) -> None:
        entry.pending = following
        outcome.writes.append(Write([transaction_record(following)], settled))

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
    """What InitProducerId makes of an id without an open transaction; None: the producer was
    replaced."""
    if current is None:
        return new_transaction(claimed.transactional_id, fresh_id, timeout_ms, wall_ms)
    epoch = current.producer_epoch
    goes_on = claimed.producer_epoch != NO_PRODUCER_EPOCH
    if current.is_epoch_exhausted and (not goes_on or claimed.producer_epoch == epoch):
        return current.with_new_producer(fresh_id, timeout_ms, wall_ms, remember_epoch=goes_on)
    if not goes_on:
        return current.with_epoch(epoch + 1, NO_PRODUCER_EPOCH, timeout_ms, wall_ms)
    if claimed.producer_epoch == epoch:
        return current.with_epoch(epoch + 1, epoch, timeout_ms, wall_ms)
    if claimed.producer_epoch == current.last_producer_epoch:
        # It asks again, as the answer was lost (KIP-360).
        return current.again(timeout_ms, wall_ms)
    return None
