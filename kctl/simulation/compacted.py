"""Compacted: what the log cleaner may remove of a compacted partition.

A replica may lack a record once a later committed record has the same key, or if its transaction
was aborted. A record of a transaction replaces others once it is committed. The latest record of
each key and the markers of transactions stay: no simulation lasts as long as `delete.retention.ms`.
Whatever a replica has must be what was committed at that offset.

Kafka 2.7: kafka.log.Cleaner, KIP-98.
"""

from collections.abc import Iterable
from dataclasses import field

from kctl.lazy_dataclass import dataclass
from kctl.records.control import read_marker
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch


@dataclass(slots=True)
class CompactedRecords:
    """The committed records of a partition whose log is cleaned."""

    # By offset, markers included.
    _records: dict[int, Record] = field(default_factory=dict)
    # Key -> the offset of its last record that counts.
    _latest: dict[bytes | None, int] = field(default_factory=dict)
    # Producer id -> the offsets of its open transaction.
    _open: dict[int, list[int]] = field(default_factory=dict)
    # Offsets that stay: of markers; and that may go: of aborted transactions.
    _markers: set[int] = field(default_factory=set)
    _aborted: set[int] = field(default_factory=set)

    def note(self, batch: RecordBatch) -> None:
        """Note a committed batch, in the order of offsets."""
        for record in batch.records():
            self._records[record.offset] = record
            if batch.is_control:
                self._markers.add(record.offset)
                self._end_transaction(batch.producer_id, is_commit=read_marker(record).is_commit)
            elif batch.is_transactional:
                self._open.setdefault(batch.producer_id, []).append(record.offset)
            else:
                self._latest[record.key] = record.offset

    def _end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        offsets = self._open.pop(producer_id, [])
        if not is_commit:
            self._aborted.update(offsets)
            return
        for offset in offsets:
            key = self._records[offset].key
            self._latest[key] = max(offset, self._latest.get(key, -1))

    def difference(
        self, found: Iterable[RecordBatch], start_offset: int, end_offset: int
    ) -> str | None:
        """Return how the batches of a replica in a range differ from what the cleaner may leave of
        the committed ones; None if they do not."""
        kept = {record.offset: record for batch in found for record in batch.records()}
        for offset, record in kept.items():
            if record != self._records.get(offset):
                return f"has {record} where {self._records.get(offset)} is committed"
        for offset, record in self._records.items():
            is_missing = start_offset <= offset < end_offset and offset not in kept
            if is_missing and not self._may_go(offset, record.key):
                return f"does not have {record}, which is committed and was not replaced"
        return None

    def _may_go(self, offset: int, key: bytes | None) -> bool:
        if offset in self._aborted:
            return True
        return offset not in self._markers and self._latest.get(key, -1) > offset
