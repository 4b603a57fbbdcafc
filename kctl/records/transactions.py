"""Finds which batches of a partition belong to aborted transactions, and where open ones begin.

A reader of committed records learns which transactions were aborted from the .txnindex of the
segments, or from the broker along with the records. Without either, the markers in the log itself
show it, at the price of a walk over all headers (`TransactionScan`).

A producer has one open transaction at a time in a partition, so (producer id, first offset)
identifies it, and its marker ends it. Where the last offset is known a damaged marker does no harm.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.Fetcher (abortedTransactions),
kafka.log.ProducerStateManager; KIP-98
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kctl.errors import CorruptDataError
from kctl.records.columnar_batches import BatchColumns, Mask
from kctl.records.control import ControlRecordType, control_record_type
from kctl.records.record_batch import RecordBatch

NO_LAST_OFFSET = 2**63 - 1


class AbortedRange(NamedTuple):
    """An aborted transaction in a partition."""

    producer_id: int
    first_offset: int
    # The marker's offset, inclusive; NO_LAST_OFFSET if it is unknown.
    last_offset: int = NO_LAST_OFFSET


class CommittedReader:
    """The `keep` of a reader of committed records: no markers, no aborted records, no records at or
    beyond the last stable offset. It must see the batches of a partition in order."""

    __slots__ = ("_active", "_last_stable_offset", "_pending")

    def __init__(
        self, aborted: Iterable[AbortedRange], last_stable_offset: int | None = None
    ) -> None:
        # Sorted by first offset, the lowest last.
        self._pending = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        # Producer id to the last offset of its aborted transaction.
        self._active: dict[int, int] = {}
        self._last_stable_offset = last_stable_offset

    def __call__(self, batches: BatchColumns, view: memoryview) -> Mask:
        """Return which batches are committed."""
        is_control = batches.is_control
        wanted = ~is_control
        if self._last_stable_offset is not None:
            wanted &= batches.base_offsets < self._last_stable_offset
        if not self._pending and not self._active:
            return wanted
        for index in np.flatnonzero(batches.is_transactional | is_control).tolist():
            producer_id = int(batches.producer_ids[index])
            self._begin(int(batches.last_offsets[index]))
            if is_control[index]:
                if _is_abort(view, int(batches.positions[index])):
                    self._active.pop(producer_id, None)
            elif int(batches.base_offsets[index]) <= self._active.get(producer_id, -1):
                wanted[index] = False
        return wanted

    def _begin(self, offset: int) -> None:
        """Note the aborted transactions that begin up to `offset`."""
        while self._pending and self._pending[-1].first_offset <= offset:
            aborted = self._pending.pop()
            self._active[aborted.producer_id] = aborted.last_offset


class TransactionScan:
    """Finds transactions by their batches and markers: `add` all batches of a log in order."""

    __slots__ = ("_open", "aborted")

    def __init__(self, open_transactions: Iterable[tuple[int, int]] = ()) -> None:
        """Begin with `open_transactions`: (producer id, first offset)."""
        self._open = dict(open_transactions)
        self.aborted: list[AbortedRange] = []

    @property
    def first_unstable_offset(self) -> int | None:
        """Return where the earliest open transaction begins: readers of committed records stop
        there."""
        return min(self._open.values(), default=None)

    def add(self, batches: BatchColumns, view: memoryview) -> None:
        """Add the next batches, which are in `view`."""
        is_control = batches.is_control
        for index in np.flatnonzero(batches.is_transactional | is_control).tolist():
            producer_id = int(batches.producer_ids[index])
            if not is_control[index]:
                self._open.setdefault(producer_id, int(batches.base_offsets[index]))
                continue
            first_offset = self._open.pop(producer_id, None)
            if first_offset is not None and _is_abort(view, int(batches.positions[index])):
                last_offset = int(batches.last_offsets[index])
                self.aborted.append(AbortedRange(producer_id, first_offset, last_offset))


def _is_abort(view: memoryview, position: int) -> bool:
    try:
        marker = next(RecordBatch(view, position).records(), None)
        return marker is not None and control_record_type(marker.key) is ControlRecordType.ABORT
    except CorruptDataError:
        return False
