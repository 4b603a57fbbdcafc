"""The bulk encoder: columns of keys, values, headers and timestamps become v2 batches.

The inverse of `columnar`: NumPy makes the varints for all records of a table at once, and Arrow
joins them with keys, values and headers, so no record is a Python object. Python code runs once per
batch: for its header, its checksum, its compression.

Invariant: the bytes are those that RecordBatchBuilder makes of the same records.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecord.writeTo, MemoryRecordsBuilder; KIP-98
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from kctl.records.builder import assemble
from kctl.records.columnar_arrow import HEADERS
from kctl.records.compression import NONE, compress
from kctl.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from kctl.records.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

Int64s = NDArray[np.int64]

# The columns of records: timestamps in milliseconds, -1 for none.
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
    ]
)
# Bytes of records per batch, before compression: below the brokers' default limit.
BATCH_BYTES = 256 * 1024
# The most bytes of a record besides its key, value and headers.
_RECORD_OVERHEAD_BYTES = 2 * MAX_VARLONG_BYTES + 4 * MAX_VARINT_BYTES
_EMPTY = pa.scalar(b"", pa.binary())


class EncodedBatch(NamedTuple):
    """A batch, with the facts that a log needs."""

    data: bytearray
    base_offset: int
    record_count: int
    max_timestamp: int


class EncodedRecords(NamedTuple):
    """The records of a batch without its header, not compressed."""

    data: memoryview
    # Its rows: [start, end).
    start: int
    end: int
    first_timestamp: int
    max_timestamp: int


def encode_records(
    rows: pa.RecordBatch, *, batch_bytes: int = BATCH_BYTES
) -> Iterator[EncodedRecords]:
    """Yield the records of `rows` (of SCHEMA), in order, in batches of about `batch_bytes`."""
    if not rows.num_rows:
        return
    headers = _encoded_headers(rows.column("headers"))
    starts = _batch_starts(_sizes(rows, headers), batch_bytes)
    timestamps = rows.column("timestamp").to_numpy(zero_copy_only=False).astype(np.int64)
    records = _encoded_records(rows, headers, timestamps, starts)
    offsets = np.frombuffer(records.buffers()[1], np.int32)[records.offset :]
    body = memoryview(records.buffers()[2])
    ends = np.append(starts[1:], rows.num_rows)
    highest = np.maximum.reduceat(timestamps, starts)
    for start, end, max_timestamp in zip(
        starts.tolist(), ends.tolist(), highest.tolist(), strict=True
    ):
        data = body[offsets[start] : offsets[end]]
        yield EncodedRecords(data, start, end, int(timestamps[start]), max_timestamp)


def encode_batches(
    rows: pa.RecordBatch,
    base_offset: int,
    *,
    compression_type: int = NONE,
    leader_epoch: int = 0,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[EncodedBatch]:
    """Yield the records of `rows` (of SCHEMA), in order, in batches of about `batch_bytes`."""
    for records in encode_records(rows, batch_bytes=batch_bytes):
        plain, start, end = records.data, records.start, records.end
        stored = compress(compression_type, plain) if compression_type else bytes(plain)
        data = assemble(
            stored, base_offset + start, leader_epoch, compression_type, end - start - 1,
            records.first_timestamp, records.max_timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH,
            NO_SEQUENCE, end - start,
        )  # fmt: skip
        yield EncodedBatch(data, base_offset + start, end - start, records.max_timestamp)


def _encoded_records(
    rows: pa.RecordBatch, headers: pa.Array, timestamps: Int64s, starts: Int64s
) -> pa.Array:
    """Return each record's bytes."""
    count = rows.num_rows
    keys, values = rows.column("key"), rows.column("value")
    first = np.repeat(starts, np.diff(np.append(starts, count)))
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    fields = [
        (timestamps - timestamps[first], MAX_VARLONG_BYTES),
        (np.arange(count, dtype=np.int64) - first, MAX_VARINT_BYTES),
        (key_lengths, MAX_VARINT_BYTES),
    ]
    # Attributes, then the fields; then the value's length.
    sizes = 1 + sum(_varint_sizes(field) for field, _ in fields) + _varint_sizes(value_lengths)
    sizes = sizes + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + _lengths(headers)
    attributes = np.zeros((count, 1), np.uint8)
    parts = [_varints(sizes, MAX_VARINT_BYTES), (attributes, np.ones((count, 1), np.bool_))]
    parts += [_varints(field, width) for field, width in fields]
    return pc.binary_join_element_wise(
        _as_binary(parts), keys, _as_binary([_varints(value_lengths, MAX_VARINT_BYTES)]), values,
        headers, _EMPTY, null_handling="replace", null_replacement="",
    )  # fmt: skip


