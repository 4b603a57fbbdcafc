"""What the mirrors into a cluster do, from two looks at what they keep there and at their metrics.

Positions are those of the source: their differences are the rates of copying. Only the source and
the mirror's own metrics tell how much is left, so that lag, bytes and losses are known where
metrics can be read.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.cluster_activity import Look, Row
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.metrics import mirror_families as f
from kctl.metrics.family import Family
from kctl.metrics.parse import ParsedMetrics, ParsedSample
from kctl.mirror.formats import MirrorPosition, mirror_of_group, mirror_of_map
from kctl.mirror.map_topic import read_positions
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.broker_metrics import MetricsSource
    from kctl.admin.group_descriptions import GroupDescription

# Mirrors whose positions are read in one look; the first by name.
MIRRORS_MAX = 100
_STATES = {
    "Stable": "running", "PreparingRebalance": "rebalancing", "CompletingRebalance": "rebalancing",
}  # fmt: skip


@dataclass(slots=True)
class MirrorFacts:
    """What the target has of a mirror."""

    # None: its group has expired, and only the map is left.
    group: "GroupDescription | None" = None
    # By partition of the target.
    positions: dict[TopicPartition, MirrorPosition] = field(default_factory=dict)


@dataclass(slots=True)
class MirrorsLook(Look):
    """The mirrors into a cluster at a time, by name."""

    mirrors: dict[str, MirrorFacts] = field(default_factory=dict, kw_only=True)


async def look_at_mirrors(
    admin: "AdminClient", metrics: "MetricsSource | None" = None
) -> MirrorsLook:
    """Return the mirrors that keep something in the cluster, and what their metrics say. Raise
    UnreachableError; errors of parts are notes."""
    view = await admin.router.refresh(None)
    runtime = admin.router.runtime
    found = MirrorsLook(runtime.clock.monotonic_ms())
    mirrors = found.mirrors
    for topic in view.topics:
        name = mirror_of_map(topic)
        if name is not None:
            mirrors[name] = MirrorFacts()
    try:
        listed = (await admin.groups.list_groups()).groups
        mine = [it for it in listed if mirror_of_group(it.group_id) is not None]
        for group in await admin.groups.describe_listed(mine):
            mirrors[mirror_of_group(group.group_id) or ""] = MirrorFacts(group)
    except KctlError as error:
        found.notes.append(f"no groups: {error}")
    known = [name for name in sorted(mirrors) if mirrors[name].group is not None]
    if len(known) > MIRRORS_MAX:
        found.notes.append(f"positions of {MIRRORS_MAX} of {len(known)} mirrors")
    for name in known[:MIRRORS_MAX]:
        try:
            mirrors[name].positions = await read_positions(admin.router, name)
        except KctlError as error:
            found.notes.append(f"{name}: {error}")
    if metrics is not None:
        scrapes = await metrics.read(runtime.web, list(view.brokers.values()))
        found.scrapes, found.scraped_ms = scrapes.by_url, runtime.clock.monotonic_ms()
        found.notes += scrapes.notes
    return found


def mirror_rows(before: Look | None, now: Look) -> list[Row]:
    """Return a row per mirror."""
    if not isinstance(now, MirrorsLook):
        return []
    rows: list[Row] = []
    for name, facts in sorted(now.mirrors.items()):
        parts = mirror_partition_rows(before, now, name)
        rates = [it for it in (part["records_s"] for part in parts) if isinstance(it, float)]
        state = "expired"
        if facts.group is not None:
            state = _STATES.get(facts.group.state, "stopped")
        seconds = [it.value for it in _samples(now, f.LAG_SECONDS, name)]
        stopped = sum(it.value for it in _samples(now, f.STOPPED, name))
        rows.append(
            {
                "mirror": name,
                "state": state,
                "records_s": sum(rates) if rates else None,
                "bytes_s": _bytes_rate(before, now, name),
                "lag": _whole(now, f.LAG, name),
                "lag_bytes": _whole(now, f.LAG_BYTES, name),
                "lag_seconds": max(seconds, default=None),
                "losses": _whole(now, f.LOSSES, name),
                "stopped": int(stopped) if any(_samples(now, f.PARTITIONS, name)) else None,
                "partitions": len(facts.positions),
                "workers": len(facts.group.members) if facts.group is not None else 0,
            }
        )
    return rows


def mirror_partition_rows(before: Look | None, now: Look, name: str) -> list[Row]:
    """Return a row per partition that mirror `name` has a position for."""
    if not isinstance(now, MirrorsLook) or name not in now.mirrors:
        return []
    earlier = before.mirrors.get(name) if isinstance(before, MirrorsLook) else None
    reasons = {
        (it.labels.get("target"), it.labels.get("partition")): it.labels.get("reason", "")
        for it in _samples(now, f.STOPPED, name)
    }
    rows: list[Row] = []
    for target, at in sorted(now.mirrors[name].positions.items()):
        last = earlier.positions.get(target) if earlier is not None else None
        rate = None
        elapsed_ms = now.time_ms - before.time_ms if before is not None else 0
        if last is not None and last.copy == at.copy and elapsed_ms > 0:
            rate = (at.offset - last.offset) * 1000 / elapsed_ms
        reason = reasons.get((target.topic, str(target.partition)))
        rows.append(
            {
                "topic": at.source.topic,
                "partition": target.partition,
                "target": target.topic,
                "records_s": rate if rate is None or rate >= 0 else None,
                "position": at.offset,
                "stopped": reason,
            }
        )
    return rows


def _samples(look: Look, family: Family, name: str) -> Iterator[ParsedSample]:
    for scrape in look.scrapes.values():
        yield from scrape.metrics.of(family.name, mirror=name)


def _whole(look: Look, family: Family, name: str) -> int | None:
    """Return the sum of all workers that serve metrics; None without any."""
    values = [it.value for it in _samples(look, family, name)]
    return int(sum(values)) if values else None


def _bytes_rate(before: Look | None, now: Look, name: str) -> float | None:
    """Return the bytes per second of the workers that served metrics at both times."""
    elapsed_ms = now.scraped_ms - before.scraped_ms if before is not None else 0
    if before is None or elapsed_ms <= 0:
        return None
    grown: list[float] = []
    for url, scrape in now.scrapes.items():
        if url not in before.scrapes or not scrape.metrics.of(f.BYTES.name, mirror=name):
            continue
        more = _bytes(scrape.metrics, name) - _bytes(before.scrapes[url].metrics, name)
        # A worker that started again counts from 0.
        if more >= 0:
            grown.append(more)
    return sum(grown) * 1000 / elapsed_ms if grown else None


def _bytes(metrics: ParsedMetrics, name: str) -> float:
    return sum(it.value for it in metrics.of(f.BYTES.name, mirror=name))
