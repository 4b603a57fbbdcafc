"""Translates offsets between source and target by a mirror's map: exactly, or not at all.

An offset is that of a consumer: the next record to read. It translates to the other side's offset
of the first copied record at or after it. Beyond what the mirror has copied nothing is known yet,
and nothing is guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.client.consumer import PartitionReader
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.map_topic import check_source, read_map, read_positions
from kctl.mirror.offset_map import OffsetMap
from kctl.model import TopicPartition
from kctl.protocol.constants import READ_COMMITTED

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient


@dataclass(frozen=True, slots=True)
class Translation:
    """An offset of one side and its translation, or why there is none."""

    partition: TopicPartition
    offset: int
    # The partition on the other side; None if the mirror does not copy this one.
    to_partition: TopicPartition | None = None
    to_offset: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Translator:
    """The map and the positions of a mirror, by partition of the source."""

    maps: Mapping[TopicPartition, OffsetMap]
    positions: Mapping[TopicPartition, MirrorPosition]

    def to_target(self, partition: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the source."""
        offsets = self.maps.get(partition)
        if offsets is None or not offsets.runs:
            return Translation(partition, offset, reason="the mirror has copied nothing of it")
        target = offsets.runs[-1].target
        done = self.done(partition)
        if offset > done:
            reason = f"the mirror has copied up to offset {done}"
            return Translation(partition, offset, target, reason=reason)
        first = offsets.runs[0]
        if offset < first.source_offset and first.target_offset > 0 and not offsets.covers(offset):
            # Runs before it may have been lost with the map's topic.
            reason = f"the map begins at offset {first.source_offset}"
            return Translation(partition, offset, target, reason=reason)
        return Translation(partition, offset, target, offsets.to_target(offset))

    def at_beginning(self, partition: TopicPartition, offset: int) -> Translation | None:
        """Translate the offset at which the mirror begins, of a partition of which it has copied
        nothing yet; None for any other. Records of others may be at the target already."""
        offsets = self.maps.get(partition)
        if offsets is None or offsets.runs or offsets.begin is None:
            return None
        begin = offsets.begin
        if offset != begin.source_offset:
            return None
        return Translation(partition, offset, begin.target, begin.target_offset)

    def to_source(self, partition: TopicPartition, offset: int) -> Translation:
        """Translate an offset of the target."""
        written = self.written(partition)
        if written is None:
            return Translation(partition, offset, reason="the mirror has written nothing to it")
        source, end = written
        if offset > end:
            reason = f"the mirror has written up to offset {end}"
            return Translation(partition, offset, source, reason=reason)
        # At the end the mirror's position is past what it left out, such as aborted records.
        at = self.done(source) if offset == end else self.maps[source].to_source(offset)
        return Translation(partition, offset, source, at)

    def written(self, partition: TopicPartition) -> tuple[TopicPartition, int] | None:
        """Return the source of a partition of the target, and the offset after the last record that
        was copied from there; None if the mirror has written nothing to it."""
        for source, offsets in self.maps.items():
            if offsets.runs and offsets.runs[-1].target == partition:
                return source, max(run.target_end for run in offsets.runs)
        return None

    def done(self, partition: TopicPartition) -> int:
        """Return the source offset up to which the mirror has copied."""
        position = self.positions.get(partition)
        end = self.maps[partition].source_end or 0
        return end if position is None else max(position.offset, end)


async def read_translator(target: "AdminClient", name: str) -> Translator:
    """Read what mirror `name` keeps in the target; NotFoundError if there is no such mirror."""
    # The positions first: a map that is read after them covers them.
    positions = await read_positions(target.router, name)
    by_source = {position.source: position for position in positions.values()}
    return Translator(await read_map(target.router, name), by_source)


async def translate_offsets(
    target: "AdminClient",
    name: str,
    offsets: Sequence[tuple[TopicPartition, int]],
    *,
    to_source: bool = False,
) -> list[Translation]:
    """Return the translations of offsets by the map of mirror `name` in `target`."""
    translator = await read_translator(target, name)
    if to_source:
        return await _to_source(translator, target, offsets)
    return [translator.to_target(partition, offset) for partition, offset in offsets]


async def translate_group_of(
    origin: "AdminClient", target: "AdminClient", name: str, group: str, *, to_source: bool = False
) -> list[Translation]:
    """Return the translations of the offsets that a group has committed in the cluster `origin`,
    by the map of mirror `name` in `target`; see `translate_group`. UsageError if
    that is to be the source, and the mirror copies another cluster."""
    translator = await read_translator(target, name)
    if not to_source:
        await check_source(origin.router, name, translator.positions.values())
    return await translate_group(translator, origin, group, to_source=to_source)


async def translate_group(
    translator: Translator, admin: "AdminClient", group: str, *, to_source: bool = False
) -> list[Translation]:
    """Return the translations of all offsets that a group has committed in the cluster of `admin`.

    With `to_source` it is the target. KctlError if the group does not exist or has committed none.
    """
    from kctl.admin.committed_offsets import committed_offsets

    committed = await committed_offsets(admin, group)
    offsets = [(it, found.offset) for it, found in sorted(committed.items()) if found.offset >= 0]
    if to_source:
        return await _to_source(translator, admin, offsets)
    return [translator.to_target(partition, offset) for partition, offset in offsets]


async def _to_source(
    translator: Translator, target: "AdminClient", offsets: Iterable[tuple[TopicPartition, int]]
) -> list[Translation]:
    """Translate offsets of the target. A consumer that is at the end there commits the offset after
    the marker of the mirror's last transaction: it has read what the mirror has written."""
    found: list[Translation] = []
    for partition, offset in offsets:
        written = translator.written(partition)
        at = offset
        if written is not None and offset > written[1]:
            at = written[1] if await _is_empty(target, partition, written[1], offset) else offset
        found.append(replace(translator.to_source(partition, at), offset=offset))
    return found


async def _is_empty(target: "AdminClient", partition: TopicPartition, first: int, end: int) -> bool:
    """Return whether a partition has no committed records from offset `first` to `end`; False if
    that is not known."""
    start = (await target.offsets.earliest([partition]))[partition]
    stable = (await target.offsets.latest([partition], isolation_level=READ_COMMITTED))[partition]
    if start.error is not None or stable.error is not None:
        return False
    if start.offset > first or stable.offset < end:
        return False
    reader = PartitionReader(
        target.router, {partition: first}, {partition: end}, isolation_level=READ_COMMITTED
    )
    try:
        while not reader.is_done:
            if await reader.poll():
                return False
    finally:
        reader.close()
    return True
