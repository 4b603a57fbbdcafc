"""GroupOffsets: a group's committed offsets, those on their way, and which have expired. Pure.

A commit is *in flight* from its Write until that settles; then it is committed, or forgotten. A
commit inside a transaction is, once in the log, *pending* for its producer until the transaction
ends: a commit marker makes it count, an abort drops it (KIP-98). Whichever record is later in the
log counts: a transaction that ends late does not undo a commit that came after its own.

Kafka 2.7: kafka.coordinator.group.GroupMetadata; KIP-211 (expiry), KIP-447 (stable offsets).
"""

from collections.abc import Iterable
from typing import NamedTuple

from kctl.model import TopicPartition

NO_LEADER_EPOCH = -1
NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """A position in a partition, as a consumer committed it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # When it expires whatever the retention is (OffsetCommit v2 to v4), or NO_EXPIRY.
    expire_timestamp_ms: int = NO_EXPIRY


class LoggedOffset(NamedTuple):
    """A committed offset and where its record is in __consumer_offsets."""

    committed: CommittedOffset
    record_offset: int
    # Of the record; the next commit has the same.
    key: bytes


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("committed", "in_flight", "pending_by_producer")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, LoggedOffset] = {}
        # How many plain commits are on their way, per partition; never 0.
        self.in_flight: dict[TopicPartition, int] = {}
        # Producer id -> commits of its open transaction; None while not yet in the log.
        self.pending_by_producer: dict[int, dict[TopicPartition, LoggedOffset | None]] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing committed and nothing that may yet be."""
        return not (self.committed or self.in_flight or self.pending_by_producer)

    def is_unstable(self, topic_partition: TopicPartition) -> bool:
        """Whether a commit may still change the answer (KIP-447)."""
        return topic_partition in self.in_flight or any(
            topic_partition in pending for pending in self.pending_by_producer.values()
        )

    # Plain commits

    def take_off(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Commits of these are on their way."""
        in_flight = self.in_flight
        for topic_partition in topic_partitions:
            in_flight[topic_partition] = in_flight.get(topic_partition, 0) + 1

    def land(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """They have settled, either way."""
        in_flight = self.in_flight
        for topic_partition in topic_partitions:
            left = in_flight.get(topic_partition, 0) - 1
            if left > 0:
                in_flight[topic_partition] = left
            else:
                in_flight.pop(topic_partition, None)

    def replay(
        self,
        topic_partition: TopicPartition,
        committed: CommittedOffset | None,
        record_offset: int,
        key: bytes,
    ) -> None:
        """A plain commit, or a tombstone, is in the log at `record_offset`."""
        current = self.committed.get(topic_partition)
        if current is not None and current.record_offset > record_offset:
            return
        if committed is not None:
            self.committed[topic_partition] = LoggedOffset(committed, record_offset, key)
        elif current is not None:
            del self.committed[topic_partition]

    # Commits inside a transaction

    def take_off_in_transaction(
        self, producer_id: int, topic_partitions: Iterable[TopicPartition]
    ) -> None:
        """Commits of these in the producer's transaction are on their way."""
        pending = self.pending_by_producer.setdefault(producer_id, {})
        for topic_partition in topic_partitions:
            pending.setdefault(topic_partition, None)

    def fail_in_transaction(
        self, producer_id: int, topic_partitions: Iterable[TopicPartition]
    ) -> None:
        """They did not reach the log."""
        pending = self.pending_by_producer.get(producer_id)
        if pending is None:
            return
        for topic_partition in topic_partitions:
            if topic_partition in pending and pending[topic_partition] is None:
                del pending[topic_partition]
        if not pending:
            del self.pending_by_producer[producer_id]

    def replay_in_transaction(
        self,
        producer_id: int,
        topic_partition: TopicPartition,
        committed: CommittedOffset | None,
        record_offset: int,
        key: bytes,
    ) -> None:
        """A commit of the producer's open transaction is in the log at `record_offset`."""
        pending = self.pending_by_producer.setdefault(producer_id, {})
        if committed is not None:
            pending[topic_partition] = LoggedOffset(committed, record_offset, key)
        else:
            pending.pop(topic_partition, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The producer's transaction ended: its marker is in the log."""
        pending = self.pending_by_producer.pop(producer_id, {})
        if not is_commit:
            return
        for topic_partition, logged in pending.items():
            if logged is not None:
                self.replay(topic_partition, *logged)

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is gone: nothing pending shall bring its offset back."""
        for producer_id, pending in list(self.pending_by_producer.items()):
            pending.pop(topic_partition, None)
            if not pending:
                del self.pending_by_producer[producer_id]

    # Expiry

    def expired(
        self,
        wall_ms: int,
        retention_ms: int,
        *,
        empty_since_ms: int | None,
        subscribed_topics: Iterable[str] = (),
    ) -> list[TopicPartition]:
        """Partitions whose offset is to be dropped: its own time has passed, or `retention_ms`
        since the group became empty (`empty_since_ms`; None: since the commit). Offsets of
        subscribed topics and of partitions with a commit in flight stay."""
        subscribed = frozenset(subscribed_topics)
        expired = []
        for topic_partition, (committed, *_) in self.committed.items():
            if topic_partition.topic in subscribed or topic_partition in self.in_flight:
                continue
            expire_ms = committed.expire_timestamp_ms
            if expire_ms == NO_EXPIRY:
                since_ms = (
                    committed.commit_timestamp_ms if empty_since_ms is None else (empty_since_ms)
                )
                expire_ms = since_ms + retention_ms
            if wall_ms >= expire_ms:
                expired.append(topic_partition)
        return expired
