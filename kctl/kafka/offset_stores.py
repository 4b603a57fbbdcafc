"""OffsetStores: a group's offsets in ZooKeeper, in Kafka, or in both, for one consumer.

A commit to ZooKeeper is one with the check of the claim. Kafka cannot check a claim in ZooKeeper:
before a commit to it the consumer asks whether its id, and so its session, still exists. A consumer
that is stopped just between the two can then commit after its session has ended.

Kafka 1.1: kafka.consumer.ZookeeperConsumerConnector (`commitOffsets`, `fetchOffsets`).
"""

from collections.abc import Iterable, Mapping, Sequence

from kctl.client.offsets import CommittedOffset, OffsetsClient
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.kafka.offsets import (
    OffsetsPolicy,
    OffsetsStorage,
    StoredOffset,
    commit_metadata,
    commit_time_ms,
    start_offset,
    to_follow,
)
from kctl.model import TopicPartition
from kctl.store.consumer_registry import ConsumerRegistry, LostClaimError
from kctl.store.consumer_znodes import ConsumedPartition

Found = Mapping[ConsumedPartition, StoredOffset]


class OffsetStores:
    """Reads and commits by an OffsetsPolicy."""

    def __init__(
        self, registry: ConsumerRegistry, router: Router, group_id: str, policy: OffsetsPolicy
    ) -> None:
        self._registry = registry
        self._router = router
        self._group = group_id
        self._policy = policy
        self._kafka = OffsetsClient(router)
        # What was last written to the store that follows.
        self._followed: dict[ConsumedPartition, int] = {}

    async def fetch(self, partitions: Sequence[ConsumedPartition]) -> dict[ConsumedPartition, int]:
        """Return the committed offset of each partition that has one."""
        found = {store: await self._found(store, partitions) for store in self._policy.stores}
        offsets = {}
        for it in partitions:
            self._followed.pop(it, None)
            offset = start_offset(self._policy, {store: found[store].get(it) for store in found})
            if offset is not None:
                offsets[it] = offset
        return offsets

    async def _found(self, store: OffsetsStorage, partitions: Sequence[ConsumedPartition]) -> Found:
        if store is OffsetsStorage.ZOOKEEPER:
            stored = await self._registry.stored_offsets(self._group, partitions)
            return {it: StoredOffset(*found) for it, found in stored.items()}
        committed = await self._kafka.committed(self._group, _in_kafka(partitions))
        return {
            ConsumedPartition(*it): _stored(found)
            for it, found in committed.items()
            if found.offset >= 0 or found.error is not None
        }

    async def commit(self, consumer_id: str, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Commit to the main store, then to the one that follows; LostClaimError if a claim is
        gone.

        Where Kafka refuses some partitions, the others are committed and followed before the first
        error is raised.
        """
        policy = self._policy
        refused = await self._commit_to(policy.storage, consumer_id, offsets)
        accepted = {it: offset for it, offset in offsets.items() if it not in refused}
        follow = to_follow(policy, accepted, self._followed)
        if follow:
            refused |= await self._commit_to(policy.storage.other, consumer_id, follow)
            self._followed.update({it: at for it, at in follow.items() if it not in refused})
        for error in refused.values():
            raise error

    async def _commit_to(
        self, store: OffsetsStorage, consumer_id: str, offsets: Mapping[ConsumedPartition, int]
    ) -> dict[ConsumedPartition, KctlError]:
        """Commit to one store; return the errors of the partitions that it refused."""
        if store is OffsetsStorage.ZOOKEEPER:
            await self._registry.commit(self._group, consumer_id, offsets)
            return {}
        if not await self._registry.is_registered(self._group, consumer_id):
            raise LostClaimError(consumer_id)
        text = commit_metadata(self._router.runtime.clock.wall_ms())
        in_kafka = {_topic_partition(it): offset for it, offset in offsets.items()}
        results = await self._kafka.commit(self._group, in_kafka, dict.fromkeys(in_kafka, text))
        return {ConsumedPartition(*it.partition): it.error for it in results if it.error}


def _topic_partition(it: ConsumedPartition) -> TopicPartition:
    found = it.topic_partition
    if found is None:
        raise KctlError(f"{it} is a partition of Kafka 0.7, which keeps no offsets")
    return found


def _in_kafka(partitions: Iterable[ConsumedPartition]) -> list[TopicPartition]:
    return [_topic_partition(it) for it in partitions]


def _stored(found: CommittedOffset) -> StoredOffset:
    if found.error is not None:
        raise found.error
    return StoredOffset(found.offset, commit_time_ms(found.metadata))
