"""RecordColumns as Arrow columns: one copy of each requested byte, no object per record.

An Arrow binary array over the whole payload, whose offsets are key start, key end, value start,
value end, ..., holds the keys and values and the bytes between them; `take` of every fourth element
gathers the requested ones with one memcpy each.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from kctl.records.arrow_arrays import numbers_array
from kctl.records.columnar_batches import Int64s

TIMESTAMP = pa.timestamp("ms", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# Payloads beyond this need 64-bit offsets while they are gathered.
_INT32_MAX = 2**31 - 1


class Columns(Protocol):
    """The part of `RecordColumns` that becomes Arrow columns."""

    def __len__(self) -> int: ...

    @property
    def payload(self) -> Any: ...
    @property
    def offsets(self) -> Int64s: ...
    @property
    def timestamps(self) -> Int64s: ...
    @property
    def key_starts(self) -> Int64s: ...
    @property
    def key_lengths(self) -> Int64s: ...
    @property
    def value_starts(self) -> Int64s: ...
    @property
    def value_lengths(self) -> Int64s: ...
    @property
    def header_counts(self) -> Int64s: ...
    @property
    def headers(self) -> Any: ...
    @property
    def batch_indexes(self) -> Int64s: ...
    @property
    def batches(self) -> Any: ...


def to_arrow(columns: Columns, names: Sequence[str]) -> pa.RecordBatch:
    """Return the named columns; raise KeyError for an unknown name."""
    fields = _Fields(columns)
    return pa.RecordBatch.from_arrays([_COLUMNS[name](fields) for name in names], list(names))


class _Fields:
    """Intermediate arrays that several columns of the same records share."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._pieces: Any = None

    def key(self) -> pa.Array:
        return _gathered(self._both(), 0, self.columns.key_lengths)

    def value(self) -> pa.Array:
        return _gathered(self._both(), 2, self.columns.value_lengths)

    def _both(self) -> pa.Array:
        if self._pieces is None:
            columns = self.columns
            self._pieces = _pieces(
                columns.payload, columns.key_starts, columns.key_lengths,
                columns.value_starts, columns.value_lengths,
            )  # fmt: skip
        return self._pieces

    def headers(self) -> pa.Array:
        """Return the headers; null where a record has none, as in Spark's Kafka source."""
        columns = self.columns
        found = columns.headers
        pieces = _pieces(
            columns.payload, found.key_starts, found.key_lengths, found.value_starts,
            found.value_lengths,
        )  # fmt: skip
        pairs = pa.StructArray.from_arrays(
            [_text(_gathered(pieces, 0, found.key_lengths)),
             _gathered(pieces, 2, found.value_lengths)],
            fields=list(HEADERS.value_type),
        )  # fmt: skip
        offsets = np.zeros(len(columns) + 1, np.int32)
        np.cumsum(columns.header_counts, out=offsets[1:])
        present = np.packbits(columns.header_counts != 0, bitorder="little")
        return pa.ListArray.from_buffers(
            HEADERS, len(columns), [pa.py_buffer(present), pa.py_buffer(offsets)], children=[pairs]
        )

    def offset(self) -> pa.Array:
        return numbers_array(self.columns.offsets)

    def timestamp(self) -> pa.Array:
        return numbers_array(self.columns.timestamps).view(TIMESTAMP)

    def timestamp_type(self) -> pa.Array:
        return self._of_batch(self.columns.batches.timestamp_types, np.int32)

    def leader_epoch(self) -> pa.Array:
        return self._of_batch(self.columns.batches.leader_epochs, np.int32)

    def producer_id(self) -> pa.Array:
        return self._of_batch(self.columns.batches.producer_ids, np.int64)

    def producer_epoch(self) -> pa.Array:
        return self._of_batch(self.columns.batches.producer_epochs, np.int16)

    def position(self) -> pa.Array:
        return self._of_batch(self.columns.batches.positions, np.int64)

    def _of_batch(self, values: Int64s, kind: Any) -> pa.Array:
        return numbers_array(values.astype(kind)[self.columns.batch_indexes])


_COLUMNS: dict[str, Callable[[_Fields], Any]] = {
    "key": _Fields.key,
    "value": _Fields.value,
    "headers": _Fields.headers,
    "offset": _Fields.offset,
    "timestamp": _Fields.timestamp,
    "timestampType": _Fields.timestamp_type,
    "leaderEpoch": _Fields.leader_epoch,
    "producerId": _Fields.producer_id,
    "producerEpoch": _Fields.producer_epoch,
    "position": _Fields.position,
}
COLUMN_NAMES = tuple(_COLUMNS)


def _pieces(
    payload: bytes | memoryview, key_starts: Int64s, key_lengths: Int64s, value_starts: Int64s,
    value_lengths: Int64s,
) -> pa.Array:  # fmt: skip
    """Return key, gap, value, gap, ... of all records as an array over the payload."""
    count = len(key_starts)
    is_small = len(payload) <= _INT32_MAX
    offsets = np.empty(4 * count + 1, np.int32 if is_small else np.int64)
    offsets[0:-1:4] = key_starts
    offsets[1::4] = key_starts + np.maximum(key_lengths, 0)
    offsets[2::4] = value_starts
    offsets[3::4] = value_starts + np.maximum(value_lengths, 0)
    offsets[-1] = offsets[-2] if count else 0
    kind = pa.binary() if is_small else pa.large_binary()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    return pa.Array.from_buffers(kind, 4 * count, buffers)


def _gathered(pieces: pa.Array, first: int, lengths: Int64s) -> pa.Array:
    """Return every fourth piece from `first` on, null where the length is negative."""
    which = np.arange(first, len(pieces), 4, dtype=np.int32)
    indexes = numbers_array(which, is_null=lengths < 0)
    taken = pieces.take(indexes)
    return taken if taken.type == pa.binary() else taken.cast(pa.binary())


def _text(names: pa.Array) -> pa.Array:
    """Return header names as text; bytes that are not UTF-8 are replaced, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()])
