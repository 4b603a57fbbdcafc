"""Compares the last copied record of each partition on both sides when a mirror begins.

The source's epochs show most changes of its history, but not all: a topic that was deleted and
created again begins with the same epoch, and so does a broker that was restored from a backup. The
record itself is a witness: if another one is at its offset now, what was copied is no longer what
the source has. A record that retention or compaction removed proves nothing.

The runs of a map are committed, so the target is read up to its high watermark: an open transaction
of another producer in the topic hides nothing of them.

Kafka 2.7: none; MirrorMaker 2 copies on without noticing
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.client.offsets import ListedOffset, OffsetsClient
from kctl.errors import KctlError
from kctl.mirror.cluster_source import fetched_records
from kctl.mirror.formats import MappedRun
from kctl.mirror.loss import Loss, LossKind
from kctl.mirror.offset_map import OffsetMap
from kctl.model import TopicPartition
from kctl.protocol.constants import READ_UNCOMMITTED
from kctl.records.record import Record

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.mirror.sources import MirrorSource


async def changed_since(
    source: "MirrorSource", target: "Router", maps: Mapping[TopicPartition, OffsetMap]
) -> dict[TopicPartition, Loss | KctlError]:
    """Return what is wrong, by partition of the source: a Loss at the source, or an error if the
    target no longer has the last record that was written to it."""
    lasts = {it: offsets.runs[-1] for it, offsets in maps.items() if offsets.runs}
    there = await _bounds_in_cluster(target, [run.target for run in lasts.values()])
    here = _bounds(await source.starts(lasts), await source.ends(lasts)) if lasts else {}
    found: dict[TopicPartition, Loss | KctlError] = {}
    witnesses: dict[TopicPartition, MappedRun] = {}
    for partition, run in lasts.items():
        if there[run.target][1] < run.target_end:
            found[partition] = KctlError(
                f"{run.target} of the target ends at {there[run.target][1]}, but the mirror has"
                f" written up to {run.target_end}",
                hint="copy it again under another --name, into an empty topic",
            )
        elif _holds(here[partition], run.source_end) and _holds(there[run.target], run.target_end):
            witnesses[partition] = run
    mine = await source.records_at({it: run.source_end - 1 for it, run in witnesses.items()})
    theirs = await fetched_records(
        target,
        {run.target: run.target_end - 1 for run in witnesses.values()},
        isolation_level=READ_UNCOMMITTED,
    )
    for partition, run in witnesses.items():
        copied, original = theirs.get(run.target), mine.get(partition)
        if copied is not None and original is not None and _content(copied) != _content(original):
            at = run.source_end - 1
            found[partition] = Loss(LossKind.REWRITTEN, at, run.source_end, here[partition][0])
    return found


async def rewritten_before(
    source: "MirrorSource", target: "Router", partition: TopicPartition, copied: OffsetMap, end: int
) -> Loss | None:
    """Return a loss if the last record before `end`, at which the source ends now, is another one
    than was copied; None if it is the same, or if there is none to compare.

    A source that ends early was truncated, or is another one that has not grown as far.
    """
    run = copied.run_before(end)
    if run is None:
        return None
    at = min(end, run.source_end) - 1
    there = run.target_offset + at - run.source_offset
    start, last = _bounds(await source.starts([partition]), await source.ends([partition]))[
        partition
    ]
    bounds = (await _bounds_in_cluster(target, [run.target]))[run.target]
    if not _holds((start, last), at + 1) or not _holds(bounds, there + 1):
        return None
    mine = (await source.records_at({partition: at})).get(partition)
    copies = await fetched_records(target, {run.target: there}, isolation_level=READ_UNCOMMITTED)
    theirs = copies.get(run.target)
    if mine is None or theirs is None or _content(mine) == _content(theirs):
        return None
    return Loss(LossKind.REWRITTEN, at, at + 1, start)


def _holds(bounds: tuple[int, int], end: int) -> bool:
    return bounds[0] < end <= bounds[1]


def _content(record: Record) -> tuple[object, ...]:
    # Not the timestamp: the target's topic may set its own.
    return record.key, record.value, record.headers


async def _bounds_in_cluster(
    router: "Router", partitions: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    if not partitions:
        return {}
    offsets = OffsetsClient(router)
    starts = await offsets.earliest(partitions)
    return _bounds(starts, await offsets.latest(partitions))


def _bounds(
    starts: Mapping[TopicPartition, ListedOffset], ends: Mapping[TopicPartition, ListedOffset]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end of each partition."""
    return {it: (_offset(start), _offset(ends[it])) for it, start in starts.items()}


def _offset(listed: ListedOffset) -> int:
    if listed.error is not None:
        raise listed.error
    return listed.offset