def _encoded_headers(column: pa.Array) -> pa.Array:
    """Return each record's count of headers and the headers."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    heads = _as_binary([_varints(counts.astype(np.int64), MAX_VARINT_BYTES)])
    if not counts.any():
        return heads
    pairs = column.flatten()
    keys = pc.fill_null(pc.struct_field(pairs, "key"), "").cast(pa.binary())
    values = pc.struct_field(pairs, "value")
    encoded = pc.binary_join_element_wise(
        _as_binary([_varints(_lengths(keys), MAX_VARINT_BYTES)]), keys,
        _as_binary([_varints(_lengths(values), MAX_VARINT_BYTES)]), values,
        _EMPTY, null_handling="replace", null_replacement="",
    )  # fmt: skip
    borders = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(borders, encoded), _EMPTY)
    return pc.binary_join_element_wise(heads, joined, _EMPTY)


def _sizes(rows: pa.RecordBatch, headers: pa.Array) -> Int64s:
    lengths = [np.maximum(_lengths(rows.column(name)), 0) for name in ("key", "value")]
    total: Int64s = lengths[0] + lengths[1] + _lengths(headers) + _RECORD_OVERHEAD_BYTES
    return total


def _batch_starts(sizes: Int64s, batch_bytes: int) -> Int64s:
    """Return where batches begin: as many records as fit, at least one."""
    ends = np.cumsum(sizes)
    starts = [0]
    while True:
        before = int(ends[starts[-1] - 1]) if starts[-1] else 0
        next_start = int(np.searchsorted(ends, before + batch_bytes, side="right"))
        next_start = max(next_start, starts[-1] + 1)
        if next_start >= len(sizes):
            return np.array(starts, np.int64)
        starts.append(next_start)


def _lengths(column: pa.Array) -> Int64s:
    """Return the length of each value in bytes; -1 for null."""
    lengths = pc.fill_null(pc.binary_length(column), -1)
    found: Int64s = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _zigzag(values: Int64s) -> NDArray[np.uint64]:
    return (values << 1 ^ values >> 63).view(np.uint64)


def _varint_sizes(values: Int64s) -> Int64s:
    raw = _zigzag(values)
    sizes = np.ones(len(values), np.int64)
    for number in range(1, MAX_VARLONG_BYTES):
        longer = raw >= np.uint64(1 << 7 * number)
        if not longer.any():
            break
        sizes += longer
    return sizes


def _varints(values: Int64s, width: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the varints' bytes, a row each, and a mask of the bytes in use."""
    sizes = _varint_sizes(values)
    width = min(width, int(sizes.max(initial=1)))
    raw = _zigzag(values)
    numbers = np.arange(width)
    digits = (raw[:, None] >> (7 * numbers).astype(np.uint64) & np.uint64(127)).astype(np.uint8)
    digits[numbers < sizes[:, None] - 1] |= 128
    return digits, numbers < sizes[:, None]


def _as_binary(parts: list[tuple[Any, Any]]) -> pa.Array:
    """Return one binary value per row, joined from the bytes in use."""
    digits = np.concatenate([part for part, _ in parts], axis=1)
    wanted = np.concatenate([mask for _, mask in parts], axis=1)
    ends = np.append(0, np.cumsum(wanted.sum(axis=1))).astype(np.int32)
    flat = digits[wanted]
    return pa.Array.from_buffers(
        pa.binary(), len(digits), [None, pa.py_buffer(ends), pa.py_buffer(flat)]
    )
