"""Plans the export of live brokers: resolves bounds to offsets and divides them into splits.

Kafka 2.7: org.apache.kafka.clients.consumer.KafkaConsumer (offsetsForTimes, endOffsets); KIP-113
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kctl.errors import KctlError, NotFoundError, not_found
from kctl.export.options import ExportOptions, Isolation
from kctl.export.splits import gaps
from kctl.lazy_dataclass import dataclass
from kctl.model import Position, PositionKind, TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

__all__ = ["Bound", "Ranges", "bytes_per_offset", "live_partitions", "live_ranges"]

# Partition to [first offset, end offset).
Ranges = Mapping[TopicPartition, tuple[int, int]]
# The position that bounds each partition.
Bound = Callable[[TopicPartition], Position]


@dataclass(frozen=True, slots=True)
class LiveSplit:
    """A range of offsets of one partition, which one task fetches."""

    topic: str
    partition: int
    first_offset: int
    # Exclusive.
    end_offset: int
    # Bytes of log; 0 if the brokers do not report it.
    size: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic, self.partition)


async def live_partitions(
    admin: "AdminClient", topics: Sequence[str], numbers: Iterable[int] = ()
) -> list[TopicPartition]:
    """Return the partitions of topics (names or shell patterns), restricted to `numbers` if given.

    Raise NotFoundError if a name or pattern matches no topic, or no topic has a partition.
    """
    known = {it.name: it for it in await admin.topics.list_topics()}
    wanted = set(numbers)
    chosen: dict[str, None] = {}
    for topic in topics:
        names = [name for name in known if name == topic or fnmatchcase(name, topic)]
        if not names:
            raise not_found("topic", topic, known)
        chosen |= dict.fromkeys(names)
    held = {item.partition for name in chosen for item in known[name].partitions}
    if wanted - held:
        raise NotFoundError(
            f"{', '.join(chosen)} has no partition {min(wanted - held)}, only {len(held)}"
        )
    return [
        TopicPartition(name, item.partition)
        for name in chosen
        for item in known[name].partitions
        if not wanted or item.partition in wanted
    ]


async def live_ranges(
    admin: "AdminClient",
    partitions: Sequence[TopicPartition],
    start: Bound,
    end: Bound,
    isolation: Isolation,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets that the bounds denote now, limited to what the logs hold."""
    level = int(isolation is Isolation.READ_COMMITTED)
    earliest = await _resolved(admin, dict.fromkeys(partitions, _EARLIEST), level)
    latest = await _resolved(admin, dict.fromkeys(partitions, _LATEST), level)
    starts = await _resolved(admin, {it: start(it) for it in partitions}, level)
    ends = await _resolved(admin, {it: end(it) for it in partitions}, level)
    return {
        it: (min(max(starts[it], earliest[it]), latest[it]), min(ends[it], latest[it]))
        for it in partitions
    }


_EARLIEST = Position(PositionKind.EARLIEST)
_LATEST = Position(PositionKind.LATEST)


async def _resolved(
    admin: "AdminClient", positions: Mapping[TopicPartition, Position], level: int
) -> dict[TopicPartition, int]:
    if not positions:
        return {}
    found = await admin.offsets.resolve(positions, isolation_level=level)
    for listed in found.values():
        if listed.error is not None:
            raise listed.error
    return {partition: listed.offset for partition, listed in found.items()}


async def bytes_per_offset(admin: "AdminClient", ranges: Ranges) -> dict[TopicPartition, float]:
    """Return the average bytes of log per offset, from the sizes of the largest replicas.

    Empty if the brokers do not report sizes: they are too old, or Describe on the cluster is
    denied.
    """
    try:
        described = await admin.log_dirs.describe(topics={it.topic for it in ranges})
    except KctlError:
        return {}
    sizes: dict[TopicPartition, int] = {}
    for directory in described:
        for replica in directory.replicas:
            sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size_bytes)
    partitions = [it for it in ranges if it in sizes]
    earliest = await _resolved(admin, dict.fromkeys(partitions, _EARLIEST), 0)
    latest = await _resolved(admin, dict.fromkeys(partitions, _LATEST), 0)
    return {it: sizes[it] / max(1, latest[it] - earliest[it]) for it in partitions}


def plan_ranges(
    ranges: Ranges,
    options: ExportOptions,
    done: Mapping[tuple[str, int], list[tuple[int, int]]] | None = None,
    per_offset: Mapping[TopicPartition, float] | None = None,
) -> list[LiveSplit]:
    """Return splits of about `file_bytes` for the offsets that are not done.

    A partition of unknown size is one split.
    """
    splits: list[LiveSplit] = []
    for topic_partition, (first, end) in sorted(ranges.items()):
        topic, partition = topic_partition
        ended = (done or {}).get(topic_partition, [])
        each = (per_offset or {}).get(topic_partition, 0.0)
        if options.replaces_partitions:
            # A partition is one split, exported again when the log has changed.
            if first < end and (first, end) not in ended:
                splits.append(LiveSplit(topic, partition, first, end, int((end - first) * each)))
            continue
        for gap_first, gap_end in gaps(first, end, ended):
            count = max(1, round((gap_end - gap_first) * each / options.split_bytes))
            borders = cut_evenly(gap_first, gap_end, count)
            splits += [
                LiveSplit(topic, partition, low, high, int((high - low) * each))
                for low, high in borders
            ]
    return splits


def cut_evenly(first: int, end: int, count: int) -> list[tuple[int, int]]:
    """Divide [first, end) into at most `count` ranges of about the same length."""
    borders = sorted({first + (end - first) * number // count for number in range(count + 1)})
    return list(itertools.pairwise(borders))


def offset_count(ranges: Ranges) -> int:
    """Return the number of offsets in all ranges."""
    return sum(max(0, end - first) for first, end in ranges.values())
