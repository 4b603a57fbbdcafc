"""The samples of a broker's links: how far the partitions led here are after their sources."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kctl.metrics import broker_families as f
from kctl.metrics.family import Sample, Samples

if TYPE_CHECKING:
    from kctl.broker.links.linked_partition import LinkedPartition

_MS = 1_000


def link_samples(linked: "Sequence[LinkedPartition]", now_ms: int) -> Samples:
    """Yield the sums of each link; `now_ms` is monotonic."""
    links: dict[tuple[str, str], list[LinkedPartition]] = {}
    for it in linked:
        links.setdefault((it.partition.topic_partition.topic, it.link.source), []).append(it)
    for names, partitions in links.items():
        for phase, count in sorted(Counter(it.phase for it in partitions).items()):
            yield Sample(f.LINK_PARTITIONS, (*names, phase.value), count)
    for names, partitions in links.items():
        lags = [lag for lag in (it.lag() for it in partitions) if lag is not None]
        if lags:
            yield Sample(f.LINK_LAG, names, sum(lags))
    for names, partitions in links.items():
        longest = max(it.lag_ms(now_ms) for it in partitions)
        yield Sample(f.LINK_LAG_SECONDS, names, longest / _MS)


def link_partition_samples(linked: "Sequence[LinkedPartition]", now_ms: int) -> Samples:
    """Yield the lag and the phase of each partition; `now_ms` is monotonic."""
    rows = [
        ((it.partition.topic_partition.topic, str(it.partition.topic_partition.partition)), it)
        for it in linked
    ]
    for names, it in rows:
        lag = it.lag()
        if lag is not None:
            yield Sample(f.LINK_PARTITION_LAG, names, lag)
    for names, it in rows:
        yield Sample(f.LINK_PARTITION_LAG_SECONDS, names, it.lag_ms(now_ms) / _MS)
    for names, it in rows:
        yield Sample(f.LINK_PARTITION_PHASE, (*names, it.phase.value), 1)
