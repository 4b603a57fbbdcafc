"""LastValues: compares the last record of each key on both sides, in bounded memory. Pure.

Compaction keeps of each key the last record, and removes tombstones some time later. Two logs that
were compacted at different moments hold other records, but the same last value of each key: that is
what a consumer that reads them from the start ends with. A key without a record, and one whose last
record is a tombstone, have no value.

A record becomes a row of numbers: digests of key, value and headers, timestamp, offset. Rows are
kept in memory up to `ROWS_BYTES_MAX` on each side. Above that, only the last row of each key stays;
if that is not enough, rows are spilled by the hash of their key, and each share of the keys is
compared by itself.

**Keys that change meanwhile.** A record in the compared range may have been removed because of a
later one, which is beyond the range. So both sides are read on to their ends, and a key with such a
record on either side is not judged.

Kafka 2.7: none; kafka.log.Cleaner removes what is not compared
"""

from collections.abc import Iterator
from dataclasses import field
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.differences import NO_OFFSET, Difference, DifferenceKind, Differences
from kctl.mirror.proof.records import Identity, Records

Rows = npt.NDArray[np.int64]

# Rows that one side keeps in memory; sorting them takes as much again.
ROWS_BYTES_MAX = 64 * 1024 * 1024
# Shares of the keys, each of which is spilled to a place of its own.
SHARES = 64

_WIDTH = 7
_ROW_BYTES = _WIDTH * 8
_ROW = Struct("<16s16s8sqq")
_NO_VALUE = bytes(16)


class _Column(IntEnum):
    """The columns of a row; digests of keys and values take two."""

    KEY = 0
    KEY_2 = 1
    VALUE = 2
    VALUE_2 = 3
    HEADERS = 4
    TIMESTAMP = 5
    OFFSET = 6


class Spill(Protocol):
    """Where rows go that memory does not hold."""

    def append(self, name: str, data: bytes) -> None:
        """Append to what is kept under `name`."""
        ...

    def size(self, name: str) -> int:
        """Return the number of bytes that are kept under `name`; 0 if there are none."""
        ...

    def read(self, name: str, position: int, size: int) -> bytes:
        """Return bytes that were appended."""
        ...


@dataclass(slots=True)
class LastValuesResult:
    """What was compared, and what differs."""

    # Keys with the same last value on both sides.
    equal: int = 0
    # Keys that were written after the compared range, on either side.
    pending: int = 0
    # Records without a key, which compaction removes: they are not compared.
    keyless: int = 0
    differences: Differences = field(default_factory=Differences)


class _Side:
    """The rows of one side."""

    def __init__(self, name: str, spill: Spill, rows_bytes_max: int) -> None:
        self.keyless = 0
        self.is_spilled = False
        self._name = name
        self._spill = spill
        self._rows_max = max(1, rows_bytes_max // _ROW_BYTES)
        self._parts: list[Rows] = []
        self._count = 0

    def add(self, records: Records) -> None:
        offsets = records.offsets.tolist()
        packed = []
        for identity, offset in zip(records.identities, offsets, strict=True):
            if identity[1] is None:
                self.keyless += 1
            else:
                packed.append(_packed(identity, offset))
        if packed:
            self._take(_rows(b"".join(packed)))

    def _take(self, rows: Rows) -> None:
        self._parts.append(rows)
        self._count += len(rows)
        if self._count <= self._rows_max:
            return
        rows = _last_of(np.concatenate(self._parts))
        self._parts, self._count = [rows], len(rows)
        # Where most keys come once, sorting again for each chunk would gain little.
        if self._count > self._rows_max // 2:
            self.spill()

    def spill(self) -> None:
        """Move all rows to the spill."""
        self.is_spilled = True
        if not self._parts:
            return
        rows = np.concatenate(self._parts)
        shares = _share_of(rows)
        for share in range(SHARES):
            found = rows[shares == share]
            if len(found):
                self._spill.append(f"{self._name}-{share}", found.tobytes())
        self._parts, self._count = [], 0

    def kept(self) -> Rows:
        """Return the last row of each key, if none was spilled."""
        return _last_of(np.concatenate(self._parts)) if self._parts else _rows(b"")

    def spilled_rows(self, share: int) -> int:
        """Return the number of rows of a share."""
        return self._spill.size(f"{self._name}-{share}") // _ROW_BYTES

    def part(self, share: int, number: int, count: int) -> Rows:
        """Return the last row of each key of one of `count` parts of a share."""
        name = f"{self._name}-{share}"
        size, step = self._spill.size(name), self._rows_max * _ROW_BYTES
        found = _rows(b"")
        for position in range(0, size, step):
            rows = _rows(self._spill.read(name, position, min(step, size - position)))
            rows = rows[_part_of(rows, count) == number]
            found = _last_of(np.concatenate((found, rows)))
        return found

    @property
    def rows_max(self) -> int:
        return self._rows_max


class LastValues:
    """The comparison of one partition; the end of the compared range of each side is exclusive."""

    def __init__(
        self,
        source_end: int,
        target_end: int,
        spill: Spill,
        *,
        rows_bytes_max: int = ROWS_BYTES_MAX,
    ) -> None:
        self._ends = source_end, target_end
        self._source = _Side("source", spill, rows_bytes_max)
        self._target = _Side("target", spill, rows_bytes_max)
        self._result = LastValuesResult()

    def add(self, records: Records, *, is_source: bool) -> None:
        """Take records of a side, those after the compared range too, in any order."""
        (self._source if is_source else self._target).add(records)

    def result(self) -> LastValuesResult:
        """Compare what was added; call it once."""
        self._result.keyless = self._source.keyless + self._target.keyless
        differences = self._result.differences
        for source, target in self._pairs():
            for each in self._compared(source, target):
                differences.add(each)
        differences.listed.sort(
            key=lambda it: (it.source_offset < 0, it.source_offset, it.target_offset)
        )
        return self._result

    def _pairs(self) -> Iterator[tuple[Rows, Rows]]:
        """Yield the last rows of both sides, of all keys or of a part of them."""
        sides = self._source, self._target
        if not any(it.is_spilled for it in sides):
            yield self._source.kept(), self._target.kept()
            return
        for side in sides:
            side.spill()
        for share in range(SHARES):
            most = max(it.spilled_rows(share) for it in sides)
            parts = -(-most // self._source.rows_max)
            for number in range(parts):
                yield tuple(it.part(share, number, parts) for it in sides)  # type: ignore[misc]

    def _compared(self, source: Rows, target: Rows) -> Iterator[Difference]:
        """Count what is equal, and yield what differs in the order of the source's offsets."""
        mine, theirs = _paired(source, target)
        s, t = _chosen(source, mine), _chosen(target, theirs)
        is_pending = (mine >= 0) & (s[:, _Column.OFFSET] >= self._ends[0])
        is_pending |= (theirs >= 0) & (t[:, _Column.OFFSET] >= self._ends[1])
        self._result.pending += int(is_pending.sum())
        compared = slice(_Column.VALUE, _Column.OFFSET)
        has_value = _has_value(s) | _has_value(t)
        is_same = (s[:, compared] == t[:, compared]).all(axis=1)
        judged = ~is_pending & has_value
        self._result.equal += int((judged & is_same).sum())
        different = np.flatnonzero(judged & ~is_same)
        for at in different[np.argsort(s[different, _Column.OFFSET], kind="stable")].tolist():
            yield _difference(s[at] if mine[at] >= 0 else None, t[at] if theirs[at] >= 0 else None)


def _difference(source: Rows | None, target: Rows | None) -> Difference:
    here = NO_OFFSET if source is None else int(source[_Column.OFFSET])
    there = NO_OFFSET if target is None else int(target[_Column.OFFSET])
    if source is None:
        return Difference(DifferenceKind.EXTRA, here, there)
    if target is None:
        return Difference(DifferenceKind.MISSING, here, there)
    return Difference(DifferenceKind.CHANGED, here, there, 1, _fields(source, target))


def _packed(identity: Identity, offset: int) -> bytes:
    timestamp, key, value, headers = identity
    return _ROW.pack(
        _digest(key or b""),
        _NO_VALUE if value is None else _digest(value),
        _headers_digest(headers),
        timestamp,
        offset,
    )


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _headers_digest(headers: tuple[Any, ...]) -> bytes:
    if not headers:
        return bytes(8)
    return blake2b(repr(headers).encode(), digest_size=8).digest()


def _rows(data: bytes) -> Rows:
    if not data:
        return np.zeros((0, _WIDTH), np.int64)
    return np.frombuffer(data, "<i8").reshape(-1, _WIDTH)


def _last_of(rows: Rows) -> Rows:
    """Return the row with the highest offset of each key, sorted by key."""
    if not len(rows):
        return rows
    order = np.lexsort((rows[:, _Column.OFFSET], rows[:, _Column.KEY_2], rows[:, _Column.KEY]))
    rows = rows[order]
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = (rows[1:, : _Column.VALUE] != rows[:-1, : _Column.VALUE]).any(axis=1)
    found: Rows = rows[is_last]
    return found


def _share_of(rows: Rows) -> Rows:
    return rows[:, _Column.KEY] & (SHARES - 1)


def _part_of(rows: Rows, count: int) -> Rows:
    # Not the bits that chose the share.
    return (rows[:, _Column.KEY_2] & 0x7FFFFFFF) % count


def _has_value(rows: Rows) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (rows[:, _Column.VALUE : _Column.HEADERS] != 0).any(axis=1)
    return found


def _paired(source: Rows, target: Rows) -> tuple[Rows, Rows]:
    """Return, for each key of either side, its row on both; -1 where a side does not have it."""
    keys = np.concatenate((source[:, : _Column.VALUE], target[:, : _Column.VALUE]))
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    keys = keys[order]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    place = np.cumsum(is_first) - 1
    count = int(is_first.sum())
    mine, theirs = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    is_source = order < len(source)
    mine[place[is_source]] = order[is_source]
    theirs[place[~is_source]] = order[~is_source] - len(source)
    return mine, theirs


def _chosen(rows: Rows, which: Rows) -> Rows:
    """Return rows by their numbers; zeros where the number is -1."""
    found = np.zeros((len(which), _WIDTH), np.int64)
    is_there = which >= 0
    found[is_there] = rows[which[is_there]]
    return found


def _fields(source: Rows, target: Rows) -> tuple[str, ...]:
    def differs(first: int, end: int) -> bool:
        return bool((source[first:end] != target[first:end]).any())

    found = {
        "value": differs(_Column.VALUE, _Column.HEADERS),
        "headers": differs(_Column.HEADERS, _Column.TIMESTAMP),
        "timestamp": differs(_Column.TIMESTAMP, _Column.OFFSET),
    }
    return tuple(name for name, is_different in found.items() if is_different)
