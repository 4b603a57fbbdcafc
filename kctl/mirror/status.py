"""The lag of a mirror: what the source has and the mirror has not copied yet, per partition.

A mirror keeps in its target which topics it selects. So those are listed, too, of which nothing was
copied yet: a topic that was created a moment ago, or while no mirror ran.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.client.consumer import PartitionReader
from kctl.counts import offset_range
from kctl.errors import KctlError, NotFoundError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.kept_choice import decode_choice
from kctl.mirror.map_topic import check_source, read_kept
from kctl.mirror.mirror_plan import TopicFacts
from kctl.mirror.topics import TopicChoice, chosen
from kctl.model import TopicPartition
from kctl.protocol.constants import READ_COMMITTED
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

# Fetches that look for the oldest record that is not copied; beyond that its age is unknown.
_POLLS_MAX = 50


class MirrorState(StrEnum):
    """How a mirrored partition stands."""

    CAUGHT_UP = "caught up"
    BEHIND = "behind"
    # The source deleted offsets before they were copied, or its log ends before the position.
    LOST = "lost"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A mirrored partition; None stands for what is unknown."""

    source: TopicPartition
    target: TopicPartition
    # The next offset to copy, and the source's committed end.
    position: int
    end: int | None = None
    state: MirrorState = MirrorState.UNREACHABLE
    # Offsets between both; no more records than that are missing.
    lag_records: int | None = None
    lag_bytes: int | None = None
    # The age of the oldest record that is not copied.
    lag_ms: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """How a mirror stands."""

    partitions: list[PartitionStatus]
    # Whether the mirror keeps which topics it selects; if not, those are missing of which nothing
    # was copied.
    knows_topics: bool = True

    @property
    def is_caught_up(self) -> bool:
        """Return whether nothing is left to copy of the partitions that are known."""
        return all(it.state is MirrorState.CAUGHT_UP for it in self.partitions)


async def mirror_status(
    source: "AdminClient", target: "AdminClient", name: str, now_ms: int
) -> MirrorStatus:
    """Return the status of each partition of the topics that mirror `name` selects or has positions
    for. One of which nothing was copied stands at the start of the source's log.

    NotFoundError if the target has nothing of such a mirror, UsageError if it copies another
    cluster than `source`.
    """
    positions, kept = await read_kept(target.router, name)
    choice = None if kept is None else decode_choice(kept)
    if not positions and choice is None:
        raise NotFoundError(
            f"The target has no position of a mirror {name}", hint="kctl mirror run makes one"
        )
    await check_source(source.router, name, positions.values())
    not_copied = await _not_copied(source, positions, choice)
    partitions = [*not_copied.values(), *(it.source for it in positions.values())]
    starts = await source.offsets.earliest(partitions)
    ends = await source.offsets.latest(partitions, isolation_level=READ_COMMITTED)
    positions |= {
        there: MirrorPosition(max(0, starts[it].offset), None, it)
        for there, it in not_copied.items()
    }
    behind = {
        position.source: (position.offset, ends[position.source].offset)
        for position in positions.values()
        if ends[position.source].error is None
        and starts[position.source].error is None
        and starts[position.source].offset <= position.offset < ends[position.source].offset
    }
    oldest = await _oldest_timestamps(source, behind)
    sizes = await _bytes_per_offset(source, {it: starts[it].offset for it in behind}, behind)
    found = []
    for there, position in sorted(positions.items()):
        it = position.source
        error = ends[it].error or starts[it].error
        if error is not None:
            found.append(PartitionStatus(it, there, position.offset, detail=str(error)))
            continue
        found.append(
            _status(position, there, starts[it].offset, ends[it].offset, sizes.get(it),
                    None if it not in oldest else max(0, now_ms - oldest[it]))
        )  # fmt: skip
    return MirrorStatus(found, choice is not None)


