"""The figures of a cluster that monitors ask for: offsets, replicas, lag of groups, sizes on disk.

They are read with few requests: one list of groups per broker, one OffsetFetch per group, sent to
the broker that listed it, IN_FLIGHT_MAX of them at once; all brokers at the same time. What a
broker or a group does not report is left out, and counted.

`topic_samples` and `group_samples` follow kafka_exporter's rules: a group has a series for each
partition of a topic of which it has committed an offset for one partition at least; its lag is -1
where it has committed none, and absent where the end of the partition is unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.client.results import error_of
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.metrics import cluster_families as c
from kctl.metrics.family import Family, Sample, Samples
from kctl.model import TopicPartition
from kctl.runtime.future import gather
from kctl.work import parts

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.group_descriptions import GroupListing
    from kctl.admin.log_dirs import LogDirDescription

# OffsetFetch requests that one broker is sent at once.
IN_FLIGHT_MAX = 16
NOTHING_COMMITTED = -1


@dataclass(slots=True)
class PartitionFigures:
    """One partition; an offset is None if its leader did not report it."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    end_offset: int | None = None
    start_offset: int | None = None


@dataclass(slots=True)
class TopicFigures:
    """The brokers and topics of a cluster."""

    # Broker -> HOST:PORT.
    brokers: dict[int, str] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionFigures] = field(default_factory=dict)
    # Partitions without offsets.
    errors: int = 0


@dataclass(slots=True)
class GroupFigures:
    """One group; the offsets are those that it has committed."""

    members: int
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


async def topic_figures(admin: "AdminClient") -> TopicFigures:
    """Return brokers and partitions with their offsets. Raise UnreachableError, ApiError."""
    # The view keeps topics that a response does not contain: those that were deleted, too.
    admin.router.view.forget(list(admin.router.view.topics))
    view = await admin.router.refresh(None)
    found = TopicFigures({it.broker_id: f"{it.host}:{it.port}" for it in view.brokers.values()})
    for topic in view.topics.values():
        for number, seen in sorted(topic.partitions.items()):
            found.partitions[TopicPartition(topic.name, number)] = PartitionFigures(
                seen.leader, seen.replicas, seen.isr
            )
    led = [tp for tp, partition in found.partitions.items() if partition.leader >= 0]
    ends = await admin.offsets.latest(led)
    starts = await admin.offsets.earliest(led)
    for tp, partition in found.partitions.items():
        end, start = ends.get(tp), starts.get(tp)
        if end is None or start is None or end.error is not None or start.error is not None:
            found.errors += 1
        else:
            partition.end_offset, partition.start_offset = end.offset, start.offset
    return found


async def group_figures(
    admin: "AdminClient", partitions: Iterable[TopicPartition]
) -> tuple[dict[str, GroupFigures], int]:
    """Return the groups of all brokers, by name, and the number of brokers and groups that could
    not be asked. `partitions` are the known ones, which the result refers to."""
    known = {tp: tp for tp in partitions}
    listing = await admin.groups.list_groups()
    errors = len(listing.errors)
    by_broker: dict[int, list[GroupListing]] = {}
    for group in listing.groups:
        by_broker.setdefault(group.coordinator, []).append(group)

    async def ask(groups: "list[GroupListing]") -> list[GroupFigures | None]:
        return await _of_one_broker(admin, groups, known)

    answers = await gather(
        admin.router.runtime.scheduler, [ask(groups) for groups in by_broker.values()]
    )
    found: dict[str, GroupFigures] = {}
    for groups, figures in zip(by_broker.values(), answers, strict=True):
        for group, each in zip(groups, figures, strict=True):
            if each is None:
                errors += 1
            else:
                found[group.group_id] = each
    return dict(sorted(found.items())), errors


async def _of_one_broker(
    admin: "AdminClient",
    groups: "list[GroupListing]",
    known: dict[TopicPartition, TopicPartition],
) -> list[GroupFigures | None]:
    """Return the figures of groups with one coordinator; None for those that fail."""
    try:
        described = await admin.groups.describe_listed(groups)
    except KctlError:
        return [None] * len(groups)
    members = {it.group_id: len(it.members) for it in described}

    async def ask(group: "GroupListing") -> GroupFigures | None:
        try:
            offsets = await _committed(admin, group, known)
        except KctlError:
            return None
        return GroupFigures(members.get(group.group_id, 0), offsets)

    figures: list[GroupFigures | None] = []
    for some in parts(groups, IN_FLIGHT_MAX):
        figures += await gather(admin.router.runtime.scheduler, [ask(it) for it in some])
    return figures


