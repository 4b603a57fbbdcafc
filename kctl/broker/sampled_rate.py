"""SampledRate, TokenBucket and Pauses: the arithmetic of all quotas. Pure, time passed in.

A SampledRate counts in samples of one window each. A sample is complete once its window is over,
and is emptied when it is older than all windows; the sum of all samples, divided by the time that
they span, is the rate. The span has a minimum: all windows but one, so that a burst may use what
was saved, or with `is_simple` one window (replication). A TokenBucket holds at most the tokens of
all windows; it may be overdrawn, and then has to be refilled.

Invariant: samples are used in turn, and their number never exceeds the number of windows.

Kafka 2.7: org.apache.kafka.common.metrics.stats.{Rate, SimpleRate, SampledStat, TokenBucket},
kafka.utils.QuotaUtils; KIP-13, KIP-599.
"""

import math

from kctl.lazy_dataclass import dataclass

# Kafka forgets a client that has sent nothing for an hour: no pause is longer than that.
THROTTLE_MS_MAX = 3_600_000


@dataclass(frozen=True, slots=True)
class Windows:
    """The samples of a rate: quota.window.size.seconds and quota.window.num."""

    window_ms: int = 1_000
    count: int = 11


class SampledRate:
    """The amount per second over the last windows."""

    __slots__ = ("_current", "_is_simple", "_samples")

    def __init__(self, *, is_simple: bool = False) -> None:
        """Create a rate; `is_simple` raises its span to one window only."""
        self._is_simple = is_simple
        # [begin in ms, amount], in the order in which they are used.
        self._samples: list[list[float]] = []
        self._current = 0

    def record(self, amount: float, now_ms: int, windows: Windows) -> None:
        """Count `amount`, which is negative to take back what was counted."""
        samples = self._samples
        if not samples:
            samples.append([now_ms, 0.0])
        sample = samples[self._current]
        if now_ms - sample[0] >= windows.window_ms:
            self._current = (self._current + 1) % windows.count
            if self._current >= len(samples):
                samples.append([now_ms, 0.0])
                sample = samples[-1]
            else:
                sample = samples[self._current]
                sample[:] = now_ms, 0.0
        sample[1] += amount

    def per_second(self, now_ms: int, windows: Windows) -> float:
        """Return the rate."""
        span_ms = self._span_ms(now_ms, windows)
        return sum(amount for _, amount in self._samples) / (span_ms / 1000)

    def throttle_ms(self, limit: float, now_ms: int, windows: Windows) -> int:
        """Return how long nothing may be added until the rate is `limit` per second; 0 if it is not
        above, at most THROTTLE_MS_MAX."""
        excess = self.per_second(now_ms, windows) - limit
        if not excess > 0:
            return 0
        return _bounded_ms(excess * self._span_ms(now_ms, windows), limit)

    def _span_ms(self, now_ms: int, windows: Windows) -> float:
        """Return the time that the samples span, after emptying those that are too old."""
        samples, window_ms = self._samples, windows.window_ms
        if not samples:
            samples.append([now_ms, 0.0])
        oldest_ms = now_ms - window_ms * windows.count
        for sample in samples:
            if sample[0] <= oldest_ms:
                sample[:] = now_ms, 0.0
        elapsed_ms = now_ms - min(samples)[0]
        if self._is_simple:
            return max(elapsed_ms, window_ms)
        missing = windows.count - 1 - int(elapsed_ms // window_ms)
        return max(elapsed_ms + max(missing, 0) * window_ms, 1)


class TokenBucket:
    """Tokens that are refilled at a rate, up to those of all windows; full at first."""

    __slots__ = ("_tokens", "_updated_ms")

    def __init__(self) -> None:
        self._tokens = math.inf
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int, windows: Windows) -> float:
        """Return the tokens; negative: overdrawn. They are refilled with `limit` per second."""
        burst = windows.count * (windows.window_ms / 1000) * limit
        refilled = limit * ((now_ms - self._updated_ms) / 1000)
        self._tokens = min(burst, self._tokens + refilled)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, amount: float, limit: float, now_ms: int, windows: Windows) -> None:
        """Take tokens, also those that are not there."""
        self._tokens = self.tokens(limit, now_ms, windows) - amount

    def throttle_ms(self, limit: float, now_ms: int, windows: Windows) -> int:
        """Return the time until the bucket is no longer overdrawn; at most THROTTLE_MS_MAX."""
        missing = -self.tokens(limit, now_ms, windows)
        return _bounded_ms(missing * 1000, limit) if missing > 0 else 0


class Pauses:
    """How often and for how long a quota paused its clients.

    The average is that of one or two samples of SAMPLE_MS (Kafka's Avg with its default
    metrics.sample.window.ms and metrics.num.samples).
    """

    SAMPLE_MS = 30_000
    __slots__ = ("_before", "_began_ms", "_now", "count", "until_ms")

    def __init__(self) -> None:
        # Since the bucket exists.
        self.count = 0
        # When the last pause ends.
        self.until_ms = 0
        self._began_ms = 0
        # Sum of ms, and number: of the current sample and of the one before.
        self._now = self._before = (0, 0)

    def add(self, wait_ms: int, now_ms: int) -> None:
        """Count a pause that begins now."""
        self._roll(now_ms)
        self.count += 1
        self.until_ms = max(self.until_ms, now_ms + wait_ms)
        self._now = self._now[0] + wait_ms, self._now[1] + 1

    def average_ms(self, now_ms: int) -> float:
        """Return the average of the last samples; 0 without a pause."""
        self._roll(now_ms)
        total, count = map(sum, zip(self._now, self._before, strict=True))
        return total / count if count else 0.0

    def _roll(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._began_ms
        if elapsed_ms < self.SAMPLE_MS:
            return
        self._before = self._now if elapsed_ms < 2 * self.SAMPLE_MS else (0, 0)
        self._now, self._began_ms = (0, 0), now_ms


def _bounded_ms(amount: float, limit: float) -> int:
    """Return amount / limit, rounded as Java does. A limit of 0 is never kept; one below pauses no
    client, as in Apache Kafka."""
    if limit < 0:
        return 0
    wait_ms = amount / limit if limit else math.inf
    return THROTTLE_MS_MAX if wait_ms >= THROTTLE_MS_MAX else math.floor(wait_ms + 0.5)
