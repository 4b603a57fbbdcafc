"""GroupOffsets: a group's committed offsets, its commits in flight, and their expiry. Pure.

A commit is *in flight* from its Write until that settles; then it is committed or discarded. A
commit inside a transaction is, once in the log, *pending* for its producer until the transaction
ends: a commit marker applies it, an abort discards it (KIP-98). The record that is later in the log
wins: a transaction that ends late does not undo a commit that followed its own.

Kafka 2.7: kafka.coordinator.group.GroupMetadata; KIP-211 (expiry), KIP-447 (stable offsets).
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kctl.model import TopicPartition
from kctl.work import Work, at_once

NO_EXPIRY = -1
# Offsets of an ended transaction that are applied in one turn, within 5 ms.
ENDED_PER_TURN = 2_000


class CommittedOffset(NamedTuple):
    """A position in a partition, as committed by a consumer."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    # When it expires regardless of retention (OffsetCommit v2 to v4), or NO_EXPIRY.
    expire_timestamp_ms: int = NO_EXPIRY


class LoggedOffset(NamedTuple):
    """A committed offset and the position of its record in __consumer_offsets."""

    committed: CommittedOffset
    record_offset: int
    # The key of the record; the next commit reuses it.
    key: bytes


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("_ending", "committed", "in_flight", "pending_by_producer", "pending_counts")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, LoggedOffset] = {}
        # Number of plain commits in flight per partition; never 0.
        self.in_flight: dict[TopicPartition, int] = {}
        # Producer id -> commits of its open transaction; the value is None until it is in the log.
        self.pending_by_producer: dict[int, dict[TopicPartition, LoggedOffset | None]] = {}
        # What is left of transactions that are being ended.
        self._ending: list[dict[TopicPartition, LoggedOffset | None]] = []
        # Number of transactions in `pending_by_producer` and `_ending` per partition; never 0.
        self.pending_counts: dict[TopicPartition, int] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is committed, in flight or pending."""
        return not (self.committed or self.in_flight or self.has_pending)

    @property
    def has_pending(self) -> bool:
        """Return whether a transaction has commits that neither count nor are discarded yet."""
        return bool(self.pending_by_producer or self._ending)

    def is_unstable(self, topic_partition: TopicPartition) -> bool:
        """Return whether an unfinished commit may still change the offset (KIP-447)."""
        return topic_partition in self.in_flight or topic_partition in self.pending_counts

    def _count_pending(self, topic_partition: TopicPartition, change: int) -> None:
        count = self.pending_counts.get(topic_partition, 0) + change
        if count:
            self.pending_counts[topic_partition] = count
        else:
            del self.pending_counts[topic_partition]

    # Plain commits

    def mark_in_flight(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Count a commit in flight for each of these partitions."""
        in_flight = self.in_flight
        for topic_partition in topic_partitions:
            in_flight[topic_partition] = in_flight.get(topic_partition, 0) + 1

    def clear_in_flight(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """End a commit in flight for each of these partitions, whether it succeeded or failed."""
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
        """Apply a plain commit, or a tombstone, that is in the log at `record_offset`."""
        current = self.committed.get(topic_partition)
        if current is not None and current.record_offset > record_offset:
            return
        if committed is not None:
            self.committed[topic_partition] = LoggedOffset(committed, record_offset, key)
            return
        if current is not None:
            del self.committed[topic_partition]
        for pending in self._ending:
            # A commit that the tombstone follows must not return.
            logged = pending.get(topic_partition)
            if logged is not None and logged.record_offset < record_offset:
                del pending[topic_partition]
                self._count_pending(topic_partition, -1)

    # Commits inside a transaction

    def mark_in_flight_in_transaction(
        self, producer_id: int, topic_partitions: Iterable[TopicPartition]
    ) -> None:
        """Record that commits of these partitions in the producer's transaction are in flight."""
        pending = self.pending_by_producer.setdefault(producer_id, {})
        for topic_partition in topic_partitions:
            if topic_partition not in pending:
                pending[topic_partition] = None
                self._count_pending(topic_partition, 1)

    def fail_in_transaction(
        self, producer_id: int, topic_partitions: Iterable[TopicPartition]
    ) -> None:
        """Discard commits in flight that did not reach the log."""
        pending = self.pending_by_producer.get(producer_id)
        if pending is None:
            return
        for topic_partition in topic_partitions:
            if topic_partition in pending and pending[topic_partition] is None:
                del pending[topic_partition]
                self._count_pending(topic_partition, -1)
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
        """Record a commit of the producer's open transaction that is in the log at
        `record_offset`."""
        pending = self.pending_by_producer.setdefault(producer_id, {})
        is_known = topic_partition in pending
        if committed is not None:
            pending[topic_partition] = LoggedOffset(committed, record_offset, key)
            if not is_known:
                self._count_pending(topic_partition, 1)
        elif is_known:
            del pending[topic_partition]
            self._count_pending(topic_partition, -1)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply or discard the pending commits of a producer whose marker is in the log."""
        at_once(self.ending_transaction(producer_id, is_commit=is_commit))

    def ending_transaction(self, producer_id: int, *, is_commit: bool) -> Work[int]:
        """Do the same with a `yield` after every ENDED_PER_TURN offsets; return their number.

        An offset is unstable until its turn, and the producer's next transaction may begin before.
        """
        pending = self.pending_by_producer.pop(producer_id, None)
        if not pending:
            return 0
        ended = 0
        self._ending.append(pending)
        while pending:
            if ended and ended % ENDED_PER_TURN == 0:
                yield
                if not pending:
                    break
            topic_partition, logged = pending.popitem()
            ended += 1
            self._count_pending(topic_partition, -1)
            if is_commit and logged is not None:
                self.replay(topic_partition, *logged)
        self._ending = [it for it in self._ending if it is not pending]
        return ended

    def forget(self, deleted: Collection[TopicPartition]) -> None:
        """Discard pending commits of deleted partitions, so that their offsets do not return."""
        for pending in (*self.pending_by_producer.values(), *self._ending):
            for topic_partition in [tp for tp in pending if tp in deleted]:
                del pending[topic_partition]
                self._count_pending(topic_partition, -1)
        for producer_id in [it for it, left in self.pending_by_producer.items() if not left]:
            del self.pending_by_producer[producer_id]

    # Expiry

    def expired(
        self,
        wall_ms: int,
        retention_ms: int,
        *,
        among: Iterable[TopicPartition],
        empty_since_ms: int | None,
        subscribed_topics: Iterable[str] = (),
    ) -> list[TopicPartition]:
        """Return those of the partitions `among` whose offset has expired.

        An offset expires at its own expiry time if it has one, else `retention_ms` after the group
        became empty (`empty_since_ms`; None: after the commit). Offsets of subscribed topics and of
        partitions with a commit in flight do not expire.
        """
        subscribed = frozenset(subscribed_topics)
        expired = []
        for topic_partition in among:
            logged = self.committed.get(topic_partition)
            if logged is None or topic_partition in self.in_flight:
                continue
            if topic_partition.topic in subscribed:
                continue
            committed = logged.committed
            expire_ms = committed.expire_timestamp_ms
            if expire_ms == NO_EXPIRY:
                since_ms = (
                    committed.commit_timestamp_ms if empty_since_ms is None else (empty_since_ms)
                )
                expire_ms = since_ms + retention_ms
            if wall_ms >= expire_ms:
                expired.append(topic_partition)
        return expired
