"""Records: decoded records as offsets and identities, the form in which a proof compares them.

The identity of a record is (timestamp, key, value, headers). Two lists of identities are compared
at the speed of C, and an identity can be looked up in a dictionary.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.raw import Batches
from kctl.records.columnar import RecordColumns, decode_chunks
from kctl.records.columnar_batches import BatchColumns, BatchDamage, Int64s, Mask

# (timestamp, key, value, headers); headers are pairs of bytes.
Identity = tuple[int, bytes | None, bytes | None, tuple[Any, ...]]

FIELDS = ("timestamp", "key", "value", "headers")


@dataclass(slots=True)
class Records:
    """Consecutive records; `offsets` and `identities` have the same length."""

    offsets: Int64s
    identities: list[Identity]

    @classmethod
    def none(cls) -> "Records":
        """Return no records."""
        return cls(np.zeros(0, np.int64), [])

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.identities)

    def drop(self, count: int) -> "Records":
        """Return the records after the first `count`."""
        return Records(self.offsets[count:], self.identities[count:])

    def plus(self, more: "Records") -> "Records":
        """Return these records and `more` after them."""
        if not len(self):
            return more
        offsets = np.concatenate((self.offsets, more.offsets))
        return Records(offsets, self.identities + more.identities)


# What a proof compares of decoded records.
RecordView = Callable[[Records], Records]


def decode(
    batches: Batches,
    first: int,
    end: int,
    *,
    ignores_timestamps: bool,
    view: RecordView | None = None,
) -> tuple[Records, list[BatchDamage]]:
    """Return the records of `batches` with offsets in [first, end), as `view` shows them, and what
    cannot be decoded."""
    columns = batches.columns
    if not len(columns):
        return Records.none(), []
    start = int(columns.positions[0])
    stored = batches.view[start : int(columns.ends[-1])]
    wanted = columns.positions - start

    def keep(found: BatchColumns, _view: memoryview) -> Mask:
        return np.isin(found.positions, wanted)

    records, damages = Records.none(), []
    for chunk in decode_chunks(stored, keep=keep, check_crc=False):
        damages += chunk.damages
        if len(chunk):
            is_wanted = (chunk.offsets >= first) & (chunk.offsets < end)
            records = records.plus(_records(chunk.take(is_wanted), ignores_timestamps))
    return records if view is None else view(records), damages


def _records(columns: RecordColumns, ignores_timestamps: bool) -> Records:
    count = len(columns)
    payload = bytes(columns.payload)
    keys = _slices(payload, columns.key_starts, columns.key_lengths)
    values = _slices(payload, columns.value_starts, columns.value_lengths)
    times = [0] * count if ignores_timestamps else columns.timestamps.tolist()
    identities: list[Identity] = list(
        zip(times, keys, values, _headers(columns, payload), strict=True)
    )
    return Records(columns.offsets, identities)


def _slices(payload: bytes, starts: Int64s, lengths: Int64s) -> list[bytes | None]:
    if len(lengths) and int(lengths.max()) < 0:
        return [None] * len(lengths)
    ends = (starts + lengths).tolist()
    found: list[bytes | None] = [
        payload[start:end] for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    for index in np.flatnonzero(lengths < 0).tolist():
        found[index] = None
    return found


def _headers(columns: RecordColumns, payload: bytes) -> list[tuple[Any, ...]]:
    headers = columns.headers
    if not len(headers.key_starts):
        return [()] * len(columns)
    keys = _slices(payload, headers.key_starts, headers.key_lengths)
    values = _slices(payload, headers.value_starts, headers.value_lengths)
    pairs = list(zip(keys, values, strict=True))
    ends = np.cumsum(columns.header_counts).tolist()
    starts = [0, *ends[:-1]]
    return [tuple(pairs[start:end]) for start, end in zip(starts, ends, strict=True)]
