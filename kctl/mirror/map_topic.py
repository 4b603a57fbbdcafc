"""Reads what a mirror keeps in its target cluster: its map, its positions, and its topics."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from kctl.client.consumer import PartitionReader
from kctl.client.offsets import OffsetsClient
from kctl.errors import KctlError, NotFoundError, UsageError
from kctl.mirror.formats import (
    MirrorPosition,
    decode_run,
    group_of,
    map_topic_of,
    parse_position,
)
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.settings import TRANSACTION_TIMEOUT_MS
from kctl.model import TopicPartition
from kctl.protocol.constants import READ_COMMITTED, READ_UNCOMMITTED
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.client.router import Router

# How long a reader of a map waits for transactions that may hide runs: a coordinator looks for
# those that have timed out every ten seconds, and may be moving.
HIDDEN_MS_MAX = TRANSACTION_TIMEOUT_MS + 30_000
_WAIT_MS = 200


class HiddenRunsError(KctlError):
    """A transaction that does not end hides runs of a map."""


async def read_map(
    target: "Router",
    name: str,
    sources: Collection[TopicPartition] | None = None,
    *,
    only_last: bool = False,
) -> dict[TopicPartition, OffsetMap]:
    """Return the map of each source partition that mirror `name` has copied, or of `sources` only.

    `target` is the cluster that the mirror writes to. With `only_last` a map has its last run only:
    all runs of a large mirror are many. Raise NotFoundError if it has no such mirror,
    HiddenRunsError if a transaction in the map does not end.
    """
    partition = TopicPartition(map_topic_of(name), 0)
    view = await target.refresh([partition.topic])
    if partition.partition not in view.partitions_of(partition.topic):
        raise NotFoundError(
            f"The target has no mirror {name}", hint=f"it would have the topic {partition.topic}"
        )
    start = (await OffsetsClient(target).earliest([partition]))[partition]
    if start.error is not None:
        raise start.error
    end = await _stable_end(target, partition)
    maps: dict[TopicPartition, OffsetMap] = {}
    reader = PartitionReader(
        target, {partition: start.offset}, {partition: end}, isolation_level=READ_COMMITTED
    )
    try:
        while not reader.is_done:
            for fetched in await reader.poll():
                run = decode_run(fetched.record.key, fetched.record.value)
                if run is not None and (sources is None or run.source in sources):
                    offsets = maps.setdefault(run.source, OffsetMap())
                    offsets.add(run)
                    if only_last:
                        offsets.keep_last()
    finally:
        reader.close()
    return maps


async def _stable_end(target: "Router", partition: TopicPartition) -> int:
    """Return the end of the map's partition, once no transaction is open before it.

    All workers of a mirror write to this partition. The transaction of one that died hides what the
    others have committed behind it: a map without these runs would translate offsets past them.
    """
    clock = target.runtime.clock
    end = await _end(target, partition, READ_UNCOMMITTED)
    deadline_ms = clock.monotonic_ms() + HIDDEN_MS_MAX
    while (stable := await _end(target, partition, READ_COMMITTED)) < end:
        if clock.monotonic_ms() >= deadline_ms:
            raise HiddenRunsError(
                f"{partition} of the target cannot be read from offset {stable} on: a transaction"
                " is open there and does not end",
                hint=f"kctl txn hanging --topic {partition.topic} shows it, kctl txn abort ends it",
            )
        await sleep(target.runtime.scheduler, _WAIT_MS)
    return end


async def _end(target: "Router", partition: TopicPartition, isolation_level: int) -> int:
    offsets = OffsetsClient(target)
    listed = (await offsets.latest([partition], isolation_level=isolation_level))[partition]
    if listed.error is not None:
        raise listed.error
    return listed.offset


async def read_positions(target: "Router", name: str) -> dict[TopicPartition, MirrorPosition]:
    """Return the positions of mirror `name` by partition of the *target*; empty if it has none.

    Raise CorruptDataError if something else has committed offsets for the mirror's group.
    """
    return (await read_kept(target, name))[0]


async def read_kept(
    target: "Router", name: str
) -> tuple[dict[TopicPartition, MirrorPosition], str | None]:
    """Return the positions of mirror `name`, as `read_positions` does, and what it keeps about its
    topics (see `kept_choice`); None if it keeps nothing."""
    committed = await OffsetsClient(target).committed(group_of(name))
    topics = committed.pop(TopicPartition(map_topic_of(name), 0), None)
    positions = {
        partition: parse_position(found.offset, found.metadata)
        for partition, found in committed.items()
        if found.error is None and found.offset >= 0
    }
    return positions, None if topics is None or topics.error is not None else topics.metadata


async def check_source(source: "Router", name: str, positions: Iterable[MirrorPosition]) -> None:
    """Raise UsageError if mirror `name` with these positions copies another cluster than `source`.
    An id that is unknown is not compared."""
    await source.refresh([])
    source_id = source.view.cluster_id
    for position in positions:
        if None not in (position.cluster_id, source_id) and position.cluster_id != source_id:
            raise UsageError(
                f"Mirror {name} copies cluster {position.cluster_id}, not {source_id}",
                hint="name the source that it copies, or another mirror with --name",
            )
