"""Assigns the replicas of new partitions to brokers and, if they are known, across racks.

Leaders are assigned round robin from the broker at `start_index`. A partition's followers are on
the brokers after its leader, at a distance (`shift`) that grows by one with every full round, so
that the followers of one broker's partitions are spread over all others. With racks, brokers are
first put into an order in which racks alternate, and no rack gets a second replica of a partition
before all racks have one. The result is deterministic: for a random assignment, pass a random
`start_index` and `shift`.

Kafka 2.7: kafka.admin.AdminUtils; KIP-36.
"""

from collections.abc import Iterator, Mapping, Sequence

from kctl.errors import UsageError

# Broker id -> rack, or None.
Racks = Mapping[int, str | None]


def assign_replicas(
    racks: Racks,
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas, leader first, of `partitions` partitions numbered from
    `first_partition`.

    Either all brokers have a rack or none. Raise UsageError, with Kafka's message, if the
    assignment is impossible.
    """
    check_counts(len(racks), partitions, replication_factor)
    brokers = sorted(racks)
    without = [broker for broker in brokers if racks[broker] is None]
    if without and len(without) < len(brokers):
        raise UsageError("Not all brokers have rack information for replica rack aware assignment.")
    if not without:
        brokers = rack_alternated_brokers(
            {b: rack for b, rack in racks.items() if rack is not None}
        )
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        leader_index = (partition + start_index) % len(brokers)
        if without:
            replicas = _next_brokers(brokers, leader_index, shift, replication_factor)
        else:
            replicas = _next_racks(brokers, racks, leader_index, shift, replication_factor)
        assignment[partition] = tuple(replicas)
    return assignment


def shift_between(first: int, later: int, brokers: int) -> int:
    """Return by how much `assign_replicas` raises the shift between partition `first` and partition
    `later`, exclusive; for callers that assign the partitions of one topic in several calls."""
    if not brokers or later <= first:
        return 0
    return (later - 1) // brokers - max(first - 1, 0) // brokers


def check_counts(brokers: int, partitions: int, replication_factor: int) -> None:
    """Raise UsageError unless `brokers` brokers can hold that many partitions and replicas."""
    if partitions <= 0:
        raise UsageError("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise UsageError("Replication factor must be larger than 0.")
    if replication_factor > brokers:
        raise UsageError(
            f"Replication factor: {replication_factor} larger than available brokers: {brokers}."
        )


def rack_alternated_brokers(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers in an order in which neighbours are on different racks as long as
    possible.

        >>> rack_alternated_brokers({0: "a", 1: "b", 2: "c", 3: "c", 4: "b", 5: "a"})
        [0, 1, 2, 5, 4, 3]
    """
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _follower_index(leader_index: int, shift: int, nth: int, brokers: int) -> int:
    """Return the index of the nth candidate for a follower, which is never the leader's."""
    return (leader_index + 1 + (shift + nth) % (brokers - 1)) % brokers


def _next_brokers(
    brokers: Sequence[int], leader_index: int, shift: int, replication_factor: int
) -> Iterator[int]:
    yield brokers[leader_index]
    for nth in range(replication_factor - 1):
        yield brokers[_follower_index(leader_index, shift, nth, len(brokers))]


def _next_racks(
    brokers: Sequence[int], racks: Racks, leader_index: int, shift: int, replication_factor: int
) -> Iterator[int]:
    rack_count = len(set(racks.values()))
    leader = brokers[leader_index]
    used_brokers, used_racks = {leader}, {racks[leader]}
    yield leader
    nth = 0
    while len(used_brokers) < replication_factor:
        broker = brokers[_follower_index(leader_index, shift * rack_count, nth, len(brokers))]
        nth += 1
        rack_is_free = racks[broker] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker not in used_brokers:
            used_brokers.add(broker)
            used_racks.add(racks[broker])
            yield broker
