"""ClusterSource: a mirror's source that is a cluster of Kafka 0.8 or later."""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kctl.client.consumer import PartitionReader
from kctl.client.offsets import NO_OFFSET, ListedOffset, OffsetsClient
from kctl.mirror.groups import FoundGroups, SelectsGroup, read_groups
from kctl.mirror.mirror_plan import TopicFacts
from kctl.mirror.source_reader import SourceReader
from kctl.mirror.sources import BatchReader
from kctl.mirror.topics import chosen, describe_topics
from kctl.model import TopicPartition
from kctl.protocol.constants import READ_COMMITTED
from kctl.protocol.error_codes import ApiError
from kctl.records.record import Record

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.router import Router


class ClusterSource:
    """See MirrorSource."""

    numbering: None = None

    def __init__(self, admin: "AdminClient") -> None:
        self.admin = admin

    async def describe(self, selects: Callable[[str], bool]) -> tuple[str | None, list[TopicFacts]]:
        """Ask the brokers; raise UnreachableError."""
        await self.admin.router.refresh([])
        listed = [
            TopicFacts(topic.name, len(topic.partitions), {}, topic.is_internal)
            for topic in await self.admin.topics.list_topics()
        ]
        names = [topic.name for topic in chosen(listed, selects)]
        facts = await describe_topics(self.admin, names)
        facts.sort(key=lambda topic: topic.name)
        return self.admin.router.view.cluster_id, facts

    async def groups(self, selects: SelectsGroup, names: Container[str]) -> FoundGroups:
        """Ask the coordinators."""
        return FoundGroups(await read_groups(self.admin, selects, names))

    def reader(self) -> BatchReader:
        """Return a reader that fetches from the leaders."""
        return SourceReader(self.admin.router)

    def holds(self, partition: TopicPartition) -> bool:  # noqa: ARG002 - as in the Protocol
        """Return True: topics of the target with more partitions are refused."""
        return True

    async def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask the leaders."""
        return await self._listed(partitions, OffsetsClient(self.admin.router).earliest)

    async def ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask the leaders for the last stable offsets."""
        latest = OffsetsClient(self.admin.router).latest
        return await self._listed(partitions, partial(latest, isolation_level=READ_COMMITTED))

    async def _listed(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, ListedOffset]]],
    ) -> dict[TopicPartition, ListedOffset]:
        """Return what `ask` finds. A partition without a leader has an error at once: the others do
        not wait for it."""
        wanted = list(partitions)
        if not wanted:
            return {}
        view = await self.admin.router.refresh(sorted({it.topic for it in wanted}))
        found = await ask([it for it in wanted if view.leader(it) is not None])
        return found | {
            it: ListedOffset(NO_OFFSET, error=ApiError(view.error_of(it)))
            for it in wanted
            if it not in found
        }

    async def records_at(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Record]:
        """Fetch the records."""
        return await fetched_records(self.admin.router, offsets)

    async def next_offset(
        self,
        partition: TopicPartition,  # noqa: ARG002 - as in the Protocol
        mapped_end: int,
    ) -> int:
        """Return the map's end: offsets count records."""
        return mapped_end


async def fetched_records(
    router: "Router",
    offsets: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_COMMITTED,
) -> dict[TopicPartition, Record]:
    """Return the records of a cluster at these offsets; without those that no longer exist, or are
    not visible at the isolation level."""
    found: dict[TopicPartition, Record] = {}
    if not offsets:
        return found
    reader = PartitionReader(
        router,
        dict(offsets),
        {it: offset + 1 for it, offset in offsets.items()},
        isolation_level=isolation_level,
    )
    try:
        while not reader.is_done:
            for fetched in await reader.poll():
                found[TopicPartition(fetched.topic, fetched.partition)] = fetched.record
    finally:
        reader.close()
    return found
