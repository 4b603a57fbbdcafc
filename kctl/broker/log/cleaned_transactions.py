"""CleanedTransactions: which batches of a log in order were aborted, and which markers are needed.

A marker is needed while data of its transaction is in the log before it: else the data would look
open for ever. So the walk notes of whose transactions it saw data, and asks at each marker.

What was aborted comes from the transaction indexes of the *whole* log, whatever part of it is
walked: a transaction may end in a later segment, and behind what is cleaned (KAFKA-8351,
KAFKA-13727).

Kafka 2.7: kafka.log.CleanedTransactionMetadata
"""

from collections.abc import Iterable

from kctl.records.control import ControlRecordType, control_record_type
from kctl.records.record_batch import RecordBatch
from kctl.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions of one walk; see the module."""

    __slots__ = ("_aborted", "_aborting", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Those still to come, the first one last.
        self._aborted = sorted(aborted, key=lambda it: it.first_offset, reverse=True)
        # Producer -> its transaction that is being walked and that was aborted.
        self._aborting: dict[int, AbortedTransaction] = {}
        # Producers of whose transactions data was seen that no marker has ended yet.
        self._with_data: dict[int, None] = {}

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Whether a batch of data is of an aborted transaction; it counts as seen."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        self._with_data[batch.producer_id] = None
        transaction = self._aborting.get(batch.producer_id)
        return transaction is not None and batch.base_offset < transaction.last_offset

    def end(self, batch: RecordBatch) -> tuple[bool, AbortedTransaction | None]:
        """What a control batch ends: whether it is needed no more, and what of it the transaction
        index must keep."""
        self._begin_up_to(batch.last_offset)
        record = next(batch.records(), None)
        if record is None:
            # It was emptied before: nothing needs it.
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
