"""Admission: decides where the next batch of a stream ends, within the limits of its options.

A batch takes about `offsets_max` offsets, shared among the partitions in proportion to what they
have; each partition with new records gets at least one offset, so that none starves. A batch waits
until `offsets_min` are available, or until `delay_ms_max` have passed since the last one; the first
does not wait.

Spark: org.apache.spark.sql.kafka010.KafkaMicroBatchStream
"""

from kctl.export.live_plan import Ranges
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

# topic -> partition (as text) -> offset: the form of a streaming checkpoint.
Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The options maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60_000


class Admission:
    """The decisions for one query, from its start to its end."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._last_ms: int | None = None

    def admit(self, start: Offsets, ranges: Ranges, now_ms: int, *, waits: bool) -> Offsets:
        """Return where the batch that starts at `start` ends, if logs hold `ranges`.

        Return `start` itself while the batch `waits` for more. A new partition starts at its first
        offset.
        """
        starts = {
            it: max(start.get(it.topic, {}).get(str(it.partition), first), first)
            for it, (first, _end) in ranges.items()
        }
        sizes = {it: max(0, end - starts[it]) for it, (_first, end) in ranges.items()}
        total = sum(sizes.values())
        if waits and self._must_wait(total, now_ms):
            return start
        if total:
            self._last_ms = now_ms
        most = self._limits.offsets_max
        if most is None or total <= most:
            return offsets_of({it: end for it, (_first, end) in ranges.items()})
        shares = {it: max(1, most * size // total) for it, size in sizes.items() if size}
        # A partition without new records gets its end, which shows a log that became shorter.
        return offsets_of(
            {it: starts[it] + shares[it] if it in shares else end
             for it, (_first, end) in ranges.items()}
        )  # fmt: skip

    def _must_wait(self, total: int, now_ms: int) -> bool:
        least = self._limits.offsets_min
        if least is None or total >= least or self._last_ms is None:
            return False
        return now_ms - self._last_ms < self._limits.delay_ms_max


def offsets_of(found: dict[TopicPartition, int]) -> Offsets:
    """Return offsets in the form of a streaming checkpoint."""
    offsets: Offsets = {}
    for (topic, partition), offset in found.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets
