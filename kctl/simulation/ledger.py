"""Ledger: what was committed in a partition, batch by batch, whatever happens to its brokers.

It only grows, with one exception. An unclean election decides what is committed from then on: the
ledger restarts with what the new leader has up to its high watermark, as soon as it leads. What was
committed before and is gone, and what leaders of older epochs commit that do not know of the
election, is remembered as *lost*: producers received acknowledgements for it, and readers read it.

Replicas equal the ledger batch by batch. Those of a compacted topic may have been cleaned, each at
another time: they are compared record by record where their batches differ (`compacted.py`).

Kafka 2.7: the high watermark of KIP-101; unclean.leader.election.enable.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from kctl.broker.log.fetch_data import FetchIsolation
from kctl.broker.log.unified_log import UnifiedLog
from kctl.lazy_dataclass import dataclass
from kctl.records.record_batch import RECORD_BATCH_OVERHEAD, RecordBatch
from kctl.simulation.compacted import CompactedRecords

READ_BYTES_MAX = 1 << 24
Key = tuple[str, int]


class CommittedBatch(NamedTuple):
    """The identity of a batch: batches with equal identities are equal byte for byte."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    def __str__(self) -> str:
        return (
            f"[{self.base_offset}..{self.last_offset} epoch {self.leader_epoch}"
            f" crc {self.crc:08x} producer {self.producer_id}/{self.base_sequence}]"
        )


@dataclass(slots=True)
class Ledger:
    """The committed batches of one partition."""

    batches: list[CommittedBatch] = field(default_factory=list)
    end_offset: int = 0
    # The highest of any leader; with flush.messages=1 it may be inside a batch.
    high_watermark: int = 0
    # (producer id, epoch) -> its last batch.
    last_batches: dict[tuple[int, int], CommittedBatch] = field(default_factory=dict)
    # The highest log start offset of any replica: earlier records may be gone.
    log_start_offset: int = 0
    # A producer's first batch may have any sequence number: those before it were lost, or belonged
    # to a deleted topic of this name.
    takes_any_first_sequence: bool = False
    # Brokers that were seen with a replica.
    holders: set[int] = field(default_factory=set)
    # A leader of an older epoch does not know of the last unclean election.
    first_epoch: int = 0
    # The uncleanly elected replica has not led yet.
    is_open: bool = False
    # Where the ledger begins since then.
    start_offset: int = 0
    # Batches that were committed and are gone.
    lost: set[CommittedBatch] = field(default_factory=set)
    # Of a topic whose log is cleaned.
    compacted: CompactedRecords | None = None

    @property
    def was_elected_uncleanly(self) -> bool:
        """Return whether records may have been lost in an unclean election."""
        return self.first_epoch > 0

    def between(self, start_offset: int, end_offset: int) -> list[CommittedBatch]:
        """Return the batches that are entirely in a range."""
        low = bisect_left(self.batches, start_offset, key=lambda it: it.base_offset)
        high = bisect_left(self.batches, end_offset, key=lambda it: it.last_offset)
        return self.batches[low:high]

    def at(self, offset: int) -> list[CommittedBatch]:
        """Return the batch that begins at an offset, if there is one."""
        index = bisect_left(self.batches, offset, key=lambda it: it.base_offset)
        found = self.batches[index : index + 1]
        return found if found and found[0].base_offset == offset else []

    def is_inside_a_batch(self, offset: int) -> bool:
        """Return whether a batch begins before `offset` and ends after it."""
        index = bisect_left(self.batches, offset, key=lambda it: it.last_offset)
        return index < len(self.batches) and self.batches[index].base_offset < offset

    def append(self, log: UnifiedLog, batch: CommittedBatch) -> None:
        """Note the next batch that `log` commits."""
        self.batches.append(batch)
        self.end_offset = batch.last_offset + 1
        if self.compacted is not None:
            for stored in stored_between(log, batch.base_offset, self.end_offset):
                self.compacted.note(stored)

    def difference(
        self, log: UnifiedLog, found: list[CommittedBatch], start_offset: int, end_offset: int
    ) -> str | None:
        """Return how `found`, what a replica's log has in a range, differs from what is committed
        there; None if it does not."""
        expected = self.between(start_offset, end_offset)
        if found == expected:
            return None
        if self.compacted is not None:
            stored = stored_between(log, start_offset, end_offset)
            return self.compacted.difference(stored, start_offset, end_offset)
        for ours, committed in zip(found, expected, strict=False):
            if ours != committed:
                return f"has {ours} where {committed} is committed"
        if len(found) < len(expected):
            return f"does not have {expected[len(found)]}, which is committed"
        return f"has {found[len(expected)]}, which is not committed"

    def elected_uncleanly(self, leader_epoch: int) -> None:
        """Note an unclean election: from this epoch on the new leader's log decides."""
        self.first_epoch = leader_epoch
        self.is_open = True
        self.takes_any_first_sequence = True

    def restart(self, log: UnifiedLog) -> None:
        """Restart with the log of the uncleanly elected leader."""
        found = batches_between(log, log.log_start_offset, log.high_watermark)
        self.lost.update(self.batches)
        self.batches = found
        self.start_offset = log.log_start_offset
        self.end_offset = found[-1].last_offset + 1 if found else log.log_start_offset
        self.high_watermark = log.high_watermark
        self.is_open = False
        # Topics that are compacted are not elected uncleanly.
        assert self.compacted is None
        self.last_batches = {
            (it.producer_id, it.producer_epoch): it for it in found if it.base_sequence >= 0
        }

    def expected_sequence(self, batch: CommittedBatch) -> int:
        """Return the sequence number that the batch must have."""
        last = self.last_batches.get((batch.producer_id, batch.producer_epoch))
        if last is None:
            return batch.base_sequence if self.takes_any_first_sequence else 0
        if last.last_offset < self.log_start_offset:
            # Removed by retention. A replica may know the producer from a snapshot that it kept;
            # without one, a batch that the producer sends again is new to it.
            return batch.base_sequence
        return last.base_sequence + last.last_offset - last.base_offset + 1


def batches_between(log: UnifiedLog, start_offset: int, end_offset: int) -> list[CommittedBatch]:
    """Return the batches of a log from `start_offset` up to `end_offset`."""
    return list(map(_identity, stored_between(log, start_offset, end_offset)))


def identities(data: bytes, end_offset: int) -> list[CommittedBatch]:
    """Return the identities of the batches in `data` that are whole and end before `end_offset`."""
    return list(map(_identity, _whole_batches(data, end_offset)))


def stored_between(log: UnifiedLog, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
    """Yield the batches of a log from `start_offset` up to `end_offset`."""
    while start_offset < end_offset:
        # A read ends at the end of its segment.
        found = log.read(start_offset, READ_BYTES_MAX, isolation=FetchIsolation.LOG_END).records
        data = found.file.pread(found.length, found.position) if found is not None else b""
        before_offset = start_offset
        for batch in _whole_batches(data, end_offset):
            start_offset = batch.last_offset + 1
            yield batch
        if start_offset == before_offset:
            break


def _whole_batches(data: bytes, end_offset: int) -> Iterator[RecordBatch]:
    position = 0
    while len(data) - position >= RECORD_BATCH_OVERHEAD:
        batch = RecordBatch(data, position)
        if batch.last_offset >= end_offset or position + batch.size > len(data):
            break
        yield batch
        position += batch.size


def _identity(batch: RecordBatch) -> CommittedBatch:
    return CommittedBatch(
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.crc,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )
