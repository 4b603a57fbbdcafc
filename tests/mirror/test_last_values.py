"""Compacted topics are equal if the last value of each key is, whatever compaction has removed on
either side; memory is bounded by spilling."""

from random import Random  # noqa: TID251 - seeded

import numpy as np
import pytest

from kctl.mirror.proof.last_values import LastValues
from kctl.mirror.proof.records import Records

END = 1_000


class MemorySpill:
    """A spill in memory that remembers the largest piece."""

    def __init__(self):
        self.kept = {}

    def append(self, name, data):
        self.kept[name] = self.kept.get(name, b"") + data

    def size(self, name):
        return len(self.kept.get(name, b""))

    def read(self, name, position, size):
        return self.kept[name][position : position + size]


def records(items):
    """Return records of (offset, key, value)."""
    return Records(
        np.array([offset for offset, _, _ in items], np.int64),
        [(7, key, value, ()) for _, key, value in items],
    )


def compared(source, target, ends=(END, END), *, rows_bytes_max=1 << 20, spill=None):
    last = LastValues(*ends, spill or MemorySpill(), rows_bytes_max=rows_bytes_max)
    for items, is_source in ((source, True), (target, False)):
        for at in range(0, len(items), 50):
            last.add(records(items[at : at + 50]), is_source=is_source)
    return last.result()


def rows(result):
    return [
        (it.kind.value, it.source_offset, it.target_offset, it.count, it.fields)
        for it in result.differences.listed
    ]


def test_superseded_records_and_removed_tombstones_are_no_difference():
    source = [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"b", b"1"), (3, b"b", None), (4, b"c", None)]
    target = [(7, b"a", b"2")]
    assert (compared(source, target).equal, rows(compared(source, target))) == (1, [])
    assert (compared(target, source).equal, rows(compared(target, source))) == (1, [])


def test_what_differs_has_the_offsets_of_both_sides():
    source = [(0, b"same", b"1"), (1, b"gone", b"1"), (2, b"other", b"1"), (3, b"ended", None)]
    target = [(0, b"same", b"1"), (4, b"other", b"2"), (5, b"ended", b"1"), (6, b"new", b"1")]
    assert rows(compared(source, target)) == [
        ("missing", 1, -1, 1, ()),
        ("changed", 2, 4, 2, ("value",)),
        ("extra", -1, 6, 1, ()),
    ]


def test_an_older_value_that_compaction_would_have_removed_is_found():
    source = [(5, b"k", b"new")]
    target = [(3, b"k", b"old")]
    assert rows(compared(source, target)) == [("changed", 5, 3, 1, ("value",))]


def test_a_key_that_was_written_after_the_range_is_not_judged():
    """The source has removed the record that the target has, because of a later one."""
    source, target = [(END + 3, b"k", b"2"), (1, b"x", b"1")], [(0, b"k", b"1"), (1, b"x", b"1")]
    result = compared(source, target)
    assert (result.equal, result.pending, rows(result)) == (1, 1, [])
    result = compared(target, source)
    assert (result.equal, result.pending, rows(result)) == (1, 1, [])


def test_records_without_a_key_are_counted():
    result = compared([(0, None, b"1"), (1, b"", b"2")], [(0, b"", b"2")])
    assert (result.equal, result.keyless, rows(result)) == (1, 1, [])


@pytest.mark.parametrize("rows_bytes_max", [1 << 20, 4_000, 1_200])
def test_random_logs_that_are_compacted_at_different_moments(rows_bytes_max):
    rng = Random(rows_bytes_max)
    log = [
        (n, b"k%d" % rng.randrange(120), None if rng.random() < 0.2 else b"%d" % n)
        for n in range(900)
    ]

    def compacted(end, *, with_tombstones):
        last = {key: offset for offset, key, _ in log[:end]}
        return [
            it for it in log[:end]
            if last[it[1]] == it[0] and (with_tombstones or it[2] is not None)
        ] + log[end:]  # fmt: skip

    source = compacted(800, with_tombstones=False)
    target = compacted(400, with_tombstones=True)
    spill = MemorySpill()
    ends = 900, 900
    values = {key: value for _, key, value in log}
    expected = sum(value is not None for value in values.values())
    result = compared(source, target, ends, rows_bytes_max=rows_bytes_max, spill=spill)
    assert (result.equal, rows(result), bool(spill.kept)) == (
        expected, [], rows_bytes_max < 1 << 20,
    )  # fmt: skip

    # Three faults: the last record of a key is gone, another one is changed, one is added.
    live = [it for it in source if it[2] is not None and it[1] in values]
    lasts = {key: offset for offset, key, _ in log}
    live = [it for it in live if lasts[it[1]] == it[0]]
    gone, other = live[3], live[-3]
    faulty = [it for it in target if it[1] != gone[1]]
    faulty = [(o, k, b"flipped") if (o, k) == other[:2] else (o, k, v) for o, k, v in faulty]
    faulty.append((899, b"added", b"x"))
    result = compared(source, faulty, ends, rows_bytes_max=rows_bytes_max)
    assert rows(result) == [
        ("missing", gone[0], -1, 1, ()),
        ("changed", other[0], other[0], 1, ("value",)),
        ("extra", -1, 899, 1, ()),
    ]
    assert result.equal == expected - 2
