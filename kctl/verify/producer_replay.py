"""ProducerReplay: the producer state that follows from the batches of a log, as in a snapshot.

The log is authoritative: it is replayed from its start, or from a snapshot there, and snapshots and
transaction indexes are compared with the result, or built from it. The broker has a separate state
machine for what it may accept; this one rejects nothing, as everything here is in the log already.

Kafka 2.7: kafka.log.ProducerStateManager (`update`, `completeTxn`), ProducerAppendInfo; KIP-98
"""

from collections.abc import Iterable

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.control import ControlRecordType, EndTransactionMarker, read_marker
from kctl.records.record_batch import NO_SEQUENCE, RecordBatch, increment_sequence
from kctl.storage.producer_snapshot import NO_OFFSET, ProducerSnapshotEntry
from kctl.storage.transaction_index import AbortedTransaction
from kctl.verify.segment_walk import WalkedBatch


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
    # As in snapshots of older brokers: of the last batch that is not a marker, and of the marker.
    data_timestamp: int = -1
    marker_offset: int = NO_OFFSET

    def entry(self) -> ProducerSnapshotEntry:
        """Return the producer's entry of a snapshot."""
        return ProducerSnapshotEntry(
            self.producer_id, self.producer_epoch, self.last_sequence, self.last_offset,
            self.offset_delta, self.timestamp, self.coordinator_epoch, self.first_offset,
        )  # fmt: skip


class ProducerReplay:
    """The producers of one log up to the batch applied last."""

    def __init__(self, entries: Iterable[ProducerSnapshotEntry] = ()) -> None:
        """Begin with `entries`, those of a snapshot at the start."""
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
        """Apply a batch with a producer id; return the transaction that it aborted, if it did."""
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
        producer.data_timestamp, producer.marker_offset = batch.max_timestamp, NO_OFFSET
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
        producer.marker_offset = batch.last_offset
        first, producer.first_offset = producer.first_offset, NO_OFFSET
        self._open.pop(producer.producer_id, None)
        if first < 0 or marker.control_type != ControlRecordType.ABORT:
            # A transaction without records in this partition leaves no trace in the index.
            return None
        stable = next(iter(self._open.values()), batch.last_offset + 1)
        return AbortedTransaction(producer.producer_id, first, batch.last_offset, stable)

    def entries(self) -> list[ProducerSnapshotEntry]:
        """Return the entries of a snapshot taken now."""
        return [it.entry() for it in self._producers.values()]

    def forms(self) -> dict[int, tuple[ProducerSnapshotEntry, ...]]:
        """Return each producer's entry by its id, first as Kafka 2.7 writes it, then as others do.

        Kafka 0.11 and 1.0 treat a marker as the producer's last batch; Kafka 1.1 leaves its
        timestamp out."""
        found = {}
        for it in self._producers.values():
            entry = it.entry()
            forms = [entry, entry._replace(timestamp=it.data_timestamp)]
            if it.marker_offset >= 0:
                forms.append(entry._replace(last_offset=it.marker_offset, offset_delta=0))
            found[it.producer_id] = tuple(forms)
        return found


def marker_in(buffer: memoryview, position: int) -> EndTransactionMarker | None:
    """Return the marker in the control batch at `position`; None if compaction removed it, if it is
    of another kind, or if it cannot be read."""
    try:
        record = next(RecordBatch(buffer, position).records(), None)
        return None if record is None else read_marker(record)
    except CorruptDataError:
        return None
