"""What a cluster does, from two looks over its API: rates of topics, groups, brokers and clients.

A look has the end offset of each partition, the size of each log, and what groups have committed.
Rates are differences: records from offsets, bytes from the sizes of logs, so that a partition whose
oldest segments were just deleted has no rate in bytes for that interval. Where brokers' metrics can
be read, the rates of bytes and requests are theirs, and reading is seen as well as writing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.metric_rates import broker_rates, topic_rates
from kctl.admin.quota_usage import NO_METRICS, notes_of, usage_rows
from kctl.counts import counted
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.broker_metrics import BrokerScrape, MetricsSource
    from kctl.admin.client_quotas import QuotaEntity
    from kctl.admin.group_descriptions import GroupDescription, PartitionLag


class BrokerPlace(NamedTuple):
    """A broker and where it is."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class Look:
    """The cluster at a time of the monotonic clock (ms)."""

    time_ms: int
    # ... and when metrics were read.
    scraped_ms: int = field(default=0, kw_only=True)
    brokers: list[BrokerPlace] = field(default_factory=list)
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    # (partition, broker) -> bytes.
    sizes: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    groups: "list[tuple[GroupDescription, list[PartitionLag]]]" = field(default_factory=list)
    quotas: "Mapping[QuotaEntity, Mapping[str, float]]" = field(default_factory=dict)
    # By URL: what brokers serve at /metrics.
    scrapes: "Mapping[str, BrokerScrape]" = field(default_factory=dict)
    # What could not be read.
    notes: list[str] = field(default_factory=list)


Row = dict[str, object]


async def look(
    admin: "AdminClient",
    *,
    with_groups: bool,
    with_quotas: bool = False,
    metrics: "MetricsSource | None" = None,
) -> Look:
    """Return what the cluster's brokers report now; groups and quotas only if they are wanted.
    Raise UnreachableError; errors of parts are notes."""
    from kctl.admin.group_overview import describe_groups

    view = await admin.router.refresh(None)
    found = Look(admin.router.runtime.clock.monotonic_ms())
    found.brokers = [
        BrokerPlace(it.broker_id, it.host, it.port, it.rack)
        for _, it in sorted(view.brokers.items())
    ]
    partitions = [
        TopicPartition(topic, number)
        for topic in view.topics
        for number in view.partitions_of(topic)
    ]
    for partition in partitions:
        leader = view.leader(partition)
        if leader is not None:
            found.leaders[partition] = leader.broker_id
    if found.leaders:
        ends = await admin.offsets.latest(found.leaders)
        found.ends = {tp: it.offset for tp, it in ends.items() if it.error is None}
    await _look_at_sizes(admin, found)
    if with_groups:
        try:
            found.groups = (await describe_groups(admin)).groups
        except KctlError as error:
            found.notes.append(f"no groups: {error}")
    if with_quotas:
        await _look_at_quotas(admin, found)
    if metrics is not None:
        await _read_metrics(admin, found, metrics, with_quotas=with_quotas)
    elif with_quotas:
        found.notes.append(NO_METRICS)
    return found


async def _look_at_sizes(admin: "AdminClient", found: Look) -> None:
    try:
        for directory in await admin.log_dirs.describe():
            for replica in directory.replicas:
                if not replica.is_future:
                    found.sizes[replica.partition, directory.broker_id] = replica.size_bytes
    except KctlError as error:
        found.notes.append(f"no sizes: {error}")


async def _look_at_quotas(admin: "AdminClient", found: Look) -> None:
    try:
        found.quotas = await admin.quotas.describe()
    except KctlError as error:
        found.notes.append(f"no quotas: {error}")


async def _read_metrics(
    admin: "AdminClient", found: Look, metrics: "MetricsSource", *, with_quotas: bool
) -> None:
    runtime = admin.router.runtime
    scrapes = await metrics.read(runtime.web, found.brokers)
    found.scrapes = scrapes.by_url
    # The counters are of this moment, and offsets a little older.
    found.scraped_ms = runtime.clock.monotonic_ms()
    found.notes += scrapes.notes
    if found.scrapes and len(found.scrapes) < len(found.brokers):
        found.notes.append(
            f"metrics of {len(found.scrapes)} of {counted(len(found.brokers), 'broker')}"
        )
    if with_quotas:
        found.notes += notes_of(found.scrapes.values())


def quota_rows(before: Look | None, now: Look) -> list[Row]:
    """Return a row per quota, client and broker."""
    return usage_rows(now.quotas, before.scrapes if before else {}, now.scrapes)


