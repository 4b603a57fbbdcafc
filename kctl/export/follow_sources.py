"""The sources of a Follower: live brokers, and directories that grow."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING

from kctl.arrow_files.files import Files
from kctl.arrow_files.log_discovery import find_logs
from kctl.arrow_files.partition_log import PartitionLog
from kctl.errors import NotFoundError, StorageError, UsageError
from kctl.export.export import ExportRequest, with_schema
from kctl.export.follow import Held, Ranges
from kctl.export.live import RecordsGoneError, with_live_schema, write_live_split
from kctl.export.live_plan import LiveSplit, bytes_per_offset, live_partitions, plan_ranges
from kctl.export.manifest import ManifestRow
from kctl.export.options import Isolation
from kctl.export.splits import Split, plan_log
from kctl.export.task import write_split
from kctl.model import Position, PositionKind, TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

__all__ = ["BrokerSource", "DirectorySource"]


class BrokerSource:
    """Topics of live brokers."""

    def __init__(self, admin: "AdminClient") -> None:
        self._admin = admin
        # Patterns and names that have matched a topic: they may later match none.
        self._matched: set[str] = set()
        self._held = Held()

    async def look(self, request: ExportRequest, known: Iterable[TopicPartition]) -> Held:
        """See FollowSource."""
        if not request.topics:
            raise UsageError(
                "Nothing to follow: neither SOURCE nor --topic",
                hint="kctl export --follow -b HOST:PORT --topic NAME --out DIR",
            )
        chosen: dict[TopicPartition, None] = {}
        for topic in request.topics:
            try:
                found = await live_partitions(self._admin, [topic], request.partitions)
            except NotFoundError:
                if topic not in self._matched:
                    raise
                continue
            self._matched.add(topic)
            chosen |= dict.fromkeys(found)
        level = int(request.options.isolation is Isolation.READ_COMMITTED)
        held = Held()
        kinds = (PositionKind.EARLIEST, PositionKind.LATEST)
        starts, ends = [
            await self._resolve(dict.fromkeys(chosen, Position(kind)), level, held)
            for kind in kinds
        ]
        old = set(known)
        begins = {it: request.bounds[0] for it in chosen if it not in old}
        firsts = await self._resolve(begins, level, held)
        for partition in chosen:
            if partition in starts and partition in ends:
                start, end = starts[partition], ends[partition]
                held.ranges[partition] = min(start, end), end
                if partition in firsts:
                    held.begins[partition] = min(max(firsts[partition], start), end)
        self._held = held
        return held

    async def _resolve(
        self, positions: dict[TopicPartition, Position], level: int, held: Held
    ) -> dict[TopicPartition, int]:
        if not positions:
            return {}
        found = await self._admin.offsets.resolve(positions, isolation_level=level)
        for partition, listed in found.items():
            if listed.error is not None:
                held.failures.append(f"{partition}: {listed.error}")
        return {it: listed.offset for it, listed in found.items() if listed.error is None}

    async def with_schema(self, request: ExportRequest) -> ExportRequest:
        """See FollowSource."""
        return await with_live_schema(self._admin.router, self._held.ranges, request)

    async def plan(self, request: ExportRequest, wanted: Ranges) -> Sequence[Split | LiveSplit]:
        """See FollowSource."""
        if not wanted:
            return []
        per_offset = await bytes_per_offset(
            self._admin, {it: self._held.ranges[it] for it in wanted}
        )
        splits: list[Split | LiveSplit] = []
        for partition, ranges in sorted(wanted.items()):
            for each in ranges:
                splits += plan_ranges({partition: each}, request.options, None, per_offset)
        return splits

    async def write(
        self, request: ExportRequest, split: Split | LiveSplit, attempt: str
    ) -> AsyncIterator[ManifestRow]:
        """See FollowSource."""
        assert isinstance(split, LiveSplit)
        async for row in write_live_split(
            self._admin.router, split, request.options, request.out, attempt
        ):
            yield row


class DirectorySource:
    """Log directories that a broker, or a copy of one, writes to."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}

    async def look(self, request: ExportRequest, known: Iterable[TopicPartition]) -> Held:
        """See FollowSource."""
        names = (request.sources, request.topics, request.partitions)
        before = {it.path for log in find_logs(*names) for it in log.segments}
        old = set(known)
        held = Held()
        self._logs = {}
        for log in find_logs(*names):
            # A segment that is followed by another at the first listing is complete at the second.
            log.segments = [it for it in log.segments if it.path in before]
            if not log.segments:
                continue
            log.leave_torn_end()
            partition = log.topic_partition
            self._logs[partition] = log
            start, end = log.start_offset, log.end_offset
            held.ranges[partition] = min(start, end), end
            if partition not in old:
                held.begins[partition] = min(max(log.resolve(request.bounds[0]), start), end)
        return held

    async def with_schema(self, request: ExportRequest) -> ExportRequest:
        """See FollowSource."""
        from dataclasses import replace

        return replace(request, options=with_schema(request, list(self._logs.values())))

    async def plan(self, request: ExportRequest, wanted: Ranges) -> Sequence[Split | LiveSplit]:
        """See FollowSource."""
        splits: list[Split | LiveSplit] = []
        for partition, ranges in sorted(wanted.items()):
            for first, end in ranges:
                bounds = Position(PositionKind.OFFSET, first), Position(PositionKind.OFFSET, end)
                splits += plan_log(self._logs[partition], request.options, bounds)
        return splits

    async def write(
        self, request: ExportRequest, split: Split | LiveSplit, attempt: str
    ) -> AsyncIterator[ManifestRow]:
        """See FollowSource."""
        assert isinstance(split, Split)
        try:
            yield write_split(split, request.options, request.out, attempt)
        except StorageError:
            for piece in split.pieces:
                files, path = Files.of(piece.url)
                if files.find(path) is None:
                    raise RecordsGoneError(f"{path} was deleted while it was read") from None
            raise
