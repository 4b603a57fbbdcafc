"""GroupConsumer: reads the partitions that a group assigns to its member, and commits offsets.

The caller polls, handles the records, reports them with `processed`, and polls again. Commits
contain only processed records, so after a crash records may be read again but none is skipped. The
consumer commits every few seconds, before it gives up partitions in a rebalance, and in `close`.

Kafka 2.7: org.apache.kafka.clients.consumer.KafkaConsumer
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kctl.client.consumer import FetchedRecord, PartitionReader
from kctl.client.group_member import GroupMember
from kctl.client.offsets import OffsetsClient, offsets_or_error
from kctl.model import Position, TopicPartition
from kctl.protocol.constants import READ_UNCOMMITTED
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.client.router import Router

COMMIT_INTERVAL_MS = 5_000
_IDLE_MS = 200


class GroupConsumer:
    """A member of `group_id` reading `topics`; partitions without a commit start at `start`."""

    def __init__(
        self,
        router: "Router",
        group_id: str,
        topics: Sequence[str],
        start: Position,
        *,
        until_end: bool = False,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self._router = router
        self._member = GroupMember(router, group_id, topics)
        self._offsets = OffsetsClient(router)
        self._start = start
        # Stop at the offset where each partition ended when it was assigned.
        self._until_end = until_end
        self._isolation_level = isolation_level
        self._reader: PartitionReader | None = None
        self._uncommitted: dict[TopicPartition, int] = {}
        self._next_commit_ms = 0
        self._notes: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Return the messages for the user since the last call."""
        return self._reader.notes if self._reader is not None else self._notes

    @property
    def is_done(self) -> bool:
        """Return whether all assigned partitions have been read to their ends."""
        return self._reader is not None and not self._member.must_rejoin and self._reader.is_done

    async def poll(self) -> list[FetchedRecord]:
        """Return the next records, or none if none arrived in time; join the group if necessary."""
        self._member.check()
        now_ms = self._router.runtime.clock.monotonic_ms()
        if now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + COMMIT_INTERVAL_MS
            await self._commit()
        # A commit, too, may show that the partitions belong to another member.
        if self._member.must_rejoin or self._reader is None:
            await self._commit()
            self._reader = await self._join()
        if not self._reader.positions:
            await sleep(self._router.runtime.scheduler, _IDLE_MS)
            return []
        return await self._reader.poll()

    def processed(self, records: Iterable[FetchedRecord]) -> None:
        """Mark these records as handled, so that the next commit covers them."""
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._uncommitted[partition] = record.record.offset + 1

    async def close(self) -> None:
        """Commit, and leave the group."""
        if self._reader is not None:
            self._reader.close()
        try:
            await self._commit()
        finally:
            await self._member.leave()

    async def _commit(self) -> None:
        offsets, self._uncommitted = self._uncommitted, {}
        await self._member.commit(offsets)

    async def _join(self) -> PartitionReader:
        if self._reader is not None:
            self._reader.close()
            # Whatever fails below: the old partitions may belong to another member.
            self._reader = None
        partitions = await self._member.join()
        committed = (
            await self._offsets.committed(self._member.group_id, partitions) if partitions else {}
        )
        positions = {p: at for p, at in offsets_or_error(committed).items() if at >= 0}
        fresh = [partition for partition in partitions if partition not in positions]
        resolved = await self._offsets.resolve(
            dict.fromkeys(fresh, self._start), isolation_level=self._isolation_level
        )
        positions |= offsets_or_error(resolved)
        ends = {}
        if self._until_end:
            ends = offsets_or_error(
                await self._offsets.latest(partitions, isolation_level=self._isolation_level)
            )
        return PartitionReader(self._router, positions, ends, isolation_level=self._isolation_level)
