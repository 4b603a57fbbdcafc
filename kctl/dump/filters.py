"""Filters the records of a log: by offset, time, key, header, producer, transaction, group.

A filter is applied twice: to a batch, by its header alone, so that most are never decompressed;
then to each record. Facts that need the whole log (which transactions were aborted) are computed
before and passed as ranges.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.lazy_dataclass import dataclass
from kctl.records.memory_records import Batch
from kctl.records.record import Record
from kctl.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from kctl.dump.decoders import Decoded

__all__ = ["RecordFilter"]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The records to dump; a field that is None or empty does not restrict them."""

    # The start is inclusive, the end exclusive.
    start_offset: int = 0
    end_offset: int | None = None
    keys: tuple[bytes, ...] = ()
    key_pattern: re.Pattern[bytes] | None = None
    # Names, each with a value or None for any value.
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int | None = None
    producer_id: int | None = None
    only_control: bool = False
    only_aborted: bool = False
    group: str | None = None
    transactional_id: str | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether the filter accepts every record."""
        return self == RecordFilter()

    @property
    def is_only_of_offsets(self) -> bool:
        """Return whether nothing but offsets restricts the records."""
        return replace(self, start_offset=0, end_offset=None).is_empty

    @property
    def looks_into_records(self) -> bool:
        """Return whether the filter needs records, not only batch headers."""
        return bool(
            self.keys or self.key_pattern or self.headers or self.group or self.transactional_id
        )

    def within(self, start_offset: int, end_offset: int) -> "RecordFilter":
        """Return a copy for these offsets only, for following a log; `end_offset` is exclusive."""
        end = end_offset if self.end_offset is None else min(end_offset, self.end_offset)
        return replace(self, start_offset=max(start_offset, self.start_offset), end_offset=end)

    def is_behind(self, batch: Batch) -> bool:
        """Return whether this batch and all later ones are after the range."""
        if self.end_offset is None:
            return False
        first = batch.last_offset if batch.magic < 2 else batch.base_offset
        # A wrapper's first offset is inside: it is after the range only if its predecessor is.
        return first >= self.end_offset and not (batch.magic < 2 and batch.compression_type)

    def wants_batch(self, batch: Batch) -> bool:
        """Return whether the batch may hold a wanted record."""
        if batch.last_offset < self.start_offset or self.is_behind(batch):
            return False
        if self.leader_epoch is not None and batch.partition_leader_epoch != self.leader_epoch:
            return False
        if self.producer_id is not None and batch.producer_id != self.producer_id:
            return False
        return batch.is_control or not self.only_control

    def wants_record(self, record: Record, decoded: "Decoded | None" = None) -> bool:
        """Return whether a record of a wanted batch is wanted."""
        if record.offset < self.start_offset:
            return False
        if self.end_offset is not None and record.offset >= self.end_offset:
            return False
        return (
            self._wants_key(record.key)
            and self._wants_headers(record)
            and self._wants_decoded(decoded)
        )

    def _wants_key(self, key: bytes | None) -> bool:
        if self.keys and key not in self.keys:
            return False
        return self.key_pattern is None or (
            key is not None and self.key_pattern.search(key) is not None
        )

    def _wants_headers(self, record: Record) -> bool:
        for name, value in self.headers:
            if not any(
                name == found and (value is None or value == data) for found, data in record.headers
            ):
                return False
        return True

    def _wants_decoded(self, decoded: "Decoded | None") -> bool:
        if self.group is None and self.transactional_id is None:
            return True
        key = getattr(decoded, "key", None)
        if self.group is not None and getattr(key, "group", None) != self.group:
            return False
        return self.transactional_id is None or (
            getattr(key, "transactional_id", None) == self.transactional_id
        )


def is_aborted(batch: Batch, aborted: Sequence[AbortedTransaction]) -> bool:
    """Return whether the batch belongs to one of these transactions, their markers included."""
    return batch.is_transactional and any(
        it.producer_id == batch.producer_id
        and it.first_offset <= batch.last_offset
        and batch.base_offset <= it.last_offset
        for it in aborted
    )
