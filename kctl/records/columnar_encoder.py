"""The bulk encoder: columns of keys, values, headers and timestamps become v2 batches.

The inverse of `columnar`: NumPy makes the varints for all records of a table at once, and Arrow
joins them with keys, values and headers, so no record is a Python object. Python code runs once per
batch: for its header, its checksum, its compression.

Invariant: the bytes are those that RecordBatchBuilder makes of the same records.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecord.writeTo, MemoryRecordsBuilder; KIP-98
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
    value_sizes = _varints(value_lengths)
    # Attributes, then the fields; then the value's length.
    fields = [
        _varints(np.zeros(count, np.int64)), _varints(timestamps - timestamps[first]),
        _varints(np.arange(count, dtype=np.int64) - first), _varints(key_lengths),
    ]  # fmt: skip
    sizes = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + _lengths(headers)
    for field in (*fields, value_sizes):
        sizes += field.sizes
    return pc.binary_join_element_wise(
        _as_binary([_varints(sizes), *fields]), keys, _as_binary([value_sizes]), values, headers,
        _EMPTY, null_handling="replace", null_replacement="",
    )  # fmt: skip


def _encoded_headers(column: pa.Array) -> pa.Array:
    """Return each record's count of headers and the headers."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    heads = _as_binary([_varints(counts.astype(np.int64))])
    if not counts.any():
        return heads
    pairs = column.flatten()
    keys = pc.fill_null(pc.struct_field(pairs, "key"), "").cast(pa.binary())
    values = pc.struct_field(pairs, "value")
    encoded = pc.binary_join_element_wise(
        _as_binary([_varints(_lengths(keys))]), keys,
        _as_binary([_varints(_lengths(values))]), values,
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
    if len(column) and not column.null_count:
        ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
        return np.diff(ends).astype(np.int64)
    lengths = pc.fill_null(pc.binary_length(column), -1)
    found: Int64s = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


class _Varints(NamedTuple):
    """Numbers that are encoded as varints: zigzag values, and the bytes that each takes."""

    raw: NDArray[np.uint64]
    sizes: NDArray[np.uint8]


def _varints(values: Int64s) -> _Varints:
    raw = (values << 1 ^ values >> 63).view(np.uint64)
    sizes = np.ones(len(raw), np.uint8)
    largest = int(raw.max(initial=0))
    for number in range(1, MAX_VARLONG_BYTES):
        if largest < 1 << 7 * number:
            break
        sizes += raw >= np.uint64(1 << 7 * number)
    return _Varints(raw, sizes)


def _as_binary(fields: Sequence[_Varints]) -> pa.Array:
    """Return one binary value per row: its varints, one after the other."""
    count = len(fields[0].raw)
    widths = [int(field.sizes.max(initial=1)) for field in fields]
    # A row for each byte that any value has; bytes that a value lacks are left out at the end.
    digits = np.empty((sum(widths), count), np.uint8)
    is_used = np.ones((sum(widths), count), np.bool_)
    row = 0
    total = np.zeros(count, np.int64)
    for (raw, sizes), width in zip(fields, widths, strict=True):
        total += sizes
        for number in range(width):
            digits[row] = raw >> np.uint64(7 * number) & np.uint64(127)
            if number:
                np.greater(sizes, number, out=is_used[row])
            if number + 1 < width:
                digits[row] |= (sizes > number + 1).view(np.uint8) << 7
            row += 1
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(total, out=ends[1:])
    flat = np.ascontiguousarray(digits.T)
    flat = flat.ravel() if int(ends[-1]) == flat.size else flat[is_used.T]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(flat)])
