"""RecordBatchBuilder: builds one v2 batch from records.

Records are encoded as they are appended and compressed together at the end, so a builder holds the
uncompressed records. `legacy_builder` does the same for v0 and v1.

Kafka 2.7: org.apache.kafka.common.record.MemoryRecordsBuilder
"""

from collections.abc import Iterable, Sequence

from kctl.records.checksum import crc32c
from kctl.records.compression import NONE, compress
from kctl.records.compression_stream import StreamCompressor
from kctl.records.plain_records import encode_pairs, encode_values
from kctl.records.record import Header, Record, encode_record
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    CONTROL_MASK,
    CRC_OFFSET,
    CREATE_TIME,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    UINT32,
    RecordBatch,
)
from kctl.work import Work, at_once

__all__ = ["RecordBatchBuilder", "build_batch"]


class RecordBatchBuilder:
    """A v2 batch under construction; call `build` after all records are appended.

    Offsets count up from `base_offset` unless `append` is given one, which must be above the last.
    With LOG_APPEND_TIME `append_timestamp` is every record's timestamp; the producer's timestamps
    stay in the records' bytes, unread.
    """

    magic = 2

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression_type: int = NONE,
        timestamp_type: int = CREATE_TIME,
        append_timestamp: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    ) -> None:
        self.base_offset = base_offset
        self.compression_type = compression_type
        self.partition_leader_epoch = partition_leader_epoch
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.append_timestamp = append_timestamp
        self.attributes = compression_type
        self.attributes |= TIMESTAMP_TYPE_MASK if timestamp_type == LOG_APPEND_TIME else 0
        self.attributes |= TRANSACTIONAL_MASK if is_transactional else 0
        self.attributes |= CONTROL_MASK if is_control else 0
        self.count = 0
        self.max_timestamp = NO_TIMESTAMP
        # The record with the largest timestamp; -1 while no record has a timestamp.
        self.offset_of_max_timestamp = -1
        self._base_timestamp = NO_TIMESTAMP
        self._next_offset = base_offset
        self._body = bytearray()
        self._packer: StreamCompressor | None = None
        self._forgotten_bytes = 0

    @property
    def next_offset(self) -> int:
        """Return the offset of the next record, unless `append` is given another."""
        return self._next_offset

    @property
    def last_offset(self) -> int:
        """Return the offset of the last appended record."""
        return self._next_offset - 1

    @property
    def size(self) -> int:
        """Return the size of the batch without compression, in bytes."""
        return RECORD_BATCH_OVERHEAD + len(self._body)

    def append(
        self,
        *,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] = (),
        offset: int | None = None,
    ) -> int:
        """Add one record and return its offset."""
        if offset is None:
            offset = self._next_offset
        elif offset < self._next_offset:
            raise ValueError(f"offset {offset} is below the next one, {self._next_offset}")
        if not self.count:
            self._base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = offset
        encode_record(
            self._body,
            offset - self.base_offset,
            timestamp - self._base_timestamp,
            key,
            value,
            headers,
        )
        self.count += 1
        self._next_offset = offset + 1
        return offset

    def append_encoded(self, records: memoryview, count: int, timestamp: int) -> None:
        """Make `count` records of one timestamp, encoded for an empty batch, the whole batch."""
        if self.count:
            raise ValueError("encoded records are the only ones of their batch")
        self._extend(timestamp, count)
        self._body += records

    def append_values(self, timestamp: int, values: Sequence[bytes | None]) -> None:
        """Add records without keys and headers, which have one timestamp."""
        if values:
            first, delta = self._extend(timestamp, len(values))
            self._body += encode_values(values, first, delta)

    def append_pairs(
        self, timestamp: int, pairs: Sequence[tuple[bytes | None, bytes | None]]
    ) -> None:
        """Add records of (key, value) without headers, which have one timestamp."""
        if pairs:
            first, delta = self._extend(timestamp, len(pairs))
            self._body += encode_pairs(pairs, first, delta)

    def _extend(self, timestamp: int, count: int) -> tuple[int, int]:
        """Account for `count` records; return the deltas of the first one's offset and of time."""
        if not self.count:
            self._base_timestamp = timestamp
        first = self._next_offset
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = first
        self.count += count
        self._next_offset += count
        return first - self.base_offset, timestamp - self._base_timestamp

    def append_record(self, record: Record) -> int:
        """Add a record at its own offset."""
        return self.append(
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
            offset=record.offset,
        )

    def compress_more(self) -> None:
        """Compress the records added since the last call, to free their uncompressed bytes."""
        at_once(self.compressing())

    def compressing(self) -> Work[None]:
        """Do the same in steps of bounded work, with a `yield` between them."""
        if self._packer is None:
            self._packer = StreamCompressor(self.compression_type)
        yield from self._packer.writing(self._body)

    @property
    def built_size(self) -> int:
        """Return the size of the batch so far in bytes; with compression, of what is compressed
        already."""
        size = (
            len(self._body) + self._forgotten_bytes if self._packer is None else self._packer.size
        )
        return RECORD_BATCH_OVERHEAD + size

    def forget(self) -> None:
        """Drop what has been built, which is too large; `built_size` continues to count."""
        if self._packer is not None:
            self._packer.forget()
        else:
            self._forgotten_bytes += len(self._body)
            self._body.clear()

    def build(self) -> bytearray:
        """Return the batch in a new buffer that may be patched."""
        if not self.count:
            raise ValueError("a batch needs a record; see empty_batch")
        is_append_time = self.attributes & TIMESTAMP_TYPE_MASK
        if self._packer is not None:
            self.compress_more()
            body: bytes | bytearray = self._packer.finish()
        else:
            body = self._body
            if self.compression_type:
                body = compress(self.compression_type, body)
        return assemble(
            body,
            self.base_offset,
            self.partition_leader_epoch,
            self.attributes,
            self.last_offset - self.base_offset,
            self._base_timestamp,
            self.append_timestamp if is_append_time else self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )


def build_batch(
    records: Iterable[Record],
    *,
    compression_type: int = NONE,
    timestamp_type: int = CREATE_TIME,
    append_timestamp: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return the records, at their own offsets, as one batch."""
    builder: RecordBatchBuilder | None = None
    for record in records:
        if builder is None:
            builder = RecordBatchBuilder(
                base_offset=record.offset,
                compression_type=compression_type,
                timestamp_type=timestamp_type,
                append_timestamp=append_timestamp,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
                partition_leader_epoch=partition_leader_epoch,
            )
        builder.append_record(record)
    if builder is None:
        raise ValueError("a batch needs a record; see empty_batch")
    return builder.build()


def empty_batch(batch: RecordBatch) -> bytearray:
    """Return a batch without records that keeps `batch`'s offsets, producer and sequences.
    Compaction leaves it so that duplicates stay recognizable (KAFKA-5315)."""
    is_append_time = batch.attributes & TIMESTAMP_TYPE_MASK
    attributes = batch.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK) | is_append_time
    return assemble(
        b"",
        batch.base_offset,
        batch.partition_leader_epoch,
        attributes,
        batch.last_offset_delta,
        NO_TIMESTAMP,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        0,
    )


def assemble(
    body: bytes | bytearray,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytearray:
    """Return a v2 batch: its header and checksum before `body`, the records as they are stored."""
    batch = bytearray(RECORD_BATCH_OVERHEAD)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(body),
        partition_leader_epoch,
        2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch += body
    UINT32.pack_into(batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return batch
