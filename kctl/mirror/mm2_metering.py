"""Mm2Metering: a mirror's figures under the names that MirrorMaker 2's have at the JMX exporter.

MirrorMaker 2 has a series per partition. So has this for as many as PARTITIONS_MAX partitions from
which something was copied; beyond that a series is that of a topic, without a label `partition`.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorMetrics
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kctl.metrics import mirror_families as f
from kctl.metrics.family import Family, Number, Sample, Samples
from kctl.mirror.copy_times import CopyTimes, WindowFigures

if TYPE_CHECKING:
    from kctl.mirror.mm2_formats import Checkpoint
    from kctl.model import TopicPartition

PARTITIONS_MAX = 1_000
GROUPS_MAX = 1_000


class _Series(NamedTuple):
    """The labels of a series, what was copied under them, and what of it is still copied here."""

    labels: tuple[str | None, ...]
    members: Sequence[CopyTimes]
    held: Sequence[CopyTimes]


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

    def samples(
        self,
        times: "Mapping[TopicPartition, CopyTimes]",
        held: "Collection[TopicPartition]",
        now_ms: int,
    ) -> Samples:
        """Yield the series of partitions of the target, of those that are `held`; those of topics
        count all in `times`."""
        series = self._series(times, held)
        sums: tuple[tuple[Family, Callable[[CopyTimes], Number]], ...] = (
            (f.MM2_RECORD_COUNT, lambda it: it.records),
            (f.MM2_BYTE_COUNT, lambda it: it.bytes),
            (f.MM2_RECORD_RATE, lambda it: it.sizes.rates(now_ms)[0]),
            (f.MM2_BYTE_RATE, lambda it: it.sizes.rates(now_ms)[1]),
        )
        for family, value in sums:
            for it in series:
                yield Sample(family, it.labels, sum(map(value, it.members)))
        lasts: tuple[tuple[Family, Callable[[CopyTimes], int | None]], ...] = (
            (f.MM2_AGE, lambda it: it.age_ms),
            (f.MM2_LATENCY, lambda it: it.latency_ms),
        )
        for family, last in lasts:
            for it in series:
                known = [at for each in it.held if (at := last(each)) is not None]
                if known:
                    yield Sample(family, it.labels, max(known))
        for families, read in (
            (f.MM2_AGES, lambda it: it.ages.figures(now_ms)),
            (f.MM2_LATENCIES, lambda it: it.latencies.figures(now_ms)),
        ):
            yield from _extremes(families, series, read)
        for group, latency_ms in sorted(self._checkpoints.items()):
            yield Sample(f.MM2_CHECKPOINT, (self._source, self._target, group), latency_ms)

    def _series(
        self, times: "Mapping[TopicPartition, CopyTimes]", held: "Collection[TopicPartition]"
    ) -> list[_Series]:
        if len(held) <= PARTITIONS_MAX:
            return [
                _Series((self._target, it.topic, str(it.partition)), [times[it]], [times[it]])
                for it in sorted(held)
            ]
        topics: dict[str, tuple[list[CopyTimes], list[CopyTimes]]] = {}
        for it, found in sorted(times.items()):
            members, still = topics.setdefault(it.topic, ([], []))
            members.append(found)
            if it in held:
                still.append(found)
        return [_Series((self._target, name, None), *found) for name, found in topics.items()]


def _extremes(
    families: tuple[Family, Family, Family],
    series: Sequence[_Series],
    read: Callable[[CopyTimes], WindowFigures],
) -> Samples:
    """Yield the least, the most and the mean of the last windows, where they have any."""
    found = []
    for each in series:
        sums = WindowFigures(0)
        for it in map(read, each.held):
            if it.least is not None and it.most is not None:
                sums.add(it.count, it.total, it.least, it.most)
        found.append((each.labels, (sums.least, sums.most, sums.mean)))
    for number, family in enumerate(families):
        for labels, values in found:
            value = values[number]
            if value is not None:
                yield Sample(family, labels, value)
