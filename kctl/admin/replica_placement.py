"""ReplicaPlacement: the replicas of a cluster while a plan is made, and their legal moves. Pure.

The rack rule is Kafka's: no rack has two replicas of a partition before every rack has one. A move
is legal if it keeps the rule, or does not increase its violation. If any broker has no rack, there
is no rule.

All collections are in the order of partitions and broker ids, so the same cluster gives the same
plan. Kafka 2.7: kafka.admin.AdminUtils; KIP-36.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from kctl.model import TopicPartition
from kctl.replica_assignment import Racks

# Replicas that are considered for a move from one broker to another.
CANDIDATES_MAX = 64


class ReplicaPlacement:
    """All replicas of a cluster, with rules and loads but without a strategy."""

    def __init__(
        self,
        racks: Racks,
        assignment: Mapping[TopicPartition, tuple[int, ...]],
        sizes: Mapping[TopicPartition, int],
    ) -> None:
        """Take `racks`, the brokers that may get replicas; replicas on other brokers can only
        leave."""
        self.replicas = {tp: list(assignment[tp]) for tp in sorted(assignment)}
        self.brokers = sorted(racks)
        self.is_rack_aware = bool(racks) and None not in racks.values()
        self._racks: dict[int, str | None] = dict(racks)
        self._rack_count = len(set(racks.values()))
        self._sizes = sizes
        # The replicas of each broker, in order, including brokers that are not in `brokers`.
        self.on: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self.brokers}
        self.bytes: dict[int, int] = dict.fromkeys(self.brokers, 0)
        self._by_size: dict[int, list[tuple[int, TopicPartition]]] = {}
        self._of_topic: dict[tuple[int, str], int] = {}
        # (giver, taker) -> a replica that may move; and giver -> takers that none may move to.
        self._witness: dict[tuple[int, int], TopicPartition] = {}
        self._blocked: dict[int, set[int]] = {}
        # Replicas that must not move.
        self.fixed: set[TopicPartition] = set()
        for tp, brokers in self.replicas.items():
            for broker in brokers:
                self._enter(tp, broker)

    def size(self, tp: TopicPartition) -> int:
        """Return the bytes of one replica; 0 if unknown."""
        return self._sizes.get(tp, 0)

    def topic_count(self, broker: int, topic: str) -> int:
        """Return the number of replicas of a topic on a broker."""
        return self._of_topic.get((broker, topic), 0)

    def racks_wanted(self, replicas: int) -> int:
        """Return the number of racks that so many replicas of a partition must be on."""
        return min(replicas, self._rack_count) if self.is_rack_aware else 0

    def rack_spread(self, brokers: Iterable[int]) -> int:
        """Return the number of racks of `brokers`, without those that may not get replicas."""
        return len({self._racks[broker] for broker in brokers if broker in self._racks})

    def keeps_racks(self, tp: TopicPartition) -> bool:
        """Return whether the partition satisfies the rack rule."""
        brokers = self.replicas[tp]
        return self.rack_spread(brokers) >= self.racks_wanted(len(brokers))

    def can_move(self, tp: TopicPartition, source: int, destination: int) -> bool:
        """Return whether the replica on `source` may move to `destination`."""
        brokers = self.replicas[tp]
        if destination in brokers or tp in self.fixed:
            return False
        if not self.is_rack_aware or self._racks.get(source) == self._racks[destination]:
            return True
        others = {self._racks.get(broker) for broker in brokers if broker != source}
        others.discard(None)
        if self._racks[destination] not in others:
            return True
        wanted = self.racks_wanted(len(brokers))
        if source in self._racks:
            wanted = min(wanted, self.rack_spread(brokers))
        return len(others) >= wanted

    def can_add(self, tp: TopicPartition, destination: int) -> bool:
        """Return whether `destination` may get an additional replica."""
        brokers = self.replicas[tp]
        if destination in brokers:
            return False
        after = self.rack_spread([*brokers, destination])
        before = self.rack_spread(brokers)
        return after > before or after >= self.racks_wanted(len(brokers) + 1)

    def move(self, tp: TopicPartition, source: int, destination: int) -> None:
        """Move a replica, keeping its position in the order of replicas."""
        brokers = self.replicas[tp]
        brokers[brokers.index(source)] = destination
        self._leave(tp, source)
        self._enter(tp, destination)
        for broker in brokers:
            blocked = self._blocked.get(broker)
            if blocked:
                blocked -= {to for to in blocked if self.can_move(tp, broker, to)}

    def add(self, tp: TopicPartition, destination: int) -> None:
        """Add a replica, last in order."""
        self.replicas[tp].append(destination)
        self._enter(tp, destination)

    def remove(self, tp: TopicPartition, source: int) -> None:
        """Remove a replica."""
        self.replicas[tp].remove(source)
        self._leave(tp, source)

    def some_to_move(self, source: int, destination: int) -> TopicPartition | None:
        """Return any replica that may move; earlier results are cached."""
        known = self._witness.get((source, destination))
        if (
            known is not None
            and known in self.on[source]
            and self.can_move(known, source, destination)
        ):
            return known
        if destination in self._blocked.get(source, ()):
            return None
        for tp in self.on[source]:
            if self.can_move(tp, source, destination):
                self._witness[source, destination] = tp
                return tp
        self._blocked.setdefault(source, set()).add(destination)
        return None

    def best_to_move(self, source: int, destination: int) -> TopicPartition | None:
        """Return a replica that may move: of the topic with the largest difference in count, the
        smallest."""
        best: TopicPartition | None = None
        best_rank: tuple[int, int] | None = None
        seen = 0
        for tp in self.on[source]:
            if not self.can_move(tp, source, destination):
                continue
            more = self.topic_count(source, tp.topic) - self.topic_count(destination, tp.topic)
            rank = (more, -self.size(tp))
            if best_rank is None or rank > best_rank:
                best, best_rank = tp, rank
            seen += 1
            if seen == CANDIDATES_MAX:
                break
        return best

    def movable_of_size(
        self, source: int, destination: int, at_most: int
    ) -> tuple[int, TopicPartition] | None:
        """Return the largest replica of at most `at_most` bytes that may move, with its size."""
        if self.some_to_move(source, destination) is None:
            return None
        order = self._order_by_size(source)
        for index in range(bisect_left(order, (at_most + 1,)) - 1, -1, -1):
            size, tp = order[index]
            if size == 0:
                return None
            if self.can_move(tp, source, destination):
                return size, tp
        return None

    def _order_by_size(self, broker: int) -> list[tuple[int, TopicPartition]]:
        if broker not in self._by_size:
            self._by_size[broker] = sorted((self.size(tp), tp) for tp in self.on[broker])
        return self._by_size[broker]

    def _enter(self, tp: TopicPartition, broker: int) -> None:
        self.on.setdefault(broker, {})[tp] = None
        self.bytes[broker] = self.bytes.get(broker, 0) + self.size(tp)
        key = (broker, tp.topic)
        self._of_topic[key] = self._of_topic.get(key, 0) + 1
        if broker in self._by_size:
            insort(self._by_size[broker], (self.size(tp), tp))

    def _leave(self, tp: TopicPartition, broker: int) -> None:
        del self.on[broker][tp]
        self.bytes[broker] -= self.size(tp)
        self._of_topic[broker, tp.topic] -= 1
        if broker in self._by_size:
            order = self._by_size[broker]
            del order[bisect_left(order, (self.size(tp), tp))]
