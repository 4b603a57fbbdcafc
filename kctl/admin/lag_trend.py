"""Judges the trend of a group's lag in one partition, by the rules of Burrow.

A window holds the last samples of (time, committed offset, end offset). A *commit* is a sample
whose committed offset differs from that of the sample before; between two commits the lag only
grows with the partition, so trends compare the lags at commits. The rules, of which the first that
applies decides:

1. No sample, as nothing is committed: unknown.
2. The lag of the last sample is 0, or that of any sample in the window: steady. The group keeps up.
3. Nothing was committed for the whole window, or for longer than the commits before took
   (Burrow: STALL, STOP): stopped, once that lasts STOPPED_AFTER_MS, at which no client commits
   rarely; at once, if the group has no members. Before that, unknown.
4. Fewer than two commits: unknown.
5. The lag never falls between two commits and grows over the window (Burrow: WARN): falling behind.
6. It fell by more than NOISE_SHARE: catching up. Otherwise steady.

A committed offset that moves back is a reset: samples before it do not count.

https://github.com/linkedin/Burrow/wiki/Consumer-Lag-Evaluation-Rules
"""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

# The samples of a window; a window of 2 s samples lasts two minutes.
SAMPLES_MAX = 60
# Six times the commit interval of Kafka's consumers (auto.commit.interval.ms).
STOPPED_AFTER_MS = 30_000
# A smaller part of the lag is no change of it.
NOISE_SHARE = 0.05


class Trend(StrEnum):
    """Where a lag goes, the worst last."""

    STEADY = "steady"
    UNKNOWN = "unknown"
    CATCHING_UP = "catching up"
    FALLING_BEHIND = "falling behind"
    STOPPED = "stopped"


class LagSample(NamedTuple):
    """What was committed, and where the partition ended, at a time."""

    time_ms: int
    committed_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        """Return the records between both; never negative."""
        return max(0, self.end_offset - self.committed_offset)


class LagWindow:
    """The last samples of one partition."""

    def __init__(self) -> None:
        self._samples: deque[LagSample] = deque(maxlen=SAMPLES_MAX)

    def add(self, sample: LagSample) -> None:
        """Add a sample; samples before a reset to an earlier offset are dropped."""
        if self._samples and sample.committed_offset < self._samples[-1].committed_offset:
            self._samples.clear()
        self._samples.append(sample)

    def trend(self, now_ms: int, *, has_members: bool) -> Trend:
        """Return the trend at `now_ms`."""
        return judge(self._samples, now_ms, has_members=has_members)


def judge(samples: Sequence[LagSample], now_ms: int, *, has_members: bool) -> Trend:
    """Return the trend of `samples`, the oldest first; see the rules above."""
    if not samples:
        return Trend.UNKNOWN
    if any(sample.lag == 0 for sample in samples):
        return Trend.STEADY
    commits = [
        later
        for earlier, later in itertools.pairwise(samples)
        if later.committed_offset != earlier.committed_offset
    ]
    silent_ms = now_ms - (commits[-1] if commits else samples[0]).time_ms
    if not commits:
        is_stopped = not has_members or silent_ms >= STOPPED_AFTER_MS
        return Trend.STOPPED if is_stopped else Trend.UNKNOWN
    active_ms = commits[-1].time_ms - samples[0].time_ms
    if silent_ms >= STOPPED_AFTER_MS and silent_ms > active_ms:
        return Trend.STOPPED
    if len(commits) < 2:
        return Trend.UNKNOWN
    return _direction([commit.lag for commit in commits])


def _direction(lags: Sequence[int]) -> Trend:
    first, last = lags[0], lags[-1]
    never_falls = all(later >= earlier for earlier, later in itertools.pairwise(lags))
    if never_falls and last > first:
        return Trend.FALLING_BEHIND
    if first - last > NOISE_SHARE * first:
        return Trend.CATCHING_UP
    return Trend.STEADY


def worst(trends: Iterable[Trend]) -> Trend:
    """Return the worst of `trends`; unknown of none."""
    order = list(Trend)
    return max(trends, key=order.index, default=Trend.UNKNOWN)
