"""Mm2Topics: keeps MirrorMaker 2's own topics in the target, for its clients and dashboards.

A sync is written for each run of the map that begins, a checkpoint for each offset that a group has
committed, and a heartbeat while the mirror turns. They are written after what they describe is
committed, and not in its transaction: readers of 2.7.2 read them uncommitted. A failure delays
them, and is reported once; it does not stop the mirror.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorSourceTask, MirrorCheckpointTask,
MirrorHeartbeatTask
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.errors import KctlError
from kctl.mirror.formats import MappedRun
from kctl.mirror.groups import CommittedByGroup
from kctl.mirror.mm2_formats import (
    HEARTBEATS_TOPIC,
    Checkpoint,
    KeyAndValue,
    Mm2Settings,
    checkpoints_topic,
    encode_checkpoint,
    encode_heartbeat,
    encode_sync,
    offset_syncs_topic,
)
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.raw_batches import keyed_batches
from kctl.mirror.target_writer import TargetWriter
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.sources import MirrorSource

SYNC_INTERVAL_MS = 1_000
# Runs that wait to be written; the oldest are dropped, as they are the least useful.
SYNCS_MAX = 10_000


OnCheckpoints = Callable[[Sequence[Checkpoint], int], object]


class Mm2Topics:
    """Writes the records of one worker."""

    def __init__(
        self,
        source: "MirrorSource",
        target: "AdminClient",
        settings: Mm2Settings,
        say: Callable[[str], object],
    ) -> None:
        self.settings = settings
        # Is called with checkpoints that were written, and how long that took.
        self.on_checkpoints: OnCheckpoints = lambda _points, _latency_ms: None
        self._source = source
        self._runtime = target.router.runtime
        self._writer = TargetWriter(target.router, None)
        self._say = say
        self._is_open = False
        self._failure = ""
        self._runs: deque[MappedRun] = deque(maxlen=SYNCS_MAX)
        # By source partition, where the run began whose sync was written last.
        self._begun: dict[TopicPartition, tuple[int, int]] = {}
        now_ms = self._runtime.clock.monotonic_ms()
        self._syncs_ms = self._heartbeat_ms = now_ms
        self._checkpoints_ms = now_ms + settings.checkpoint_interval_ms

    def add(self, runs: Sequence[MappedRun]) -> None:
        """Take runs whose records are committed."""
        for run in runs:
            began = (run.source_offset, run.target_offset)
            if self._begun.get(run.source) != began:
                self._begun[run.source] = began
                self._runs.append(run)

    async def write_due(
        self, maps: Mapping[TopicPartition, OffsetMap], names: Mapping[str, str]
    ) -> None:
        """Write what is due now; `maps` and `names` are of the partitions of this worker."""
        now_ms = self._runtime.clock.monotonic_ms()
        records: dict[str, list[KeyAndValue]] = {}
        points: list[Checkpoint] = []
        alias = self.settings.source_alias
        if now_ms >= self._syncs_ms and self._runs:
            self._syncs_ms = now_ms + SYNC_INTERVAL_MS
            records[offset_syncs_topic(alias)] = [encode_sync(run) for run in self._runs]
        if self.settings.has_heartbeats and now_ms >= self._heartbeat_ms:
            self._heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms
            beat = encode_heartbeat(alias, self.settings.target_alias, self._wall_ms())
            records[HEARTBEATS_TOPIC] = [beat]
        try:
            is_due = now_ms >= self._checkpoints_ms
            if self.settings.groups is not None and is_due:
                self._checkpoints_ms = now_ms + self.settings.checkpoint_interval_ms
                found = await self._source.groups(self.settings.groups, names)
                points = checkpoints(found.committed, maps, names)
                if points:
                    records[checkpoints_topic(alias)] = [encode_checkpoint(it) for it in points]
            if records:
                await self._write(records)
            self.on_checkpoints(points, self._runtime.clock.monotonic_ms() - now_ms)
        except KctlError as error:
            self._is_open = False
            if str(error) != self._failure:
                self._failure = str(error)
                self._say(f"warning: MirrorMaker 2's topics are not written: {error}")

    async def write_all(
        self, maps: Mapping[TopicPartition, OffsetMap], names: Mapping[str, str]
    ) -> None:
        """Write everything now, at the end of a run."""
        self._syncs_ms = self._heartbeat_ms = self._checkpoints_ms = 0
        await self.write_due(maps, names)

    async def _write(self, records: Mapping[str, Sequence[KeyAndValue]]) -> None:
        if not self._is_open:
            await self._writer.open()
            self._is_open = True
        now_ms = self._wall_ms()
        await self._writer.write(
            {TopicPartition(topic, 0): keyed_batches(it, now_ms) for topic, it in records.items()}
        )
        if offset_syncs_topic(self.settings.source_alias) in records:
            self._runs.clear()
        self._failure = ""

    def _wall_ms(self) -> int:
        return self._runtime.clock.wall_ms()


def checkpoints(
    committed: CommittedByGroup,
    maps: Mapping[TopicPartition, OffsetMap],
    names: Mapping[str, str],
) -> list[Checkpoint]:
    """Return a checkpoint for each offset that groups have committed in the source, by the map. An
    offset beyond what is copied becomes the end of what is copied, and moves on with the mirror."""
    found = []
    for group, offsets in committed.items():
        for source, it in sorted(offsets.items()):
            if source not in maps or source.topic not in names:
                continue
            to = maps[source].to_target(it.offset)
            if to is not None:
                target = TopicPartition(names[source.topic], source.partition)
                found.append(Checkpoint(group, target, it.offset, to, it.metadata or ""))
    return found
