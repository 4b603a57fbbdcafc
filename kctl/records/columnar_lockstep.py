"""Finds where records begin: verified speculative lockstep over the length varints.

A record's start follows only from the length of the record before: the one serial dependency of the
format. So many walks ("lanes") step together, a handful of NumPy calls for a step of all. A lane
begins where a batch's records do, and, in batches that are long compared with the others, also at
*guessed* places: at a NUL attributes byte after a length, if another record with NUL attributes and
a slightly higher offset delta follows. Each lane stops where the next begins.

Then the guesses are verified: each start plus length must be the next start, each batch must end
exactly at its end and have as many records as its header says. A wrong guess costs time, never
correctness: batches that fail are read one record at a time, which also reports the exact damage if
the guess was right.
"""

import numpy as np
from numpy.typing import NDArray

from kctl.records.columnar_batches import Int64s, Mask
from kctl.records.columnar_fields import Words

# Records per lane on average, for guessed lanes.
_LANE_RECORDS = 96
# Steps of all lanes that cost as much as the guesses in one batch.
_GUESS_STEPS = 32
# Fewer lanes than this are walked faster by a plain loop.
_FEW_LANES = 24
# Steps between checks for finished lanes.
_STEPS = 64
# Two records that follow each other differ by less than this in their offsets, even compacted.
_GUESS_GAP_MAX = 1024
# Where a record with an invalid length ends: nowhere.
_NOWHERE = 1 << 40


def _advance_table() -> NDArray[np.int64]:
    """Return a table for the two bytes at a record's start: the distance to the next record; 0 if
    the length is longer than two bytes."""
    pairs: Int64s = np.arange(65536, dtype=np.int64)
    low, high = pairs & 255, pairs >> 8
    raw = np.where(low < 128, low, low & 127 | high << 7)
    advance: Int64s = np.where(low < 128, 1, 2) + (raw >> 1)
    advance[(raw & 1) == 1] = _NOWHERE
    advance[(low >= 128) & (high >= 128)] = 0
    return advance


_ADVANCE = _advance_table()


def record_starts(
    words: Words, starts: Int64s, ends: Int64s, counts: Int64s
) -> tuple[Int64s, Mask]:
    """Return the starts of the records of verified batches, and which batches are verified. The
    records of a batch are at [starts, ends)."""
    total = int(np.maximum(counts, 0).sum())
    found = _walk_lanes(words, *_lanes(words, starts, ends, counts), total)
    if found is None:
        return np.zeros(0, np.int64), np.zeros(len(starts), np.bool_)
    size, length = words.varints(found)
    following = np.empty(len(found), np.int64)
    following[:-1] = found[1:]
    edges = np.searchsorted(found, np.append(starts, words.size + 1))
    is_filled = edges[1:] > edges[:-1]
    following[edges[1:][is_filled] - 1] = ends[is_filled]
    is_wrong = (found + length + size != following) | (size < 0)
    wrong = np.append(0, np.cumsum(is_wrong))
    proved = (edges[1:] - edges[:-1] == counts) & (wrong[edges[1:]] == wrong[edges[:-1]])
    # An empty section shares its start with the next batch.
    proved &= is_filled | (starts == ends)
    if not proved.all():
        found = found[np.repeat(proved, edges[1:] - edges[:-1])]
    return found, proved