async def _not_copied(
    source: "AdminClient",
    positions: Mapping[TopicPartition, MirrorPosition],
    choice: TopicChoice | None,
) -> dict[TopicPartition, TopicPartition]:
    """Return the source's partitions without a position, by partition of the target: those of
    topics that have some, and those of topics that `choice` selects. A topic that is gone has none:
    its positions show that."""
    targets = {position.source.topic: there.topic for there, position in positions.items()}
    if choice is None:
        described = await source.topics.describe(sorted(targets))
    else:
        described = await source.topics.list_topics()
        listed = [TopicFacts(it.name, len(it.partitions), {}, it.is_internal) for it in described]
        for facts in chosen(listed, choice.selects):
            targets.setdefault(facts.name, choice.rename(facts.name))
    known = {position.source for position in positions.values()}
    found: dict[TopicPartition, TopicPartition] = {}
    for topic in described:
        for each in topic.partitions if topic.name in targets else ():
            partition = TopicPartition(topic.name, each.partition)
            there = TopicPartition(targets[topic.name], each.partition)
            # Another topic may have been copied under this name.
            if partition not in known and there not in positions:
                found[there] = partition
    return found


async def watch_status(
    source: "AdminClient",
    target: "AdminClient",
    name: str,
    every_ms: int,
    on_status: Callable[[MirrorStatus], object],
    on_error: Callable[[KctlError], object],
    *,
    until_caught_up: bool = False,
) -> None:
    """Call `on_status` with the status every `every_ms`, until cancelled or, with
    `until_caught_up`, no partition is behind.

    A failed look is passed to `on_error` and repeated; the first one must succeed.
    """
    runtime = target.router.runtime
    is_first = True
    while True:
        try:
            found = await mirror_status(source, target, name, runtime.clock.wall_ms())
            on_status(found)
            if until_caught_up and found.is_caught_up:
                return
        except KctlError as error:
            if is_first:
                raise
            on_error(error)
        is_first = False
        await sleep(runtime.scheduler, every_ms)


def _status(
    position: MirrorPosition,
    target: TopicPartition,
    start: int,
    end: int,
    bytes_each: float | None,
    lag_ms: int | None,
) -> PartitionStatus:
    at = position.offset
    lag = max(0, end - at)
    if at < start:
        were = "was" if at == start - 1 else "were"
        state, detail = MirrorState.LOST, f"{offset_range(at, start - 1)} {were} deleted"
    elif at > end:
        state, detail = MirrorState.LOST, f"the source ends at {end}, before the position"
    else:
        state, detail = MirrorState.BEHIND if lag else MirrorState.CAUGHT_UP, ""
    lag_bytes = None if bytes_each is None else round(lag * bytes_each)
    return PartitionStatus(
        position.source, target, at, end, state, lag, lag_bytes if lag else 0,
        lag_ms if lag else 0, detail,
    )  # fmt: skip


async def _oldest_timestamps(
    admin: "AdminClient", behind: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Return the timestamp of the first committed record of each range of offsets, where found."""
    found: dict[TopicPartition, int] = {}
    if not behind:
        return found
    reader = PartitionReader(
        admin.router,
        {it: first for it, (first, _) in behind.items()},
        {it: end for it, (_, end) in behind.items()},
        isolation_level=READ_COMMITTED,
    )
    try:
        for _ in range(_POLLS_MAX):
            if reader.is_done or len(found) == len(behind):
                break
            for fetched in await reader.poll():
                partition = TopicPartition(fetched.topic, fetched.partition)
                found.setdefault(partition, fetched.record.timestamp)
    finally:
        reader.close()
    return {it: timestamp for it, timestamp in found.items() if timestamp >= 0}


async def _bytes_per_offset(
    admin: "AdminClient",
    starts: Mapping[TopicPartition, int],
    behind: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, float]:
    """Return the average bytes of log per offset; empty if the brokers do not report sizes."""
    if not behind:
        return {}
    try:
        described = await admin.log_dirs.describe(topics={it.topic for it in behind})
    except KctlError:
        return {}
    sizes: dict[TopicPartition, int] = {}
    for directory in described:
        for replica in directory.replicas:
            sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size_bytes)
    return {
        it: sizes[it] / max(1, end - starts[it]) for it, (_, end) in behind.items() if it in sizes
    }
