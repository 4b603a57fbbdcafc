"""Finds the largest set of batches that are in order: a longest increasing subsequence of offsets.

If batches are swapped, repeated or have wrong offsets, some contradict others. Repair trusts the
largest set without a contradiction. Among sets of equal size the one with more evidence wins.
Evidence is a batch that begins exactly where the previous batch ends, or whose distance from an
earlier batch, or from its segment's base offset, equals the number of records between. O(n log n).
"""

from bisect import bisect_left
from collections.abc import Sequence

# The weight of a batch; it is one more if the previous batch of the set confirms its offset.
_BATCH = 2


def longest_in_order(
    first: Sequence[int], last: Sequence[int], indexes: Sequence[int], bases: Sequence[int]
) -> list[int]:
    """Return the members of `indexes`, which ascend, that are in order.

    `bases` holds the base offset of each batch's segment.
    """
    if _are_in_order(first, last, indexes):
        return list(indexes)
    ends = sorted({last[i] for i in indexes})
    best_at_or_below = _PrefixMaximum(len(ends))
    # The best entry by the offset that exactly follows it; and by the lead of offsets over the
    # number of records so far, which is constant where nothing is missing.
    best_at: dict[int, tuple[int, int]] = {}
    best_ahead: dict[int, tuple[int, int]] = {}
    records = 0
    base = ahead_at_base = -1
    before: dict[int, int] = {}
    top = (0, -1)
    for i in indexes:
        score, previous = best_at_or_below.get(bisect_left(ends, first[i]))
        ahead = first[i] - records
        if bases[i] != base:
            base, ahead_at_base = bases[i], bases[i] - records
        if ahead == ahead_at_base:
            score += 1
        records += last[i] - first[i] + 1
        for witness in (best_at.get(first[i]), best_ahead.get(ahead)):
            if witness is not None and witness[0] + 1 > score:
                score, previous = witness[0] + 1, witness[1]
        before[i] = previous
        entry = (score + _BATCH, i)
        rank = bisect_left(ends, last[i])
        best_at_or_below.put(rank, entry)
        _keep_best(best_at, last[i] + 1, entry)
        _keep_best(best_ahead, ahead, entry)
        if entry[0] > top[0]:
            top = entry
    chain = []
    i = top[1]
    while i >= 0:
        chain.append(i)
        i = before[i]
    return chain[::-1]


def _keep_best(best: dict[int, tuple[int, int]], key: int, entry: tuple[int, int]) -> None:
    if key not in best or entry[0] > best[key][0]:
        best[key] = entry


def _are_in_order(first: Sequence[int], last: Sequence[int], indexes: Sequence[int]) -> bool:
    end = -(2**63)
    for i in indexes:
        if first[i] <= end:
            return False
        end = last[i]
    return True


class _PrefixMaximum:
    """A Fenwick tree that finds the best entry of the first n ranks."""

    def __init__(self, size: int) -> None:
        self._tree: list[tuple[int, int]] = [(0, -1)] * (size + 1)

    def get(self, count: int) -> tuple[int, int]:
        best = (0, -1)
        while count:
            if self._tree[count][0] > best[0]:
                best = self._tree[count]
            count &= count - 1
        return best

    def put(self, rank: int, entry: tuple[int, int]) -> None:
        at = rank + 1
        while at < len(self._tree):
            if entry[0] > self._tree[at][0]:
                self._tree[at] = entry
            at += at & -at