def _lanes(words: Words, starts: Int64s, ends: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return where lanes begin and end."""
    is_filled = ends > starts
    if not is_filled.all():
        starts, ends, counts = starts[is_filled], ends[is_filled], counts[is_filled]
    long = np.flatnonzero(counts > _guessed_above(counts))
    if not len(long):
        return starts, ends
    guesses = [
        _guesses(words, start, end, count)
        for start, end, count in zip(
            starts[long].tolist(), ends[long].tolist(), counts[long].tolist(), strict=True
        )
    ]
    begins = np.unique(np.concatenate([starts, *guesses]))
    batch_ends = ends[np.searchsorted(starts, begins, side="right") - 1]
    next_begins = np.append(begins[1:], words.size)
    return begins, np.minimum(next_begins, batch_ends)


def _guessed_above(counts: Int64s) -> int:
    """Return the record count above which guesses in a batch cost less than the steps they save.

    All lanes step until the longest of those without guesses ends.
    """
    falling = np.append(-np.sort(-counts), 2 * _LANE_RECORDS)
    costs = falling + _GUESS_STEPS * np.arange(len(falling))
    return max(int(falling[np.argmin(costs)]), 2 * _LANE_RECORDS)


def _guesses(words: Words, start: int, end: int, count: int) -> Int64s:
    """Return places in a long batch where records may begin, one per share of a lane."""
    lanes = count // _LANE_RECORDS
    stride = (end - start) // lanes
    window = min(2 * ((end - start) // count) + 32, stride)
    if window < 4:
        return np.zeros(0, np.int64)
    first = start + stride
    # The guess reads two records; no guesses where they would leave the payload.
    lanes = min(lanes - 1, max(0, (words.size - first - window) // stride + 1))
    if lanes <= 0:
        return np.zeros(0, np.int64)
    view = np.lib.stride_tricks.as_strided(
        words.bytes[first:], (lanes, window), (stride, 1), writeable=False
    )
    rows, columns = np.nonzero(view == 0)
    attributes = first + rows * stride + columns
    places = np.concatenate((attributes - 1, attributes - 2))
    bodies = np.concatenate((attributes, attributes))
    size, length = words.varints(places)
    plausible = (places + length == bodies) & (size >= 6)
    places, bodies = places[plausible], bodies[plausible]
    following = bodies + size[plausible]
    plausible = following < end - 8
    places, bodies, following = places[plausible], bodies[plausible], following[plausible]
    size, length = words.varints(following)
    next_bodies = words.held(following + length)
    plausible = (words.bytes[next_bodies] == 0) & (size >= 6)
    places, bodies, next_bodies = places[plausible], bodies[plausible], next_bodies[plausible]
    gap = _offset_deltas(words, next_bodies) - _offset_deltas(words, bodies)
    places = np.sort(places[(gap > 0) & (gap < _GUESS_GAP_MAX)])
    lane_starts = first + stride * np.arange(lanes)
    chosen = np.searchsorted(places, lane_starts)
    guessed: Int64s = np.unique(places[chosen[chosen < len(places)]])
    return guessed


def _offset_deltas(words: Words, bodies: Int64s) -> Int64s:
    at = words.held(bodies + 1)
    _, length = words.varints(at, is_long=True)
    deltas, _ = words.varints(words.held(at + length))
    return deltas


def _walk_lanes(words: Words, at: Int64s, ends: Int64s, total: int) -> Int64s | None:
    """Return every place that the lanes visit, ascending; None if they are far more
    than `total`."""
    found: list[Int64s] = []
    count = 0
    pairs = words.pairs
    at = at.copy()
    while len(at) >= _FEW_LANES:
        visited = np.empty((_STEPS, len(at)), np.int64)
        for step in range(_STEPS):
            visited[step] = at
            advance = _ADVANCE[pairs[at]]
            if not advance.all():
                _advance_long(words, at, advance)
            at += advance
            np.minimum(at, ends, out=at)
        found.append(visited.T[(visited < ends).T])
        count += len(found[-1])
        if count > _found_max(total):
            return None
        is_active = at < ends
        at, ends = at[is_active], ends[is_active]
    rest = _walk_few(words, at.tolist(), ends.tolist(), _found_max(total) - count)
    if rest is None:
        return None
    found.append(rest)
    return np.sort(np.concatenate(found)) if len(found) > 1 else np.sort(rest)


def _found_max(total: int) -> int:
    """Return a limit that allows a few wrong guesses and ends walks over garbage."""
    return 2 * total + 4096


def _advance_long(words: Words, at: Int64s, advance: Int64s) -> None:
    longer = np.flatnonzero(advance == 0)
    size, length = words.varints(at[longer])
    advance[longer] = np.where(size < 0, _NOWHERE, size + length)


def _walk_few(words: Words, begins: list[int], ends: list[int], count_max: int) -> Int64s | None:
    """Walk each lane in a plain loop."""
    found: list[int] = []
    data = words.bytes.data
    for begin, end in zip(begins, ends, strict=True):
        position = begin
        while position < end:
            found.append(position)
            if len(found) > count_max:
                return None
            raw = data[position]
            position += 1
            shift = 7
            # A bit above the bytes read says that another byte follows; the bit is cleared with
            # that byte.
            while raw >> shift and shift <= 28:
                raw += (data[position] << shift) - (1 << shift)
                position += 1
                shift += 7
            # A negative or too long varint fails the verification later.
            position += (raw & 0xFFFFFFFF) >> 1 if not raw & 1 else _NOWHERE
    return np.array(found, np.int64)