def topic_rows(before: Look | None, now: Look) -> list[Row]:
    """Return a row per topic."""
    parts = partition_rows(before, now)
    by_topic: dict[str, list[Row]] = {}
    for part in parts:
        by_topic.setdefault(str(part["topic"]), []).append(part)
    # Of a part of the brokers they would be too low.
    is_whole = len(now.scrapes) >= len(now.brokers)
    measured = topic_rates(before, now) if before and is_whole else {}
    return [
        {
            "topic": topic,
            "partitions": len(rows),
            "records_s": _sum(rows, "records_s"),
            "bytes_s": _sum(rows, "bytes_s"),
            "size": _sum(rows, "size"),
            **measured.get(topic, {}),
        }
        for topic, rows in sorted(by_topic.items())
    ]


def partition_rows(before: Look | None, now: Look, topic: str | None = None) -> list[Row]:
    """Return a row per partition with a leader, of one topic or of all; bytes are the leader's."""
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "leader": leader,
            "records_s": _rate(
                before, now, before.ends.get(tp) if before else None, now.ends.get(tp)
            ),
            "bytes_s": _rate(
                before,
                now,
                before.sizes.get((tp, leader)) if before else None,
                now.sizes.get((tp, leader)),
            ),
            "size": now.sizes.get((tp, leader)),
            "end_offset": now.ends.get(tp),
        }
        for tp, leader in sorted(now.leaders.items())
        if topic is None or tp.topic == topic
    ]


def group_rows(before: Look | None, now: Look) -> list[Row]:
    """Return a row per group: its lag, and how many records it commits a second."""
    earlier = _committed(before)
    rows = []
    for group, lags in now.groups:
        rates = [
            _rate(before, now, earlier.get((group.group_id, it.partition)), it.committed_offset)
            for it in lags
        ]
        known = [it.lag for it in lags if it.lag is not None]
        row: Row = {
            "group": group.group_id,
            "state": group.state,
            "members": len(group.members),
            "records_s": _total(rates),
            "lag": sum(known) if known else None,
        }
        rows.append(row)
    return rows


def group_partition_rows(before: Look | None, now: Look, group_id: str) -> list[Row]:
    """Return a row per partition of a group."""
    earlier = _committed(before)
    return [
        {
            "topic": it.partition.topic,
            "partition": it.partition.partition,
            "client": it.member.client_id if it.member else None,
            "records_s": _rate(
                before, now, earlier.get((group_id, it.partition)), it.committed_offset
            ),
            "lag": it.lag,
        }
        for group, lags in now.groups
        if group.group_id == group_id
        for it in lags
    ]


def broker_rows(before: Look | None, now: Look) -> list[Row]:
    """Return a row per broker: what its leaders take in, and all that it stores."""
    parts = partition_rows(before, now)
    measured = broker_rates(before, now) if before else {}
    return [
        {
            "broker": broker.broker_id,
            "host": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "leaders": sum(part["leader"] == broker.broker_id for part in parts),
            "replicas": sum(holder == broker.broker_id for _, holder in now.sizes),
            "records_s": _sum(
                [it for it in parts if it["leader"] == broker.broker_id], "records_s"
            ),
            "bytes_s": _sum([it for it in parts if it["leader"] == broker.broker_id], "bytes_s"),
            "size": sum(
                size for (_, holder), size in now.sizes.items() if holder == broker.broker_id
            ),
            **measured.get(broker.broker_id, {}),
        }
        for broker in now.brokers
    ]


def client_rows(before: Look | None, now: Look) -> list[Row]:
    """Return a row per member of a group; brokers list no other clients."""
    earlier = _committed(before)
    rows: list[Row] = []
    for group, lags in now.groups:
        for member in group.members:
            mine = [it for it in lags if it.partition in set(member.partitions)]
            known = [it.lag for it in mine if it.lag is not None]
            rates = [
                _rate(before, now, earlier.get((group.group_id, it.partition)), it.committed_offset)
                for it in mine
            ]
            rows.append(
                {
                    "client": member.client_id,
                    "member": member.member_id,
                    "group": group.group_id,
                    "host": member.host,
                    "partitions": len(member.partitions),
                    "records_s": _total(rates),
                    "lag": sum(known) if known else None,
                }
            )
    return rows


def _committed(look: Look | None) -> Mapping[tuple[str, TopicPartition], int | None]:
    if look is None:
        return {}
    return {
        (group.group_id, it.partition): it.committed_offset
        for group, lags in look.groups
        for it in lags
    }


def _rate(before: Look | None, now: Look, earlier: int | None, later: int | None) -> float | None:
    """Return what was added per second; None if that is not known, or something was removed."""
    if before is None or earlier is None or later is None or later < earlier:
        return None
    elapsed_ms = now.time_ms - before.time_ms
    return (later - earlier) * 1000 / elapsed_ms if elapsed_ms > 0 else None


def _sum(rows: Sequence[Row], key: str) -> float | None:
    return _total([it for it in (row[key] for row in rows) if isinstance(it, int | float)])


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
