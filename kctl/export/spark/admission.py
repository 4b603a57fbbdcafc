"""Admission: how far the next batch of a stream goes, within the limits that its options set.

A batch takes about `offsets_max` offsets, shared among partitions by what they have; one in which
something is new gets an offset at least, so that none starves. It waits until `offsets_min` are
there, or until `delay_ms_max` have gone by since the last one; the first does not wait.

Spark: org.apache.spark.sql.kafka010.KafkaMicroBatchStream
"""

from dataclasses import dataclass

from kctl.export.live_plan import Ranges
from kctl.model import TopicPartition

# topic -> partition (as text) -> offset: what a streaming checkpoint holds.
Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Limits:
    """maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60_000


class Admission:
    """Decides for one query, from its start to its end."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._last_ms: int | None = None

    def admit(self, start: Offsets, ranges: Ranges, now_ms: int, *, waits: bool) -> Offsets:
        """Where a batch ends that begins at `start`, if `ranges` are there; `start` itself while
        it `waits` for more. A partition that is new begins at its begin."""
        begins = {
            it: max(start.get(it.topic, {}).get(str(it.partition), first), first)
            for it, (first, _end) in ranges.items()
        }
        sizes = {it: max(0, end - begins[it]) for it, (_first, end) in ranges.items()}
        total = sum(sizes.values())
        if waits and self._must_wait(total, now_ms):
            return start
        if total:
            self._last_ms = now_ms
        most = self._limits.offsets_max
        if most is None or total <= most:
            return offsets_of({it: end for it, (_first, end) in ranges.items()})
        shares = {it: max(1, most * size // total) for it, size in sizes.items() if size}
        # Where nothing is new, the end: it says so if a log ends before it was read.
        return offsets_of(
            {it: begins[it] + shares[it] if it in shares else end
             for it, (_first, end) in ranges.items()}
        )  # fmt: skip

    def _must_wait(self, total: int, now_ms: int) -> bool:
        least = self._limits.offsets_min
        if least is None or total >= least or self._last_ms is None:
            return False
        return now_ms - self._last_ms < self._limits.delay_ms_max


def offsets_of(found: dict[TopicPartition, int]) -> Offsets:
    """As a checkpoint holds them."""
    offsets: Offsets = {}
    for (topic, partition), offset in found.items():
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets
