"""RecordBatch: a view over one v2 batch in a buffer; reads its header, checks and patches it.

A batch is 61 bytes of header and then records, compressed together or not:

    baseOffset int64 | batchLength int32 | partitionLeaderEpoch int32 | magic int8 | crc uint32 |
    attributes int16 | lastOffsetDelta int32 | baseTimestamp int64 | maxTimestamp int64 |
    producerId int64 | producerEpoch int16 | baseSequence int32 | recordCount int32

The layout lets the broker assign offsets and leader epochs to batches that it neither
decodes nor copies. The CRC covers everything from the attributes on, so those two fields precede
it and cost no checksum; only LogAppendTime, which changes the attributes and maxTimestamp,
costs one. baseOffset, batchLength and magic are where v0 and v1 messages have theirs, so one
walk reads a log of mixed formats.

Attributes: bits 0-2 codec, bit 3 LogAppendTime, bit 4 transactional, bit 5 control; bit 6 marks
baseTimestamp as a delete horizon (`batch_filter`).

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch; KIP-98, KIP-101
"""

import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import crc32c
from kctl.records.compression import DEFAULT_DECOMPRESSED_BYTES_MAX, Sliceable, decompress
from kctl.records.record import Record, decode_records

__all__ = ["RecordBatch"]


# Bytes of baseOffset and batchLength, which batchLength does not count.
LOG_OVERHEAD: Final = 12
# Bytes that hold the size and magic of a batch of any format.
HEADER_SIZE_UP_TO_MAGIC: Final = 17
RECORD_BATCH_OVERHEAD: Final = 61
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
BASE_TIMESTAMP_OFFSET: Final = 27
MAX_TIMESTAMP_OFFSET: Final = 35

# The whole header in one call; the fields in BatchHeader's order.
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
# baseOffset and batchLength.
PREFIX: Final = struct.Struct(">qi")
INT64: Final = struct.Struct(">q")
INT32: Final = struct.Struct(">i")
UINT32: Final = struct.Struct(">I")
INT16: Final = struct.Struct(">h")

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
NO_TIMESTAMP_TYPE: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

SEQUENCE_MAX: Final = 2**31 - 1


class BatchHeader(NamedTuple):
    """The stored fields of a header, nothing derived."""

    base_offset: int
    # Bytes after this field.
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


