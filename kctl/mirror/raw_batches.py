"""Copies batches of a source into batches for a target, undecompressed where possible. Pure.

A v2 batch passes through as it is if its offsets are dense: only header fields are stamped again,
and the checksum computed over the same bytes (decision 0117). The others are decoded and built
again, as brokers refuse them from clients: batches with gaps, batches that begin before the
position, batches with the time of the append, which stays the records' time, and formats v0 and v1.

Invariants: a damaged batch raises CorruptDataError and is never given a valid checksum; the records
of a partition keep their order; every record at or after the position that is not aborted is in
exactly one copy; a batch that is built again has at most BUILT_BYTES_MAX bytes or one record, and,
without joining, records of one batch of the source only: so a topic that takes the source's batches
takes the copies.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch, kafka.log.LogValidator
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer
from kctl.records.builder import RecordBatchBuilder
from kctl.records.checksum import crc32c
from kctl.records.memory_records import Batch, batches
from kctl.records.record import Header
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    DELETE_HORIZON_MASK,
    HEADER,
    LOG_APPEND_TIME,
    TRANSACTIONAL_MASK,
    UINT32,
    RecordBatch,
    read_header,
)

# The most bytes of a batch that is built again, before compression, unless it has one record.
BUILT_BYTES_MAX = 900_000
# The most bytes of a record in format v2 beside its key, value and headers; and of a header beside
# its name and value: numbers of variable length.
_RECORD_OVERHEAD = 40
_HEADER_OVERHEAD = 10
# The source offset of records that have none.
NOT_MAPPED = -1


@dataclass(slots=True)
class BatchCopy:
    """A batch for the target, not stamped yet, and the source offsets of its records."""

    data: bytearray
    count: int
    # (first source offset or NOT_MAPPED, number of consecutive offsets), in order.
    pieces: list[tuple[int, int]] = field(default_factory=list)
    # Whether the records were not decoded.
    is_raw: bool = True

    @property
    def size(self) -> int:
        """Return the bytes of the batch."""
        return len(self.data)


@dataclass(slots=True)
class CopiedRange:
    """What was read of a partition: the batches to write, and the position after them."""

    copies: list[BatchCopy]
    next_offset: int
    # The leader epoch of the last batch, -1 if it has none.
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        """Return the bytes of all batches."""
        return sum(copy.size for copy in self.copies)


def copy_batches(
    data: Buffer, position: int, is_skipped: Callable[[Batch], bool], *, joins: bool = True
) -> CopiedRange:
    """Return the copies of the whole batches in `data` from `position` on, without those that
    `is_skipped` selects; with `joins`, neighbours that are built again become one batch. Raise
    CorruptDataError for a damaged one."""
    found = CopiedRange([], position)
    rebuilt = _Rebuilt()
    for batch in batches(data):
        batch.ensure_valid()
        if batch.next_offset <= position:
            is_skipped(batch)
            continue
        if not is_skipped(batch):
            if _passes(batch, position):
                found.copies += rebuilt.take()
                found.copies.append(_raw_copy(batch))
            else:
                found.copies += rebuilt.add(batch, position)
                if not joins:
                    found.copies += rebuilt.take()
        found.next_offset = max(found.next_offset, batch.next_offset)
        if isinstance(batch, RecordBatch):
            found.leader_epoch = max(found.leader_epoch, batch.partition_leader_epoch)
    found.copies += rebuilt.take()
    return found


def is_full(
    builder: RecordBatchBuilder,
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[Header] = (),
    bytes_max: int = BUILT_BYTES_MAX,
) -> bool:
    """Return whether a batch that has records may exceed `bytes_max` with this one, too."""
    size = builder.size + _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    if headers and size <= bytes_max:
        size += sum(len(name.encode()) + len(it or b"") + _HEADER_OVERHEAD for name, it in headers)
    return builder.count > 0 and size > bytes_max


def keyed_batches(records: Iterable[tuple[bytes, bytes]], now_ms: int) -> list[BatchCopy]:
    """Return keys and values as batches, none of which exceeds what a topic takes."""
    built: list[BatchCopy] = []
    builder = RecordBatchBuilder()
    for key, value in records:
        if is_full(builder, key, value):
            built.append(BatchCopy(builder.build(), builder.count))
            builder = RecordBatchBuilder()
        builder.append(timestamp=now_ms, key=key, value=value)
    return [*built, BatchCopy(builder.build(), builder.count)]


def stamp(
    data: bytearray, producer_id: int, producer_epoch: int, sequence: int, *, transactional: bool
) -> None:
    """Make the batch in `data` one of this producer, with the sequence of its first record."""
    header = read_header(data)
    attributes = header.attributes & ~TRANSACTIONAL_MASK
    header = header._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        attributes=attributes | (TRANSACTIONAL_MASK if transactional else 0),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    HEADER.pack_into(data, 0, *header)
    UINT32.pack_into(data, CRC_OFFSET, crc32c(memoryview(data)[ATTRIBUTES_OFFSET:]))


def _passes(batch: Batch, position: int) -> bool:
    return (
        isinstance(batch, RecordBatch)
        and batch.base_offset >= position
        and batch.count == batch.last_offset_delta + 1
        and batch.timestamp_type != LOG_APPEND_TIME
        and not batch.attributes & DELETE_HORIZON_MASK
    )


def _raw_copy(batch: Batch) -> BatchCopy:
    start = batch.position
    data = bytearray(memoryview(batch.buffer)[start : start + batch.size])
    count = batch.next_offset - batch.base_offset
    return BatchCopy(data, count, [(batch.base_offset, count)])


class _Rebuilt:
    """Batches under construction: neighbours with one codec are joined."""

    def __init__(self) -> None:
        self._builder: RecordBatchBuilder | None = None
        self._pieces: list[tuple[int, int]] = []

    def add(self, batch: Batch, position: int) -> Iterator[BatchCopy]:
        """Add the records of `batch` from `position` on; yield the batches that are full."""
        codec = batch.compression_type
        for record in batch.records():
            if record.offset < position:
                continue
            builder = self._builder
            if builder is not None and (
                builder.compression_type != codec
                or is_full(builder, record.key, record.value, record.headers)
            ):
                yield from self.take()
                builder = None
            if builder is None:
                builder = self._builder = RecordBatchBuilder(compression_type=codec)
            builder.append(
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
            if self._pieces and sum(self._pieces[-1]) == record.offset:
                self._pieces[-1] = (self._pieces[-1][0], self._pieces[-1][1] + 1)
            else:
                self._pieces.append((record.offset, 1))

    def take(self) -> Iterator[BatchCopy]:
        """Yield the batch under construction, if there is one."""
        builder, self._builder = self._builder, None
        pieces, self._pieces = self._pieces, []
        if builder is not None:
            yield BatchCopy(builder.build(), builder.count, pieces, is_raw=False)
