"""Compares two replicas of a partition, batch by batch, up to where they first differ.

Replicas hold the same batches, byte for byte. They diverge only where a leader was cut off from its
followers, and then at the first batch of an epoch. So offsets, epoch and checksum of each batch
suffice: the checksum covers the records. One log may begin later (retention) or end earlier (it
lags); that is no difference. Each replica is compacted independently, so replicas of a compacted
log differ where only one of them has been cleaned yet.

Kafka 2.7: kafka.tools.ReplicaVerificationTool; KIP-101
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kctl.counts import counted
from kctl.lazy_dataclass import dataclass
from kctl.records.checksum import crc32
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import LOG_SUFFIX, file_name
from kctl.storage.segment_files import segment_base_offsets
from kctl.storage.segments07 import FileEntry07, Segment07, segments_in
from kctl.storage.walk07 import walk_all
from kctl.verify.segment_walk import WalkedBatch, valid_batches


class ReplicaBatch(NamedTuple):
    """A batch of one replica."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    # The file, or the broker that sent the batch.
    path: str
    position: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two replicas."""

    batches: int
    # The offsets up to which both agree; None: they have none in common.
    agreed_end: int | None
    # The first two that differ; either is None if that side has no batch at that offset.
    first: ReplicaBatch | None = None
    second: ReplicaBatch | None = None

    @property
    def is_divergent(self) -> bool:
        return self.first is not None or self.second is not None

    @property
    def agreement(self) -> str:
        """Return how many batches agree, in words."""
        return f"{counted(self.batches, 'batch')} {'agrees' if self.batches == 1 else 'agree'}"

    def __str__(self) -> str:
        """Describe the difference."""
        if not self.is_divergent:
            return self.agreement
        return f"{_describe(self.first)} here, {_describe(self.second)} there"


def log_batches(disk: Disk, directory: str) -> Iterator[ReplicaBatch]:
    """Yield the batches of a partition's directory that can be read; of Kafka 0.7 its entries."""
    for segment in segments_in(disk, directory):
        yield from _old_entries(disk, segment)
    for base in segment_base_offsets(disk, directory):
        records = FileRecords.open(disk, f"{directory}/{file_name(base, LOG_SUFFIX)}")
        try:
            for batch in valid_batches(records, base):
                yield replica_batch(batch, records.path)
        finally:
            records.close()


def _old_entries(disk: Disk, segment: Segment07) -> Iterator[ReplicaBatch]:
    """Yield the intact entries of a segment; the checksum here is that of all their bytes."""
    file = disk.open(segment.path, read_only=True)
    try:
        for it in walk_all(file):
            if isinstance(it, FileEntry07):
                start = segment.base_offset + it.position
                crc = crc32(file.pread(it.size, it.position))
                yield ReplicaBatch(start, start + it.size - 1, -1, crc, segment.path, it.position)
    finally:
        file.close()


def replica_batch(batch: WalkedBatch, path: str) -> ReplicaBatch:
    """Return the compared fields of a batch, and its position."""
    return ReplicaBatch(
        batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc, path, batch.position
    )


def compare_batches(first: Iterable[ReplicaBatch], second: Iterable[ReplicaBatch]) -> Comparison:
    """Compare in step, from the later of the two starts to the earlier of the two ends."""
    mine, theirs = iter(first), iter(second)
    a, b = next(mine, None), next(theirs, None)
    while a is not None and b is not None and a.last_offset < b.base_offset:
        a = next(mine, None)
    while a is not None and b is not None and b.last_offset < a.base_offset:
        b = next(theirs, None)
    batches, agreed_end = 0, None
    while a is not None and b is not None:
        if a[:4] != b[:4]:
            return Comparison(batches, agreed_end, *_difference(a, b))
        batches += 1
        agreed_end = a.last_offset + 1
        a, b = next(mine, None), next(theirs, None)
    return Comparison(batches, agreed_end)


def _difference(
    a: ReplicaBatch, b: ReplicaBatch
) -> tuple[ReplicaBatch | None, ReplicaBatch | None]:  # fmt: skip
    """Return both batches, or the one that the other side lacks."""
    if a.last_offset < b.base_offset:
        return a, None
    if b.last_offset < a.base_offset:
        return None, b
    return a, b


def _describe(batch: ReplicaBatch | None) -> str:
    if batch is None:
        return "nothing"
    return (
        f"offsets {batch.base_offset} to {batch.last_offset} of leader epoch "
        f"{batch.leader_epoch} (checksum {batch.crc}, {batch.path}, position {batch.position})"
    )
