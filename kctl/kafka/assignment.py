"""Which thread of a group on ZooKeeper reads which partition: range and roundrobin. Pure.

Every member computes the whole assignment on its own, from what it read in ZooKeeper, and takes its
part. So all members, whatever they are written in, must compute the same: what is sorted, and by
what, is part of the protocol. Threads, not members, are assigned to; they are sorted as strings
(`C-10` before `C-2`), the partitions of Kafka 0.7 as the strings `B-P`, later ones by number.

Java leaves one thing open: partitions whose text has the same hash are in the order of a hash
map in its roundrobin. Here they are in order of topic and partition, so in such a case (about one
pair in 2**32) members in Java may compute another assignment.

Kafka 1.1: kafka.consumer.PartitionAssignor, RangeAssignor, RoundRobinAssignor; Kafka 0.7:
ZookeeperConsumerConnector.rebalance.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from kctl.java_hash import java_hash
from kctl.store.consumer_znodes import (
    BrokerPartition,
    ConsumedPartition,
    Partition,
    thread_id,
)


class Strategy(StrEnum):
    """The values of `partition.assignment.strategy`; Kafka 0.7 knows only range."""

    RANGE = "range"
    ROUNDROBIN = "roundrobin"


class HashedText(StrEnum):
    """The text of a partition by whose hash roundrobin sorts: releases disagree, so a group must
    not mix them."""

    # Kafka 0.8.2 to 0.11: [topic,partition]
    BRACKETS = "brackets"
    # Kafka 1.0 and 1.1: topic-partition
    DASH = "dash"


# The id of a consumer's thread, `C-i`, by the partition that it reads.
Assignment = dict[ConsumedPartition, str]


def java_string_order(text: str) -> bytes:
    """Return a key that sorts strings as Java does, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def partition_order(partition: Partition) -> tuple[int, str]:
    """Return the key by which all members sort the partitions of a topic.

    >>> sorted([BrokerPartition(0, 2), BrokerPartition(0, 10)], key=partition_order)[0].partition
    10
    """
    if isinstance(partition, BrokerPartition):
        return 0, str(partition)
    return partition, ""


def threads_by_topic(members: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """Return the sorted threads that read each topic.

    `members` has the number of streams by topic for each consumer id.
    """
    threads: dict[str, list[str]] = {}
    for consumer_id, streams in members.items():
        for topic, count in streams.items():
            threads.setdefault(topic, []).extend(
                thread_id(consumer_id, number) for number in range(count)
            )
    return {topic: sorted(found, key=java_string_order) for topic, found in threads.items()}


def assign(
    members: Mapping[str, Mapping[str, int]],
    partitions: Mapping[str, Sequence[Partition]],
    strategy: Strategy = Strategy.RANGE,
    hashed_text: HashedText = HashedText.DASH,
) -> Assignment:
    """Return who reads what, for all members, in the order of the partitions.

    `members` has the number of streams by topic for each consumer id, `partitions` the partitions
    of each topic in any order. Topics without partitions or threads are left out.
    """
    threads = threads_by_topic(members)
    if strategy is Strategy.ROUNDROBIN:
        return _round_robin(threads, partitions, hashed_text)
    assignment: Assignment = {}
    for topic in sorted(threads):
        if threads[topic]:
            assignment |= _range(topic, threads[topic], partitions.get(topic, ()))
    return assignment


def _range(topic: str, threads: Sequence[str], partitions: Sequence[Partition]) -> Assignment:
    ordered = sorted(partitions, key=partition_order)
    share, rest = divmod(len(ordered), len(threads))
    assignment: Assignment = {}
    for position, thread in enumerate(threads):
        start = share * position + min(position, rest)
        for partition in ordered[start : start + share + (position < rest)]:
            assignment[ConsumedPartition(topic, partition)] = thread
    return assignment


def _round_robin(
    threads: Mapping[str, list[str]],
    partitions: Mapping[str, Sequence[Partition]],
    hashed_text: HashedText,
) -> Assignment:
    everyone = sorted({it for found in threads.values() for it in found}, key=java_string_order)
    readers = {topic: frozenset(found) for topic, found in threads.items()}
    assignment: Assignment = {}
    next_ = 0
    for partition in _by_hash(threads, partitions, hashed_text):
        # A thread that does not read this topic loses its turn.
        while everyone[next_ % len(everyone)] not in readers[partition.topic]:
            next_ += 1
        assignment[partition] = everyone[next_ % len(everyone)]
        next_ += 1
    return assignment


def _by_hash(
    threads: Mapping[str, list[str]],
    partitions: Mapping[str, Sequence[Partition]],
    hashed_text: HashedText,
) -> Iterable[ConsumedPartition]:
    found = [
        ConsumedPartition(topic, partition)
        for topic in sorted(threads)
        if threads[topic]
        for partition in sorted(partitions.get(topic, ()), key=partition_order)
    ]
    if hashed_text is HashedText.DASH:
        return sorted(found, key=lambda it: java_hash(str(it)))
    return sorted(found, key=lambda it: java_hash(f"[{it.topic},{it.partition}]"))
