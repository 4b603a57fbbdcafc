"""Where a mirror's worker begins: at its committed positions, else the map's ends or the starts of
the source.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorSourceTask.loadOffsets
"""

from typing import TYPE_CHECKING

from kctl.client.offsets import OffsetsClient
from kctl.errors import UsageError
from kctl.mirror.formats import MirrorPosition, group_of, parse_position
from kctl.mirror.map_topic import read_map
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.settings import MirroredTopics
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


class StartingPositions:
    """Reads the positions of mirror `name` from `target`."""

    def __init__(self, source: "MirrorSource", target: "Router", name: str) -> None:
        self._source = source
        self._target = target
        self._name = name

    async def find(
        self, partitions: list[TopicPartition], topics: MirroredTopics, *, with_maps: bool
    ) -> tuple[Positions, Maps]:
        """Return the positions of `partitions` of the target, by partition of the source, and with
        `with_maps` the maps of all of them. Raise KctlError if one cannot be read, or is that of
        another source."""
        committed = await self._committed(partitions)
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
            return found, {}
        maps = await read_map(self._target, self._name, frozenset([*found, *unknown]))
        return found | await self._without_commit(unknown, maps, topics), maps

    async def _without_commit(
        self, unknown: list[TopicPartition], maps: Maps, topics: MirroredTopics
    ) -> Positions:
        """Return positions for partitions without a committed one: the end of the map, or the start
        of the source."""
        found: Positions = {}
        starts = await self._source.starts(unknown) if unknown else {}
        for source, start in starts.items():
            if start.error is not None:
                raise start.error
            known = maps.get(source)
            if known is not None:
                self._check_target(source, known, topics)
            at = known.source_end if known is not None else None
            numbering = self._source.numbering
            if at is not None and numbering is not None:
                raise UsageError(
                    f"Mirror {self._name} has copied {source}, but its position has expired, which"
                    " said of which broker",
                    hint="mirror to other topics under another --name",
                )
            if at is not None:
                at = await self._source.next_offset(source, at)
            found[source] = MirrorPosition(
                start.offset if at is None else at, topics.source_id, source,
                copy=known.copy if known is not None else 0,
                topic_id=topics.topic_ids.get(source.topic),
                server_partition="" if numbering is None else numbering.name(source),
            )  # fmt: skip
        return found

    def _check_target(
        self, source: TopicPartition, known: OffsetMap, topics: MirroredTopics
    ) -> None:
        """Raise UsageError if what the map knows went to another topic.

        To continue at the end of the map would leave all of that out."""
        wanted = topics.targets[source.topic]
        if known.runs and known.runs[-1].target_topic != wanted:
            raise UsageError(
                f"Mirror {self._name} copies {source} to {known.runs[-1].target_topic}, not to"
                f" {wanted}",
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
