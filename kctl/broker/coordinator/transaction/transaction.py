"""Transaction: a transactional id, its producer, and the state of its transaction. Pure.

A producer's id and epoch identify the instance that may write for the transactional id: every
InitProducerId increments the epoch, so that older instances (zombies) are rejected from then on. A
transaction is Ongoing from its first partition on. Its end is decided by writing PrepareCommit or
PrepareAbort into the coordinator's log: from then on it ends that way, whichever process crashes.
Then every partition gets its marker, and CompleteCommit or CompleteAbort is written; the next
transaction may begin. PrepareEpochFence is a transient state that is never written: the coordinator
itself aborts, for a new instance or after a timeout, and increments the epoch, so that the producer
can add nothing more.

A Transaction is a value: a move returns another one. `_move` knows the legal moves; an illegal one
raises RuntimeError. Only the coordinator's log decides which one is current.

Kafka 2.7: kafka.coordinator.transaction.TransactionMetadata, TransactionState; KIP-98, KIP-360.
"""

from collections.abc import Iterable
from dataclasses import replace

from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.internal.transaction_state import TransactionState
from kctl.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIMESTAMP = -1
# From this epoch on a producer id is exhausted: the last int16 is reserved for a fence.
EPOCH_EXHAUSTED = 2**15 - 2
EPOCH_MAX = 2**15 - 1

# From each state, the states it may move to.
LEGAL_MOVES = {
    TransactionState.EMPTY: (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.DEAD,
    ),
    TransactionState.ONGOING: (
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
    ),
    TransactionState.PREPARE_EPOCH_FENCE: (TransactionState.PREPARE_ABORT,),
    TransactionState.PREPARE_COMMIT: (TransactionState.COMPLETE_COMMIT,),
    TransactionState.PREPARE_ABORT: (TransactionState.COMPLETE_ABORT,),
    TransactionState.COMPLETE_COMMIT: (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.DEAD,
    ),
    TransactionState.COMPLETE_ABORT: (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.DEAD,
    ),
    TransactionState.DEAD: (),
}
_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id as of one record; times are wall milliseconds."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    # The partitions that the transaction writes to; empty unless it is Ongoing or prepared.
    partitions: frozenset[TopicPartition]
    # When the current or last transaction began, or NO_TIMESTAMP.
    start_ms: int
    last_update_ms: int
    # The producer's id and epoch before its last InitProducerId with an epoch (KIP-360), in case it
    # retries. Not in the log.
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    # Queries

    @property
    def is_prepared(self) -> bool:
        """Return whether its end is decided but markers may be missing."""
        return self.state in _PREPARED

    @property
    def is_commit(self) -> bool:
        """Return whether it ends, or ended, with a commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_epoch_exhausted(self) -> bool:
        """Return whether the next InitProducerId needs another producer id."""
        return self.producer_epoch >= EPOCH_EXHAUSTED

    def knows_producer(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether this id and epoch belong to the current producer, or did until its epochs
        were exhausted."""
        return producer_id == self.producer_id or (
            producer_id == self.last_producer_id and producer_epoch >= EPOCH_EXHAUSTED
        )

    def has_timed_out(self, wall_ms: int) -> bool:
        """Return whether it is still open after its timeout."""
        is_ongoing = self.state is TransactionState.ONGOING
        return is_ongoing and self.start_ms + self.timeout_ms < wall_ms

    def has_expired(self, wall_ms: int, expiration_ms: int) -> bool:
        """Return whether the transactional id has been unused for `expiration_ms`."""
        may_die = TransactionState.DEAD in LEGAL_MOVES[self.state]
        return may_die and self.last_update_ms <= wall_ms - expiration_ms

    # Moves

    def with_epoch(
        self, producer_epoch: int, last_producer_epoch: int, timeout_ms: int, wall_ms: int
    ) -> "Transaction":
        """Return the state after InitProducerId with this epoch."""
        return self._begun(
            self.producer_id, producer_epoch, last_producer_epoch, timeout_ms, wall_ms
        )

    def with_new_producer(
        self, producer_id: int, timeout_ms: int, wall_ms: int, *, remember_epoch: bool
    ) -> "Transaction":
        """Return the state with another producer id, because the epochs of the current one are
        exhausted."""
        last_epoch = self.producer_epoch if remember_epoch else NO_PRODUCER_EPOCH
        return self._begun(producer_id, 0, last_epoch, timeout_ms, wall_ms)

    def again(self, timeout_ms: int, wall_ms: int) -> "Transaction":
        """Return the state for a producer that already has this epoch but did not receive the
        response."""
        return replace(self._move(TransactionState.EMPTY, wall_ms), timeout_ms=timeout_ms)

    def _begun(
        self,
        producer_id: int,
        producer_epoch: int,
        last_producer_epoch: int,
        timeout_ms: int,
        wall_ms: int,
    ) -> "Transaction":
        return replace(
            self._move(TransactionState.EMPTY, wall_ms),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_producer_id=self.producer_id,
            last_producer_epoch=last_producer_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
        )

    def with_partitions(self, added: Iterable[TopicPartition], wall_ms: int) -> "Transaction":
        """Return the state with these partitions added; the first ones begin the transaction."""
        is_first = self.state is not TransactionState.ONGOING
        return replace(
            self._move(TransactionState.ONGOING, wall_ms),
            partitions=self.partitions.union(added),
            start_ms=wall_ms if is_first else self.start_ms,
        )

    def fenced(self, wall_ms: int) -> "Transaction":
        """Return the state in which the producer can add nothing more, before the coordinator
        aborts.

        The last epoch stays: no client is given it, and the next instance gets another producer id.
        (Apache Kafka 2.7.2 cannot fence it, so that the transaction never ends.)
        """
        return replace(
            self._move(TransactionState.PREPARE_EPOCH_FENCE, wall_ms),
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def prepared(self, wall_ms: int, *, is_commit: bool) -> "Transaction":
        """Return the state in which its end is decided."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return self._move(state, wall_ms)

    def completed(self, wall_ms: int) -> "Transaction":
        """Return the state after every partition has its marker."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        return replace(self._move(state, wall_ms), partitions=frozenset())

    def _move(self, state: TransactionState, wall_ms: int) -> "Transaction":
        if state not in LEGAL_MOVES[self.state]:
            raise RuntimeError(
                f"Transactional id {self.transactional_id} cannot move from {self.state.title} to "
                f"{state.title}"
            )
        return replace(self, state=state, last_update_ms=wall_ms)


def new_transaction(
    transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int
) -> Transaction:
    """Return the state of an unused transactional id."""
    return Transaction(
        transactional_id,
        producer_id,
        0,
        timeout_ms,
        TransactionState.EMPTY,
        frozenset(),
        NO_TIMESTAMP,
        wall_ms,
    )
