"""What the logs of a cluster's partitions hold, by Kafka's API: sizes, records and their ages.

Bytes are those of the leader's replica. The number of records is that of offsets, which is more
than there are where a log is compacted or has transactions. Brokers report neither batches nor
codecs.
"""

from collections.abc import Collection
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.record_times import record_times
from kctl.errors import KctlError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient


@dataclass(slots=True)
class LogFigures:
    """One partition; None: not known. Times are those of its first and last record (ms)."""

    partition: TopicPartition
    size_bytes: int | None
    records: int | None
    oldest_ms: int | None = None
    newest_ms: int | None = None


@dataclass(slots=True)
class ClusterLogs:
    """All partitions, and what could not be read."""

    logs: list[LogFigures] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def log_figures(admin: "AdminClient", topics: Collection[str] = ()) -> ClusterLogs:
    """Return the figures of each partition with a leader, of `topics` or of all. Raise
    UnreachableError, and NotFoundError for a topic that does not exist."""
    view = await admin.router.refresh(sorted(set(topics)) or None)
    missing = [topic for topic in topics if not view.partitions_of(topic)]
    if missing:
        raise not_found("topic", missing[0], view.topics, hint="kctl topic list")
    leaders = {
        tp: leader.broker_id
        for topic in (topics or view.topics)
        for tp in (TopicPartition(topic, number) for number in view.partitions_of(topic))
        if (leader := view.leader(tp)) is not None
    }
    found = ClusterLogs()
    if not leaders:
        return found
    sizes = await _sizes(admin, leaders, found)
    earliest = await admin.offsets.earliest(leaders)
    latest = await admin.offsets.latest(leaders)
    spans = {
        tp: (earliest[tp].offset, latest[tp].offset)
        for tp in leaders
        if earliest[tp].error is None and latest[tp].error is None
    }
    filled = {tp: span for tp, span in spans.items() if span[0] < span[1]}
    oldest = await record_times(admin.router, {tp: first for tp, (first, _) in filled.items()})
    newest = await record_times(admin.router, {tp: end - 1 for tp, (_, end) in filled.items()})
    for tp in sorted(leaders):
        span = spans.get(tp)
        records = None if span is None else span[1] - span[0]
        found.logs.append(
            LogFigures(tp, sizes.get(tp), records, _time(oldest.get(tp)), _time(newest.get(tp)))
        )
    return found


async def _sizes(
    admin: "AdminClient", leaders: dict[TopicPartition, int], found: ClusterLogs
) -> dict[TopicPartition, int]:
    try:
        directories = await admin.log_dirs.describe(topics={tp.topic for tp in leaders})
    except KctlError as error:
        found.notes.append(f"no sizes: {error}")
        return {}
    return {
        replica.partition: replica.size_bytes
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future and leaders.get(replica.partition) == directory.broker_id
    }


def _time(found: int | KctlError | None) -> int | None:
    return found if isinstance(found, int) else None
