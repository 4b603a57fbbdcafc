"""Turns stored batches into the older formats that old fetchers understand: v2 to v1 to v0.

Rules, as Kafka has them:
- A batch already in the wanted format or an older one passes through as it is.
- Control batches mean nothing to old consumers and are left out; so are headers.
- zstd has no meaning before v2: such a batch ends the conversion with an error, unless the caller
  is content with what comes before it.
- A batch keeps its codec; offsets and timestamps stay, so v1 wrappers get relative offsets.
- Records below the offset that was asked for are left out of uncompressed batches: there every
  record becomes a message of its own, and a fetch may not answer with earlier ones. A wrapper may
  hold earlier messages, which clients skip.

Kafka 2.7: org.apache.kafka.common.record.RecordsUtil.downConvert, LazyDownConversionRecords;
KIP-98, KIP-110
"""

from dataclasses import dataclass

from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import DEFAULT_DECOMPRESSED_BYTES_MAX, ZSTD
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import Batch, Buffer, batches
from kctl.records.record import Record
from kctl.records.record_batch import LOG_APPEND_TIME, NO_TIMESTAMP

MAGIC_V1 = 1
MAGIC_V2 = 2


@dataclass(slots=True)
class DownConverted:
    """What came out, and how many records had to be rewritten for it."""

    data: bytes
    converted_count: int


def down_convert(
    buffer: Buffer,
    to_magic: int,
    first_offset: int,
    limit: int = DEFAULT_DECOMPRESSED_BYTES_MAX,
    *,
    ends_at_zstd: bool = False,
) -> DownConverted:
    """The whole batches in `buffer` in format `to_magic`, for a fetch from `first_offset`.

    ApiError (UNSUPPORTED_COMPRESSION_TYPE) for zstd, with `ends_at_zstd` only if nothing comes
    before it; CorruptDataError for damaged batches, `limit` as in RecordBatch.records.
    """
    parts: list[bytes | bytearray] = []
    converted_count = 0
    for batch in batches(buffer):
        if to_magic < MAGIC_V2:
            if batch.is_control:
                continue
            if batch.compression_type == ZSTD:
                if parts and ends_at_zstd:
                    break
                raise ApiError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    "Down-conversion of zstandard-compressed batches is not supported",
                )
        if batch.magic <= to_magic:
            parts.append(batch.to_bytes())
            continue
        kept = [
            record
            for record in batch.records(limit)
            if to_magic > MAGIC_V1 or batch.compression_type or record.offset >= first_offset
        ]
        if kept:
            parts.append(_convert(batch, kept, to_magic))
            converted_count += len(kept)
    return DownConverted(b"".join(parts), converted_count)


def _convert(batch: Batch, records: list[Record], to_magic: int) -> bytearray:
    builder = make_builder(
        to_magic,
        base_offset=records[0].offset,
        compression_type=batch.compression_type,
        timestamp_type=batch.timestamp_type,
        append_timestamp=(
            batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else NO_TIMESTAMP
        ),
    )
    for record in records:
        builder.append_record(record)
    return builder.build()


def make_builder(
    magic: int,
    *,
    base_offset: int,
    compression_type: int,
    timestamp_type: int,
    append_timestamp: int = NO_TIMESTAMP,
) -> RecordBatchBuilder | MessageSetBuilder:
    """A builder for format `magic`."""
    if magic >= MAGIC_V2:
        return RecordBatchBuilder(
            base_offset=base_offset,
            compression_type=compression_type,
            timestamp_type=timestamp_type,
            append_timestamp=append_timestamp,
        )
    return MessageSetBuilder(
        magic=magic,
        base_offset=base_offset,
        compression_type=compression_type,
        timestamp_type=timestamp_type,
        append_timestamp=append_timestamp,
    )
