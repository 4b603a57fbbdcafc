"""next_hunk: where two lists of records that part meet again, and which records pair up until then.

The shortest edit script (Myers, "An O(ND) Difference Algorithm and Its Variations", 1986) is
searched up to `EDITS_MAX` edits, and ends at the first run of `ANCHOR` equal records. Beyond that,
a record that occurs once on each side leads to the next such run, and the records before it pair up
by their order (patience diff).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.records import Identity

# Equal records after which two streams are aligned again.
ANCHOR = 16
# Edits that the exact search tries; its cost is the square of this number.
EDITS_MAX = 48
# The share of the shorter list that must pair up where both sides differ often: one of this many.
_LOOSE_SHARE = 8


@dataclass(frozen=True, slots=True)
class Hunk:
    """A region at the beginning of both lists: their lengths, and the indexes that pair up."""

    source: int
    target: int
    pairs: list[tuple[int, int]]


def next_hunk(
    source: Sequence[Identity], target: Sequence[Identity], *, is_complete: bool
) -> Hunk | None:
    """Return the region up to where both lists are equal again; None if they do not meet.

    With `is_complete` nothing follows the lists, so the end of both is a meeting point.
    """
    found = _few_edits(source, target, is_complete=is_complete)
    if found is not None:
        return found
    met = _meeting(source, target)
    if met is None and not is_complete:
        return None
    i, j = met if met is not None else (len(source), len(target))
    return Hunk(i, j, paired(source[:i], target[:j]))


def loose_hunk(source: Sequence[Identity], target: Sequence[Identity]) -> Hunk | None:
    """Return the region up to the last pair of lists that differ too often to meet again: pairs of
    equal records, or of records that differ in their timestamps alone; None if few pair up."""
    least = min(len(source), len(target)) // _LOOSE_SHARE
    pairs = paired(source, target)
    if len(pairs) <= least:
        pairs = paired([each[1:] for each in source], [each[1:] for each in target])
    if len(pairs) <= least:
        return None
    return Hunk(pairs[-1][0] + 1, pairs[-1][1] + 1, pairs)


def _few_edits(
    source: Sequence[Identity], target: Sequence[Identity], *, is_complete: bool
) -> Hunk | None:
    n, m = len(source), len(target)
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(EDITS_MAX + 1):
        trail.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            start = x
            while x < n and y < m and source[x] == target[y]:
                x, y = x + 1, y + 1
                if x - start == ANCHOR:
                    # The anchor itself stays for the caller to compare.
                    return Hunk(start, start - k, _walked(trail, edits, k, start))
            furthest[k] = x
            if is_complete and x >= n and y >= m:
                return Hunk(n, m, [pair for pair in _walked(trail, edits, k, x) if pair[0] < n])
    return None


def _walked(trail: list[dict[int, int]], edits: int, k: int, x: int) -> list[tuple[int, int]]:
    """Return the pairs on the path to (x, x - k), in order."""
    pairs: list[tuple[int, int]] = []
    for step in range(edits, -1, -1):
        before = trail[step]
        down = k == -step or (k != step and before[k - 1] < before[k + 1])
        previous = k + 1 if down else k - 1
        begin = before[previous] if down else before[previous] + 1
        pairs += ((at, at - k) for at in range(x - 1, begin - 1, -1))
        x, k = before[previous], previous
    pairs.reverse()
    return [pair for pair in pairs if pair[1] >= 0]


def _meeting(source: Sequence[Identity], target: Sequence[Identity]) -> tuple[int, int] | None:
    """Return the nearest indexes from which `ANCHOR` records are equal, led by one that is unique
    in both lists."""
    places = _unique(target)
    own = _unique(source)
    best: tuple[int, int] | None = None
    for identity, i in own.items():
        if best is not None and i >= sum(best):
            break
        j = places.get(identity)
        if j is None or (best is not None and i + j >= sum(best)):
            continue
        if len(source) - i >= ANCHOR and source[i : i + ANCHOR] == target[j : j + ANCHOR]:
            best = i, j
    return best


def _unique(identities: Sequence[Identity]) -> dict[Identity, int]:
    counts = Counter(identities)
    return {each: at for at, each in enumerate(identities) if counts[each] == 1}


def paired(source: Sequence[Hashable], target: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the longest list of pairs of equal records that is in order on both sides.

    Of records that occur several times, the first may pair with the first, and so on.
    """
    places = {each: at for at, each in enumerate(_numbered(target))}
    candidates = [(at, places[each]) for at, each in enumerate(_numbered(source)) if each in places]
    # The longest increasing subsequence of the target's indexes.
    tails: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(candidates):
        at = bisect_left(tails, j)
        before.append(last[at - 1] if at else -1)
        tails[at : at + 1] = [j]
        last[at : at + 1] = [number]
    found = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(candidates[number])
        number = before[number]
    found.reverse()
    return found


def _numbered(identities: Sequence[Hashable]) -> Iterator[tuple[Hashable, int]]:
    """Yield the identities with the number of their occurrence, which makes them unique."""
    counts: Counter[Hashable] = Counter()
    for each in identities:
        yield each, counts[each]
        counts[each] += 1