async def _committed(
    admin: "AdminClient", group: "GroupListing", known: dict[TopicPartition, TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offsets that a group has committed, of the topics with any. Raise KctlError."""
    from kctl.protocol.messages.offset_fetch import OffsetFetchRequest

    request = OffsetFetchRequest(group_id=group.group_id, topics=None)
    response = await admin.router.send_to_broker(group.coordinator, request)
    error = error_of(response.error_code)
    if error is not None:
        raise error
    offsets: dict[TopicPartition, int] = {}
    for topic in response.topics:
        if all(it.committed_offset == NOTHING_COMMITTED for it in topic.partitions):
            continue
        for partition in topic.partitions:
            if not partition.error_code:
                tp = TopicPartition(topic.name, partition.partition_index)
                offsets[known.get(tp, tp)] = partition.committed_offset
    return offsets


# --- samples ---------------------------------------------------------------------------------


def topic_samples(found: TopicFigures) -> Samples:
    """Yield the samples of brokers, topics and partitions."""
    yield Sample(c.BROKERS, (), len(found.brokers))
    for broker_id, address in sorted(found.brokers.items()):
        yield Sample(c.BROKER_INFO, (str(broker_id), address), 1)
    counts: dict[str, int] = {}
    for tp in found.partitions:
        counts[tp.topic] = counts.get(tp.topic, 0) + 1
        yield None
    for topic, count in counts.items():
        yield Sample(c.TOPIC_PARTITIONS, (topic,), count)
    readings: tuple[tuple[Family, Callable[[PartitionFigures], int | None]], ...] = (
        (c.CURRENT_OFFSET, lambda it: it.end_offset),
        (c.OLDEST_OFFSET, lambda it: it.start_offset),
        (c.LEADER, lambda it: it.leader),
        (c.REPLICAS, lambda it: len(it.replicas)),
        (c.IN_SYNC_REPLICAS, lambda it: len(it.in_sync)),
        (c.IS_PREFERRED, lambda it: it.replicas[:1] == (it.leader,)),
        (c.UNDER_REPLICATED, lambda it: len(it.in_sync) < len(it.replicas)),
    )
    for family, read in readings:
        for tp, partition in found.partitions.items():
            value = read(partition)
            if value is not None:
                yield Sample(family, (tp.topic, str(tp.partition)), value)


def group_samples(groups: dict[str, GroupFigures], topics: TopicFigures) -> Samples:
    """Yield the samples of groups; `topics` has the ends of partitions."""
    for name, group in groups.items():
        yield Sample(c.GROUP_MEMBERS, (name,), group.members)
    for name, group in groups.items():
        for tp, offset in group.offsets.items():
            yield Sample(c.GROUP_OFFSET, (name, tp.topic, str(tp.partition)), offset)
    for name, group in groups.items():
        for tp, offset in group.offsets.items():
            lag = lag_of(tp, offset, topics)
            if lag is not None:
                yield Sample(c.GROUP_LAG, (name, tp.topic, str(tp.partition)), lag)
    yield from _sums_by_topic(groups, topics)


def _sums_by_topic(groups: dict[str, GroupFigures], topics: TopicFigures) -> Samples:
    for family, read in (
        (c.GROUP_OFFSET_SUM, lambda _tp, offset: offset),
        (c.GROUP_LAG_SUM, lambda tp, offset: lag_of(tp, offset, topics)),
    ):
        for name, group in groups.items():
            sums: dict[str, int] = {}
            for tp, offset in group.offsets.items():
                value = None if offset == NOTHING_COMMITTED else read(tp, offset)
                sums[tp.topic] = sums.get(tp.topic, 0) + (value or 0)
                yield None
            for topic, total in sums.items():
                yield Sample(family, (name, topic), total)


def lag_of(tp: TopicPartition, committed: int, topics: TopicFigures) -> int | None:
    """Return the records after a committed offset; -1 without one, None if the end is unknown."""
    if committed == NOTHING_COMMITTED:
        return NOTHING_COMMITTED
    partition = topics.partitions.get(tp)
    if partition is None or partition.end_offset is None:
        return None
    return partition.end_offset - committed


def log_dir_samples(found: "Sequence[LogDirDescription]") -> Samples:
    """Yield the sizes of log directories and topics."""
    topics: dict[str, int] = {}
    for log_dir in found:
        total = 0
        for replica in log_dir.replicas:
            total += replica.size_bytes
            topic = replica.partition.topic
            topics[topic] = topics.get(topic, 0) + replica.size_bytes
            yield None
        yield Sample(c.LOG_DIR_BYTES, (str(log_dir.broker_id), log_dir.path), total)
    for topic, size in sorted(topics.items()):
        yield Sample(c.TOPIC_BYTES, (topic,), size)
