"""CleanedTransactions: determines which batches were aborted and which markers are needed.

A marker is needed while data of its transaction precedes it in the log; without it the data would
look open forever. The walk therefore notes the transactions whose data it sees and checks each
marker against them.

Aborted transactions come from the transaction indexes of the *whole* log, whatever part of it is
walked: a transaction may end in a later segment, beyond the part that is cleaned (KAFKA-8351,
KAFKA-13727).

Kafka 2.7: kafka.log.CleanedTransactionMetadata
"""

from collections.abc import Iterable

from kctl.records.control import ControlRecordType, control_record_type
from kctl.records.record_batch import RecordBatch
from kctl.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions of one walk in offset order."""

    __slots__ = ("_aborted", "_aborting", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # The transactions still ahead, the next one last.
        self._aborted = sorted(aborted, key=lambda it: it.first_offset, reverse=True)
        # Producer -> its aborted transaction that the walk is inside of.
        self._aborting: dict[int, AbortedTransaction] = {}
        # Producers with data whose transaction has not been ended by a marker yet.
        self._with_data: dict[int, None] = {}

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Return whether a batch of data belongs to an aborted transaction; the batch counts as
        seen."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        self._with_data[batch.producer_id] = None
        transaction = self._aborting.get(batch.producer_id)
        return transaction is not None and batch.base_offset < transaction.last_offset

    def end(self, batch: RecordBatch) -> tuple[bool, AbortedTransaction | None]:
        """Apply a control batch.

        Return whether it is no longer needed, and the transaction that the index must keep for it.
        """
        self._begin_up_to(batch.last_offset)
        record = next(batch.records(), None)
        if record is None:
            # Emptied by an earlier cleaning: it is not needed.
            return True, None
        kind = control_record_type(record.key)
        if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return False, None
        had_data = self._with_data.pop(batch.producer_id, False) is None
        aborted = self._aborting.pop(batch.producer_id, None)
        return not had_data, aborted if had_data and kind == ControlRecordType.ABORT else None

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while aborted and aborted[-1].first_offset <= offset:
            transaction = aborted.pop()
            self._aborting[transaction.producer_id] = transaction
