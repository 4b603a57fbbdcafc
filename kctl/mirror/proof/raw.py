"""equal_run: how many batches of two buffers are equal, without decompressing or decoding them.

A mirror that passes batches on rewrites the fields that belong to the target's log: base offset,
leader epoch, checksum, producer id, epoch and sequence, and the transactional bit. All other bytes
stay. So two runs of batches of equal sizes are compared byte by byte at once, and only these fields
are left out.
"""

import numpy as np

from kctl.lazy_dataclass import dataclass
from kctl.records.columnar_batches import BatchColumns, Int64s, Mask
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import TRANSACTIONAL_MASK

# Offset, leader epoch, checksum, attributes (compared as columns), producer id, epoch and sequence.
_REWRITTEN = np.array(
    [*range(8), *range(12, 16), *range(17, 23), *range(43, 57)], np.int64
)  # fmt: skip
# Base timestamp and largest timestamp.
_TIMES = np.arange(27, 43, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Batches:
    """Consecutive batches of records that count, and the buffer that they are in."""

    view: memoryview
    columns: BatchColumns

    @property
    def size(self) -> int:
        """Return the stored bytes."""
        return int(self.columns.sizes.sum())

    def part(self, which: slice) -> "Batches":
        """Return a run of the batches."""
        return Batches(self.view, self.columns.take(which))


def equal_run(
    source: Batches, target: Batches, may_be_raw: Mask, *, ignores_timestamps: bool = False
) -> int:
    """Return how many batches at the beginning of both are equal, as far as bytes show it.

    `may_be_raw` says which pairs may be compared as a whole, in the length of the shorter.
    """
    s, t = source.columns, target.columns
    count = len(may_be_raw)
    s, t = s.take(slice(0, count)), t.take(slice(0, count))
    is_alike = (
        may_be_raw
        & (s.magics == CURRENT_MAGIC)
        & (t.magics == CURRENT_MAGIC)
        & (s.sizes == t.sizes)
        & (((s.attributes ^ t.attributes) & ~TRANSACTIONAL_MASK) == 0)
    )
    if not is_alike.all():
        count = int(np.argmin(is_alike))
    if not count:
        return 0
    left_out = np.concatenate((_REWRITTEN, _TIMES)) if ignores_timestamps else _REWRITTEN
    ends = _group_ends(s.take(slice(0, count)), t.take(slice(0, count)))
    first = 0
    for end in ends:
        same = _equal_in_group(source, target, slice(first, end), left_out)
        if same < end - first:
            return first + same
        first = end
    return count


def _group_ends(s: BatchColumns, t: BatchColumns) -> list[int]:
    """Return the ends of the groups of batches that are contiguous in both buffers."""
    is_break = (s.positions[1:] != s.ends[:-1]) | (t.positions[1:] != t.ends[:-1])
    return [*(np.flatnonzero(is_break) + 1).tolist(), len(s)]


def _equal_in_group(source: Batches, target: Batches, which: slice, left_out: Int64s) -> int:
    s, t = source.columns.take(which), target.columns.take(which)
    start, end = int(s.positions[0]), int(s.ends[-1])
    at = int(t.positions[0])
    mine = np.frombuffer(source.view, np.uint8, end - start, start)
    theirs = np.frombuffer(target.view, np.uint8, end - start, at)
    differs = mine != theirs
    places = s.positions - start
    differs[(places[:, None] + left_out).ravel()] = False
    first = int(np.argmax(differs))
    if not differs[first]:
        return len(s)
    return int(np.searchsorted(places, first, side="right")) - 1
