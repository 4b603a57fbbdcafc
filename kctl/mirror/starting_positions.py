"""Where a mirror's worker begins: at its committed positions, else where the map says, else at the
starts of the source.

A position that is not committed yet is committed before anything is copied (`Beginnings`). So what
the source deletes of a partition of which nothing was copied is found to be lost, also if that
happened while no mirror ran. The first start of a mirror is where the source begins then: what was
deleted before it is no loss.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorSourceTask.loadOffsets
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from kctl.client.offsets import OffsetsClient
from kctl.errors import KctlError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import MappedRun, MirrorPosition, group_of, parse_position
from kctl.mirror.map_topic import read_map
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.settings import MirroredTopics, MirrorSettings
from kctl.mirror.source_ends import may_pass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.mirror.sources import MirrorSource

_UNSTABLE_ROUNDS_MAX = 300
_UNSTABLE_WAIT_MS = 200

Positions = dict[TopicPartition, MirrorPosition]
Maps = dict[TopicPartition, OffsetMap]


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Where the partitions of a worker begin, by partition of the source."""

    positions: Positions
    # Those of all partitions; empty if they were neither wanted nor needed.
    maps: Maps
    # Those of `positions` that are not committed.
    uncommitted: Positions
    # Partitions without a position whose beginning cannot be read now, and why.
    unreadable: dict[TopicPartition, KctlError]

    def runs(self, topics: MirroredTopics) -> list[MappedRun]:
        """Return what the map has to say of the positions that are not committed: where those
        begin of which nothing was copied."""
        return [
            MappedRun(source, topics.targets[source.topic], at.offset, 0, 0, at.copy)
            for source, at in self.uncommitted.items()
            if source not in self.maps or not self.maps[source].runs
        ]


class StartingPositions:
    """Reads the positions of the mirror of `settings` from `target`."""

    def __init__(self, source: "MirrorSource", target: "Router", settings: MirrorSettings) -> None:
        self._source = source
        self._target = target
        self._name = settings.name
        self._changes = settings.changes

    async def find(
        self, partitions: Collection[TopicPartition], topics: MirroredTopics, *, with_maps: bool
    ) -> Beginnings:
        """Return where `partitions` of the target begin. Raise KctlError if that cannot be read, or
        is a position of another source."""
        committed = await self._committed(list(partitions))
        by_target = topics.sources
        found: Positions = {}
        unknown: list[TopicPartition] = []
        for partition in partitions:
            source = TopicPartition(by_target[partition.topic], partition.partition)
            if partition not in committed:
                unknown.append(source)
                continue
            found[source] = self._checked(source, committed[partition], topics)
        if not unknown and not with_maps:
            return Beginnings(found, {}, {}, {})
        maps = await read_map(self._target, self._name, frozenset([*found, *unknown]))
        uncommitted, unreadable = await self._without_commit(unknown, maps, topics)
        return Beginnings(found | uncommitted, maps, uncommitted, unreadable)

    async def _without_commit(
        self, unknown: list[TopicPartition], maps: Maps, topics: MirroredTopics
    ) -> tuple[Positions, dict[TopicPartition, KctlError]]:
        """Return positions for partitions without a committed one: the end of the map, where the
        map says that the mirror begins, or the start of the source. The second are those that have
        no leader now."""
        found: Positions = {}
        unreadable: dict[TopicPartition, KctlError] = {}
        starts = await self._source.starts(unknown) if unknown else {}
        for source, start in starts.items():
            if start.error is not None:
                if not may_pass(start.error):
                    raise start.error
                unreadable[source] = start.error
                continue
            known = maps.get(source)
            if known is not None:
                self._check_target(source, known, topics)
            at = await self._mapped_position(source, known)
            numbering = self._source.numbering
            found[source] = MirrorPosition(
                start.offset if at is None else at, topics.source_id, source,
                copy=known.copy if known is not None else 0,
                topic_id=topics.topic_ids.get(source.topic),
                # The options may be other ones by the time that something is copied.
                changes=self._changes if known is not None and known.runs else "",
                server_partition="" if numbering is None else numbering.name(source),
            )  # fmt: skip
        return found, unreadable

    async def _mapped_position(self, source: TopicPartition, known: OffsetMap | None) -> int | None:
        """Return the position that the map shows; None if it shows none."""
        if known is None:
            return None
        end = known.source_end
        if end is None and known.begin is None:
            return None
        if self._source.numbering is not None:
            raise UsageError(
                f"Mirror {self._name} copies {source}, but its position has expired, which said of"
                " which broker",
                hint="mirror to other topics under another --name",
            )
        if end is not None:
            return await self._source.next_offset(source, end)
        return None if known.begin is None else known.begin.source_offset

    def _check_target(
        self, source: TopicPartition, known: OffsetMap, topics: MirroredTopics
    ) -> None:
        """Raise UsageError if what the map knows went to another topic.

        To continue at the end of the map would leave all of that out."""
        wanted = topics.targets[source.topic]
        last = known.runs[-1] if known.runs else known.begin
        if last is not None and last.target_topic != wanted:
            raise UsageError(
                f"Mirror {self._name} copies {source} to {last.target_topic}, not to {wanted}",
                hint="keep its --rename, or give this mirror another --name",
            )

    def _checked(
        self, source: TopicPartition, found: MirrorPosition, topics: MirroredTopics
    ) -> MirrorPosition:
        numbering = self._source.numbering
        name = "" if numbering is None else numbering.name(source)
        is_same = found.server_partition == name
        if found.source != source or found.cluster_id != topics.source_id or not is_same:
            raise UsageError(
                f"Mirror {self._name} copies {found.source} of cluster"
                f" {found.cluster_id}, not {source} of {topics.source_id}",
                hint="give this mirror another --name",
            )
        return found

    async def _committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, MirrorPosition]:
        if not partitions:
            return {}
        offsets = OffsetsClient(self._target)
        found = await offsets.committed(group_of(self._name), partitions, require_stable=True)
        for _ in range(_UNSTABLE_ROUNDS_MAX):
            codes = {it.error.code for it in found.values() if isinstance(it.error, ApiError)}
            if ErrorCode.UNSTABLE_OFFSET_COMMIT not in codes:
                break
            # A worker died in a transaction, which its coordinator is going to abort.
            await sleep(self._target.runtime.scheduler, _UNSTABLE_WAIT_MS)
            found = await offsets.committed(group_of(self._name), partitions, require_stable=True)
        for it in found.values():
            if it.error is not None:
                raise it.error
        return {
            partition: parse_position(it.offset, it.metadata)
            for partition, it in found.items()
            if it.offset >= 0
        }
