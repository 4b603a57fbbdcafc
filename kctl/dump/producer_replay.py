"""ProducerReplay: what the batches of a log say about its producers, as a snapshot would.

The log is the truth: it is replayed from its start, or from a snapshot there, and snapshots and
transaction indexes are compared with the outcome, or built from it. The broker has its own state
machine for what it may accept; this one judges nothing, as everything here is in the log already.

Kafka 2.7: kafka.log.ProducerStateManager (`update`, `completeTxn`), ProducerAppendInfo; KIP-98
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kctl.dump.segment_walk import WalkedBatch
from kctl.errors import CorruptDataError
from kctl.records.control import ControlRecordType, EndTransactionMarker, read_marker
from kctl.records.record_batch import NO_SEQUENCE, RecordBatch, increment_sequence
from kctl.storage.producer_snapshot import NO_OFFSET, ProducerSnapshotEntry
from kctl.storage.transaction_index import AbortedTransaction


@dataclass(slots=True)
class _Producer:
    producer_id: int
    producer_epoch: int
    last_sequence: int = NO_SEQUENCE
    last_offset: int = NO_OFFSET
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    # -1: no transaction is open.
    first_offset: int = NO_OFFSET


class ProducerReplay:
    """The producers of one log up to the batch applied last."""

    def __init__(self, entries: Iterable[ProducerSnapshotEntry] = ()) -> None:
        """`entries`: what a snapshot at the start says."""
        self._producers = {entry.producer_id: _Producer(*entry) for entry in entries}
        # First offsets by producer, in the order in which the transactions began.
        still_open = sorted(
            (it.first_offset, it.producer_id)
            for it in self._producers.values()
            if it.first_offset >= 0
        )
        self._open = {producer_id: first for first, producer_id in still_open}

    def apply(
        self, batch: WalkedBatch, marker: EndTransactionMarker | None
    ) -> AbortedTransaction | None:
        """Go over one batch that has a producer id; the transaction that it aborted, if it did."""
        if batch.is_control and marker is None:
            return None
        producer_id = batch.producer_id
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(producer_id, batch.producer_epoch)
        elif producer.producer_epoch != batch.producer_epoch:
            producer.producer_epoch = batch.producer_epoch
            producer.last_sequence, producer.last_offset = NO_SEQUENCE, NO_OFFSET
            producer.offset_delta = 0
        producer.timestamp = batch.max_timestamp
        if marker is not None:
            return self._end_transaction(producer, batch, marker)
        delta = batch.last_offset - batch.base_offset
        producer.last_sequence = (
            increment_sequence(batch.base_sequence, delta)
            if batch.base_sequence != NO_SEQUENCE
            else NO_SEQUENCE
        )
        producer.last_offset, producer.offset_delta = batch.last_offset, delta
        if batch.is_transactional and producer.first_offset < 0:
            producer.first_offset = self._open[producer_id] = batch.base_offset
        return None

    def _end_transaction(
        self, producer: _Producer, batch: WalkedBatch, marker: EndTransactionMarker
    ) -> AbortedTransaction | None:
        producer.coordinator_epoch = marker.coordinator_epoch
        first, producer.first_offset = producer.first_offset, NO_OFFSET
        self._open.pop(producer.producer_id, None)
        if first < 0 or marker.control_type != ControlRecordType.ABORT:
            # Without records here a transaction leaves no trace in the index.
            return None
        stable = next(iter(self._open.values()), batch.last_offset + 1)
        return AbortedTransaction(producer.producer_id, first, batch.last_offset, stable)

    def entries(self) -> list[ProducerSnapshotEntry]:
        """What a snapshot says now."""
        return [
            ProducerSnapshotEntry(
                it.producer_id, it.producer_epoch, it.last_sequence, it.last_offset,
                it.offset_delta, it.timestamp, it.coordinator_epoch, it.first_offset,
            )
            for it in self._producers.values()
        ]  # fmt: skip


def marker_in(buffer: memoryview, position: int) -> EndTransactionMarker | None:
    """The marker in the control batch at `position`; None if compaction took it, or it is of
    another kind, or cannot be read."""
    try:
        record = next(RecordBatch(buffer, position).records(), None)
        return None if record is None else read_marker(record)
    except CorruptDataError:
        return None