# `BatchHeader._make` without its check of the length, which HEADER guarantees.
_new_header = partial(tuple.__new__, BatchHeader)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`; raise CorruptDataError if there are fewer than 61 bytes."""
    try:
        return _new_header(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptDataError(
            f"Only {len(buffer) - position} bytes at {position}, a batch header needs 61"
        ) from None


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sum; sequences run from 0 to 2^31 - 1 and then restart at 0 (KAFKA-3995)."""
    total = sequence + increment
    return total if total <= SEQUENCE_MAX else total - SEQUENCE_MAX - 1


class RecordBatch:
    """A v2 batch in place: owns no bytes, and sees changes of the buffer only after `reload`.

    The setters need a writable buffer. Every property is cheap, unlike `records()`.
    """

    __slots__ = ("buffer", "header", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.header = read_header(buffer, position)

    def reload(self) -> None:
        """Read the header again after a change of the buffer."""
        self.header = read_header(self.buffer, self.position)

    @property
    def base_offset(self) -> int:
        """Return the base offset, which stays when compaction removes the first record."""
        return self.header.base_offset

    @property
    def size(self) -> int:
        """Return the size of the whole batch in bytes."""
        return LOG_OVERHEAD + self.header.length

    @property
    def partition_leader_epoch(self) -> int:
        """Return the epoch of the leader that appended the batch, or -1."""
        return self.header.partition_leader_epoch

    @property
    def magic(self) -> int:
        """Return the format version, 2."""
        return self.header.magic

    @property
    def crc(self) -> int:
        """Return the checksum as stored."""
        return self.header.crc

    @property
    def attributes(self) -> int:
        """Return the 16 bits of codec and flags."""
        return self.header.attributes

    @property
    def last_offset_delta(self) -> int:
        """Return the last offset minus the base offset."""
        return self.header.last_offset_delta

    @property
    def last_offset(self) -> int:
        """Return the last offset, which stays when compaction removes the last record."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Return the offset after the last record."""
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def base_timestamp(self) -> int:
        """Return the timestamp that the records' timestamps are relative to."""
        return self.header.base_timestamp

    @property
    def max_timestamp(self) -> int:
        """Return the largest of the records' timestamps, or the append time."""
        return self.header.max_timestamp

    @property
    def producer_id(self) -> int:
        """Return the id of an idempotent producer, or -1."""
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        """Return the epoch of an idempotent producer, or -1."""
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        """Return the sequence number of the first record, or -1."""
        return self.header.base_sequence

    @property
    def last_sequence(self) -> int:
        """Return the last record's sequence, which may have wrapped; -1 without sequences."""
        header = self.header
        if header.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(header.base_sequence, header.last_offset_delta)

    @property
    def count(self) -> int:
        """Return the number of records; 0 if compaction emptied the batch."""
        return self.header.record_count

    @property
    def compression_type(self) -> int:
        """Return a CompressionType, or an undefined value from 5 to 7."""
        return self.header.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """Return CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.header.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch belongs to a transaction."""
        return bool(self.header.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Return whether it holds a transaction marker instead of a producer's records."""
        return bool(self.header.attributes & CONTROL_MASK)

    @property
    def has_producer_id(self) -> bool:
        """Return whether an idempotent producer wrote the batch."""
        return self.header.producer_id > NO_PRODUCER_ID

    def body(self) -> memoryview:
        """Return the records' bytes, compressed or not, as they are stored."""
        start = self.position
        return memoryview(self.buffer)[start + RECORD_BATCH_OVERHEAD : start + self.size]

    def sliceable_body(self) -> Sliceable:
        """Return `body`, for readers that read it slice by slice."""
        return self.body()

    def to_bytes(self) -> bytes:
        """Return a copy of the whole batch."""
        return bytes(memoryview(self.buffer)[self.position : self.position + self.size])

    def compute_crc(self) -> int:
        """Return the CRC-32C of the current bytes."""
        start = self.position
        return crc32c(memoryview(self.buffer)[start + ATTRIBUTES_OFFSET : start + self.size])

    def is_crc_valid(self) -> bool:
        """Return whether the batch is whole and its checksum matches."""
        return (
            self.header.length >= RECORD_BATCH_OVERHEAD - LOG_OVERHEAD
            and len(self.buffer) - self.position >= self.size
            and self.compute_crc() == self.header.crc
        )

    def ensure_valid(self) -> None:
        """Raise CorruptDataError, with Kafka's message, unless the batch is whole and its CRC
        matches."""
        if self.size < RECORD_BATCH_OVERHEAD:
            raise CorruptDataError(
                f"Record batch is corrupt (the size {self.size} is smaller than the minimum "
                f"allowed overhead {RECORD_BATCH_OVERHEAD})"
            )
        if not self.is_crc_valid():
            raise CorruptDataError(
                f"Record is corrupt (stored crc = {self.crc}, computed crc = {self.compute_crc()})"
            )

    def set_base_offset(self, base_offset: int) -> None:
        """Set the base offset; the CRC does not cover it."""
        INT64.pack_into(self._writable(), self.position, base_offset)
        self.header = self.header._replace(base_offset=base_offset)

    def set_last_offset(self, last_offset: int) -> None:
        """Set the base offset so that the batch ends at `last_offset`."""
        self.set_base_offset(last_offset - self.header.last_offset_delta)

    def set_partition_leader_epoch(self, leader_epoch: int) -> None:
        """Set the leader epoch; the CRC does not cover it."""
        INT32.pack_into(self._writable(), self.position + LOG_OVERHEAD, leader_epoch)
        self.header = self.header._replace(partition_leader_epoch=leader_epoch)

    def set_max_timestamp(self, timestamp_type: int, max_timestamp: int) -> None:
        """Set timestamp type and largest timestamp, and the CRC. With LOG_APPEND_TIME the timestamp
        applies to all records."""
        if timestamp_type == self.timestamp_type and max_timestamp == self.max_timestamp:
            return
        buffer = self._writable()
        attributes = self.attributes & ~TIMESTAMP_TYPE_MASK
        if timestamp_type == LOG_APPEND_TIME:
            attributes |= TIMESTAMP_TYPE_MASK
        INT16.pack_into(buffer, self.position + ATTRIBUTES_OFFSET, attributes)
        INT64.pack_into(buffer, self.position + MAX_TIMESTAMP_OFFSET, max_timestamp)
        UINT32.pack_into(buffer, self.position + CRC_OFFSET, self.compute_crc())
        self.reload()

    def _writable(self) -> bytearray | memoryview:
        if isinstance(self.buffer, bytes):
            raise TypeError("this batch is in a read-only buffer")
        return self.buffer

    def records(self, limit: int = DEFAULT_DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Return the records, decompressed to at most `limit` bytes.

        Raises CorruptDataError at the first damaged record. The CRC is not checked here.
        """
        header = self.header
        if header.record_count < 0:
            raise CorruptDataError(
                f"Found invalid record count {header.record_count} in magic v2 batch"
            )
        append_timestamp = header.max_timestamp if self.timestamp_type == LOG_APPEND_TIME else None
        return decode_records(
            decompress(self.compression_type, self.body(), limit),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            append_timestamp,
        )
