"""Histogram: counts values by size, for a few hundred nanoseconds per value.

A value over all bounds is in the last count. Quantiles are those of the last one to two minutes:
`Window` keeps earlier counts and subtracts them, so that recording a value costs nothing more.

Invariant: `counts` only grow, and their sum is the number of values.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

# Seconds, 0.1 ms to 10 s: a request, a turn of the loop, an fsync.
SECONDS_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0,
)  # fmt: skip
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
# Quantiles cover this time, or up to twice as much.
WINDOW_MS = 60_000


class HistogramValue(NamedTuple):
    """The state of a histogram: counts of values up to each bound and over all, and their sum."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


class SummaryValue(NamedTuple):
    """A count of values, and (quantile, value) pairs; None: the values' sum is unknown."""

    observed: int
    quantiles: Sequence[tuple[float, float]]
    total: float | None = None


class Histogram:
    """Counts of values. The hot path adds to `counts` and `total` itself."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count `value`; a bound is inclusive."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: list[int], per_unit: int) -> None:
        """Count many values, `per_unit` of which are 1: a tenth of the time of one by one. They are
        sorted in place."""
        values.sort()
        counts, below = self.counts, 0
        for number, bound in enumerate(self.bounds):
            up_to = bisect_right(values, bound * per_unit, below)
            counts[number] += up_to - below
            below = up_to
        counts[-1] += len(values) - below
        self.total += sum(values) / per_unit

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self.counts)

    def value(self) -> HistogramValue:
        """Return the current state."""
        return HistogramValue(self.bounds, tuple(self.counts), self.total)


def joined(histograms: Sequence[Histogram]) -> HistogramValue:
    """Return the values of histograms with the same bounds as one; at least one is given."""
    counts = [sum(column) for column in zip(*(it.counts for it in histograms), strict=True)]
    return HistogramValue(histograms[0].bounds, counts, sum(it.total for it in histograms))


def quantile(bounds: Sequence[float], counts: Sequence[int], which: float) -> float:
    """Return the value below which `which` (0 to 1) of the values are, interpolated in its bucket;
    0 without values, and the last bound for what is over all.

    >>> quantile((1, 2, 4), (0, 10, 0, 0), 0.5)
    1.5
    """
    wanted = which * sum(counts)
    below = 0
    lower = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return lower if below < sum(counts) else 0.0


class Window:
    """The counts of one to two minutes ago, to be subtracted from those of now."""

    def __init__(self, size: int = len(SECONDS_BOUNDS) + 1) -> None:
        self._older: Sequence[int] = (0,) * size
        self._newer: Sequence[int] = self._older
        self._since_ms: int | None = None

    def recent(self, counts: Sequence[int], now_ms: int) -> list[int]:
        """Return how many of `counts` are of the window that ends now. Call it at each scrape."""
        if self._since_ms is None:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= WINDOW_MS:
            self._older, self._newer, self._since_ms = self._newer, tuple(counts), now_ms
        return [now - then for now, then in zip(counts, self._older, strict=True)]


def summarized(value: HistogramValue, recent: Sequence[int], scale: float = 1.0) -> SummaryValue:
    """Return count and quantiles, those of `recent`, times `scale` (1,000: milliseconds)."""
    quantiles = [(each, scale * quantile(value.bounds, recent, each)) for each in QUANTILES]
    return SummaryValue(sum(value.counts), quantiles, scale * value.total)
