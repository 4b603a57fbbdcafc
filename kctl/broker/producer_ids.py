"""ProducerIdManager: producer ids for idempotent producers, from blocks of 1,000 in the store.

Kafka 2.7: kafka.coordinator.transaction.ProducerIdManager.
"""

from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler
from kctl.store.cluster_store import ClusterStore
from kctl.store.znodes import ProducerIdBlock


class ProducerIdManager:
    """Allocates producer ids; no id is returned twice in a cluster."""

    def __init__(self, scheduler: Scheduler, cluster_store: ClusterStore, broker_id: int) -> None:
        self._scheduler = scheduler
        self._store = cluster_store
        self._broker_id = broker_id
        self._next_id = 0
        self._last_id = -1
        # The current allocation, shared by all concurrent callers.
        self._allocation: Future[None] | None = None

    async def next_producer_id(self) -> int:
        """Return an unused id; raise StoreError if no new block can be allocated."""
        while self._next_id > self._last_id:
            if self._allocation is None or self._allocation.done:
                self._allocation = self._scheduler.spawn(self._allocate(), "producer-ids")
            await self._allocation
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    async def _allocate(self) -> None:
        block: ProducerIdBlock = await self._store.allocate_producer_id_block(self._broker_id)
        self._next_id, self._last_id = block.first, block.last
