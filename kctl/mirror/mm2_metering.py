"""Mm2Metering: a mirror's figures under the names that MirrorMaker 2's have at the JMX exporter.

MirrorMaker 2 has a series per partition. So has this for as many as PARTITIONS_MAX partitions from
which something was copied; beyond that a series is that of a topic, without a label `partition`.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorMetrics
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.metrics import mirror_families as f
from kctl.metrics.family import Family, Number, Sample, Samples
from kctl.mirror.copy_times import CopyTimes, WindowFigures

if TYPE_CHECKING:
    from kctl.mirror.mm2_formats import Checkpoint
    from kctl.model import TopicPartition

PARTITIONS_MAX = 1_000
GROUPS_MAX = 1_000

_Series = Sequence[tuple[tuple[str | None, ...], Sequence[CopyTimes]]]


class Mm2Metering:
    """The series of one worker; `source` and `target` are the aliases of both clusters."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        # Group -> the latency of its last checkpoints, in milliseconds.
        self._checkpoints: dict[str, int] = {}

    def add_checkpoints(self, points: "Iterable[Checkpoint]", latency_ms: int) -> None:
        """Take checkpoints that were written; they took `latency_ms` from reading the groups."""
        for it in points:
            if it.group in self._checkpoints or len(self._checkpoints) < GROUPS_MAX:
                self._checkpoints[it.group] = latency_ms

    def samples(self, times: "Mapping[TopicPartition, CopyTimes]", now_ms: int) -> Samples:
        """Yield the series of partitions of the target."""
        series = self._series(times)
        sums: tuple[tuple[Family, Callable[[CopyTimes], Number]], ...] = (
            (f.MM2_RECORD_COUNT, lambda it: it.records),
            (f.MM2_BYTE_COUNT, lambda it: it.bytes),
            (f.MM2_RECORD_RATE, lambda it: it.sizes.rates(now_ms)[0]),
            (f.MM2_BYTE_RATE, lambda it: it.sizes.rates(now_ms)[1]),
        )
        for family, value in sums:
            for labels, members in series:
                yield Sample(family, labels, sum(map(value, members)))
        lasts: tuple[tuple[Family, Callable[[CopyTimes], int | None]], ...] = (
            (f.MM2_AGE, lambda it: it.age_ms),
            (f.MM2_LATENCY, lambda it: it.latency_ms),
        )
        for family, last in lasts:
            for labels, members in series:
                known = [at for it in members if (at := last(it)) is not None]
                if known:
                    yield Sample(family, labels, max(known))
        for families, read in (
            (f.MM2_AGES, lambda it: it.ages.figures(now_ms)),
            (f.MM2_LATENCIES, lambda it: it.latencies.figures(now_ms)),
        ):
            yield from _extremes(families, series, read)
        for group, latency_ms in sorted(self._checkpoints.items()):
            yield Sample(f.MM2_CHECKPOINT, (self._source, self._target, group), latency_ms)

    def _series(self, times: "Mapping[TopicPartition, CopyTimes]") -> _Series:
        if len(times) <= PARTITIONS_MAX:
            return [
                ((self._target, it.topic, str(it.partition)), [found])
                for it, found in sorted(times.items())
            ]
        topics: dict[str, list[CopyTimes]] = {}
        for it, found in sorted(times.items()):
            topics.setdefault(it.topic, []).append(found)
        return [((self._target, name, None), found) for name, found in topics.items()]


def _extremes(
    families: tuple[Family, Family, Family],
    series: _Series,
    read: Callable[[CopyTimes], WindowFigures],
) -> Samples:
    """Yield the least, the most and the mean of the last windows, where they have any."""
    found = []
    for labels, members in series:
        sums = WindowFigures(0)
        for it in map(read, members):
            if it.least is not None and it.most is not None:
                sums.add(it.count, it.total, it.least, it.most)
        found.append((labels, (sums.least, sums.most, sums.mean)))
    for number, family in enumerate(families):
        for labels, values in found:
            value = values[number]
            if value is not None:
                yield Sample(family, labels, value)
