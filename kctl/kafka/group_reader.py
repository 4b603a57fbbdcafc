"""ZooKeeperGroupReader: the records of a group on ZooKeeper, for a program on kctl's own loop.

It is a member with one stream of each topic, all read as one; `kctl consume --zookeeper` prints
what it reads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from kctl.client.consumer import FetchedRecord
from kctl.errors import KctlError
from kctl.kafka.connector import ConnectorCore
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.old_names import SECURITY_PREFIXES
from kctl.runtime.runtime import Runtime
from kctl.store.consumer_znodes import BrokerPartition

if TYPE_CHECKING:
    from kctl.kafka.streams import Chunk


class ZooKeeperGroupReader:
    """Reads what the group assigns to its member; `notes` has what made it leave for a while."""

    is_done = False

    def __init__(self, core: ConnectorCore, topics: Sequence[str]) -> None:
        self.notes: list[str] = []
        self._core = core
        core.begin(dict.fromkeys(topics, 1))
        [self._queue] = core.queues
        self._chunk: Chunk | None = None

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        zookeeper: str,
        group: str,
        topics: Sequence[str],
        *,
        is_first: bool,
        properties: Mapping[str, str],
        check_cluster: Callable[[str | None], object],
    ) -> Self:
        """Connect and join; raise UnreachableError, and what `check_cluster` raises for the
        cluster's id.

        With `is_first` a partition without an offset begins at its first record. Of `properties`,
        settings of today's clients, those of security are used.
        """
        given = {
            name: value for name, value in properties.items() if name.startswith(SECURITY_PREFIXES)
        }
        own = {
            "zookeeper.connect": zookeeper,
            "group.id": group,
            "auto.offset.reset": "smallest" if is_first else "largest",
        }
        core = ConnectorCore(runtime, ConnectorConfig(given | own), has_one_queue=True)
        await core.open()
        try:
            check_cluster(await core.cluster_id())
            return cls(core, topics)
        except BaseException:
            await core.close()
            raise

    async def poll(self) -> list[FetchedRecord]:
        """Return the records of the next chunk; none if the member had to leave the group."""
        try:
            chunk = await self._core.take_chunk(self._queue)
        except KctlError as error:
            self.notes.append(f"{error}; trying again")
            return []
        self._chunk = chunk
        if chunk is None:
            return []
        topic, partition = chunk.claim.partition
        broker_id = None
        if isinstance(partition, BrokerPartition):
            broker_id, partition = partition
        return [FetchedRecord(topic, partition, it, 0, broker_id) for it in chunk.records]

    def processed(self, records: Sequence[FetchedRecord]) -> None:
        """Mark the first records of the last chunk as processed: they are committed."""
        chunk = self._chunk
        if chunk is not None and records:
            chunk.claim.position = chunk.offset_after(len(records) - 1)

    async def close(self) -> None:
        """Commit and leave the group."""
        await self._core.close()
