"""Removes records from a v2 batch and leaves the others as they are, byte for byte.

A batch that loses records keeps its base offset, last offset, producer, sequences, leader epoch and
codec. The remaining records keep their bytes, including headers and deltas.

The delete horizon (KIP-534) is the time from which a batch's tombstones, or the marker in it, may
be removed. It is stored in the base timestamp, bit 6 of the attributes marks it, and the records'
deltas are relative to it, so readers that do not know of it read the same timestamps.

Kafka 2.7: org.apache.kafka.common.record.MemoryRecords (`filterTo`); KIP-534, KAFKA-5315
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.records.checksum import crc32c
from kctl.records.compression import compress
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    DELETE_HORIZON_MASK,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    UINT32,
    RecordBatch,
)
from kctl.records.varint import read_varint, read_varlong, write_varint


class RecordSpan(NamedTuple):
    """The position of a record in a batch's decompressed records, with the fields that the cleaner
    uses."""

    start: int
    end: int
    # After the timestamp's delta: the bytes from here to `end` stay as they are.
    after_timestamp: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


def record_spans(plain: bytes, count: int) -> Iterator[RecordSpan]:
    """Yield the `count` records of a batch; raise CorruptDataError at an invalid length."""
    position, limit = 0, len(plain)
    for number in range(count):
        start = position
        try:
            size, position = read_varint(plain, position)
            end = position + size
            if size < 0 or end > limit:
                raise CorruptDataError(f"Record {number} of {count} leaves its batch")
            timestamp_delta = plain[position + 1]
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
                after = position + 2
            else:
                timestamp_delta, after = read_varlong(plain, position + 1)
            offset_delta, position = read_varint(plain, after)
            length, position = read_varint(plain, position)
            key = None
            if length >= 0:
                key = plain[position : position + length]
                position += length
            length, position = read_varint(plain, position)
        except IndexError:
            raise CorruptDataError(f"Record {number} of {count} ends after its batch") from None
        if position + max(length, 0) > end:
            raise CorruptDataError(f"Record {number} of {count} has a field too long for it")
        yield RecordSpan(start, end, after, timestamp_delta, offset_delta, key, length < 0)
        position = end
    if position != limit:
        raise CorruptDataError(f"{limit - position} bytes are left after {count} records")


def delete_horizon_ms(batch: RecordBatch) -> int | None:
    """Return the time from which the batch's tombstones or marker may be removed; None if
    undecided."""
    return batch.base_timestamp if batch.attributes & DELETE_HORIZON_MASK else None


def filtered_batch(
    batch: RecordBatch, plain: bytes, kept: Sequence[RecordSpan], horizon_ms: int | None = None
) -> bytearray:
    """Return the batch with only the records `kept` (one or more) of its records `plain`.

    `horizon_ms` becomes the delete horizon, unless the batch has one already.
    """
    base_timestamp = batch.base_timestamp
    attributes = batch.attributes
    if horizon_ms is None or attributes & DELETE_HORIZON_MASK:
        body = b"".join([plain[span.start : span.end] for span in kept])
    else:
        attributes |= DELETE_HORIZON_MASK
        shift = base_timestamp - horizon_ms
        body = b"".join([_shifted(plain, span, shift) for span in kept])
        base_timestamp = horizon_ms
    max_timestamp = batch.max_timestamp
    if batch.timestamp_type != LOG_APPEND_TIME:
        max_timestamp = batch.base_timestamp + max(span.timestamp_delta for span in kept)
    if batch.compression_type:
        body = compress(batch.compression_type, body)
    header = batch.header._replace(
        length=RECORD_BATCH_OVERHEAD - LOG_OVERHEAD + len(body),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return _sealed(HEADER.pack(*header) + body)


def _shifted(plain: bytes, span: RecordSpan, shift: int) -> bytes:
    """Return the record with its timestamp delta shifted."""
    # Its attributes are the byte after its length.
    _, position = read_varint(plain, span.start)
    content = bytearray(plain[position : position + 1])
    write_varint(content, span.timestamp_delta + shift)
    content += plain[span.after_timestamp : span.end]
    record = bytearray()
    write_varint(record, len(content))
    return bytes(record + content)


def placeholder_batch(batch: RecordBatch) -> bytearray:
    """Return a batch that keeps only `batch`'s offsets and epoch, without records or producer, so
    that a segment still ends at the same offset."""
    header = batch.header._replace(
        length=RECORD_BATCH_OVERHEAD - LOG_OVERHEAD,
        attributes=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )
    return _sealed(HEADER.pack(*header))


def _sealed(data: bytes) -> bytearray:
    """Return the batch with its checksum set."""
    batch = bytearray(data)
    UINT32.pack_into(batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return batch
