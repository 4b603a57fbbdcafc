"""ReassignmentPlan: what has to move where for an intent, and what that costs. Pure.

An intent is one function: `drain`, `add_brokers`, `set_replication_factor`, `rebalance`, `move`,
`swap_leader`. Each takes the layout of a cluster and returns the partitions that change. Every plan
is deterministic, keeps the rack rule (see `replica_placement`) and moves as little as it can; what
cannot be had is a UsageError that names the partition.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (generateAssignment); KIP-36, KIP-455.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kctl.admin.replica_balance import (
    balance_bytes,
    balance_counts,
    balance_leaders,
    emptiest_for,
    evacuate,
    repair_racks,
)
from kctl.admin.replica_placement import ReplicaPlacement
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.replica_assignment import Racks

# What a broker is taken to copy in a second when nobody says how much it may.
ASSUMED_RATE = 100_000_000

Replicas = tuple[int, ...]
Assignment = Mapping[TopicPartition, Replicas]


class BalanceBy(StrEnum):
    """What `rebalance` evens out."""

    SIZE = "size"
    COUNT = "count"
    LEADERS = "leaders"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Live brokers with their racks, the replicas of all partitions, and bytes of each replica."""

    racks: Racks
    assignment: Assignment
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)

    def placement(self, brokers: Iterable[int] | None = None) -> ReplicaPlacement:
        """A place to try moves in; replicas may go to `brokers` only (all live ones)."""
        allowed = self.racks if brokers is None else {b: self.racks[b] for b in sorted(brokers)}
        return ReplicaPlacement(allowed, self.assignment, self.sizes)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What a broker holds before and after, and what it sends and receives for that."""

    broker_id: int
    replicas: tuple[int, int]
    leaders: tuple[int, int]
    bytes: tuple[int, int]
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """Replicas before and after, of the partitions that change."""

    layout: ClusterLayout
    before: Assignment
    after: Assignment

    @property
    def moves(self) -> int:
        """Replicas that are copied to a broker."""
        return sum(len(self.adding(tp)) for tp in self.after)

    @property
    def bytes_to_move(self) -> int:
        """What is copied, as far as sizes are known."""
        return sum(self.layout.sizes.get(tp, 0) * len(self.adding(tp)) for tp in self.after)

    def adding(self, tp: TopicPartition) -> Replicas:
        """Brokers that get a copy."""
        return tuple(b for b in self.after[tp] if b not in self.before.get(tp, ()))

    def removing(self, tp: TopicPartition) -> Replicas:
        """Brokers whose copy goes."""
        return tuple(b for b in self.before.get(tp, ()) if b not in self.after[tp])

    def estimate_ms(self, rate: int | None = None) -> int:
        """How long the busiest broker takes at `rate` bytes a second, in or out."""
        busiest = max((max(it.bytes_in, it.bytes_out) for it in self.loads()), default=0)
        return busiest * 1000 // (rate or ASSUMED_RATE)

    def loads(self) -> list[BrokerLoad]:
        """Every broker, by id; also one that is not alive but has replicas."""
        layout = self.layout
        final = {**layout.assignment, **self.after}
        before, after = _Loads(layout, layout.assignment), _Loads(layout, final)
        incoming: dict[int, int] = {}
        outgoing: dict[int, int] = {}
        for tp in self.after:
            size, adding = layout.sizes.get(tp, 0), self.adding(tp)
            for broker in adding:
                incoming[broker] = incoming.get(broker, 0) + size
            if adding and self.before.get(tp):
                leader = self.before[tp][0]
                outgoing[leader] = outgoing.get(leader, 0) + size * len(adding)
        return [
            BrokerLoad(
                broker,
                (before.replicas.get(broker, 0), after.replicas.get(broker, 0)),
                (before.leaders.get(broker, 0), after.leaders.get(broker, 0)),
                (before.bytes.get(broker, 0), after.bytes.get(broker, 0)),
                incoming.get(broker, 0),
                outgoing.get(broker, 0),
            )
            for broker in sorted({*layout.racks, *before.replicas, *after.replicas})
        ]


class _Loads:
    """Counts per broker of one assignment."""

    def __init__(self, layout: ClusterLayout, assignment: Assignment) -> None:
        self.replicas: dict[int, int] = {}
        self.leaders: dict[int, int] = {}
        self.bytes: dict[int, int] = {}
        for tp, brokers in assignment.items():
            for broker in brokers:
                self.replicas[broker] = self.replicas.get(broker, 0) + 1
                self.bytes[broker] = self.bytes.get(broker, 0) + layout.sizes.get(tp, 0)
            if brokers:
                self.leaders[brokers[0]] = self.leaders.get(brokers[0], 0) + 1


def plan_of(layout: ClusterLayout, after: Assignment) -> ReassignmentPlan:
    """The plan that ends in `after`: what already is so is left out."""
    changed = {
        tp: tuple(brokers)
        for tp, brokers in sorted(after.items())
        if tuple(brokers) != layout.assignment.get(tp)
    }
    before = {tp: layout.assignment[tp] for tp in changed if tp in layout.assignment}
    return ReassignmentPlan(layout, before, changed)


def drain(layout: ClusterLayout, brokers: Sequence[int]) -> ReassignmentPlan:
    """Everything off `brokers`, to the others; a broker that is dead can be drained too."""
    gone = set(brokers)
    holders = {b for replicas in layout.assignment.values() for b in replicas}
    unknown = sorted(gone - holders - set(layout.racks))
    if unknown:
        raise UsageError(f"No broker {unknown[0]} in the cluster")
    rest = [broker for broker in layout.racks if broker not in gone]
    if not rest:
        raise UsageError("No broker is left to take the replicas")
    placement = layout.placement(rest)
    touched = [tp for b in sorted(gone) for tp in placement.on.get(b, ())]
    stuck = evacuate(placement, sorted(gone))
    if stuck:
        has = len(layout.assignment[stuck[0]])
        raise UsageError(
            f"{stuck[0]} has {has} replicas: more than {len(rest)} brokers or their racks can hold",
            hint="lower its replication factor first: kctl reassign plan set-rf",
        )
    balance_leaders(placement, touched)
    return _result(layout, placement)


def add_brokers(
    layout: ClusterLayout, brokers: Sequence[int], by: BalanceBy = BalanceBy.COUNT
) -> ReassignmentPlan:
    """Their share for `brokers`; nothing moves between the others."""
    _check_alive(layout, brokers)
    placement = layout.placement()
    takers = sorted(set(brokers))
    if by is BalanceBy.SIZE:
        balance_bytes(placement, takers)
    elif by is BalanceBy.COUNT:
        balance_counts(placement, takers)
    else:
        raise UsageError("A broker without replicas can lead nothing", hint="--by count or size")
    touched = [tp for broker in takers for tp in placement.on[broker]]
    balance_leaders(placement, touched)
    return _result(layout, placement)


def set_replication_factor(
    layout: ClusterLayout, topic: str, replication_factor: int
) -> ReassignmentPlan:
    """More replicas on the emptiest brokers of unused racks; fewer, from the fullest brokers of
    racks used twice, never the preferred leader's."""
    if not 1 <= replication_factor <= len(layout.racks):
        raise UsageError(
            f"Replication factor: {replication_factor} larger than available brokers: "
            f"{len(layout.racks)}."
            if replication_factor > 0
            else "Replication factor must be larger than 0."
        )
    partitions = [tp for tp in sorted(layout.assignment) if tp.topic == topic]
    if not partitions:
        raise UsageError(f"No topic {topic}")
    placement = layout.placement()
    for tp in partitions:
        brokers = placement.replicas[tp]
        while len(brokers) > replication_factor:
            placement.remove(tp, _least_needed(placement, tp))
        while len(brokers) < replication_factor:
            spread = placement.rack_spread(brokers)
            to = emptiest_for(
                placement,
                tp,
                lambda b, tp=tp, brokers=brokers, spread=spread: (  # type: ignore[misc]
                    b not in brokers
                    and (placement.can_add(tp, b) or placement.rack_spread([*brokers, b]) > spread)
                ),
            )
            if to is None:
                raise UsageError(f"No broker can have one more replica of {tp}")
            placement.add(tp, to)
    return _result(layout, placement)


def _least_needed(placement: ReplicaPlacement, tp: TopicPartition) -> int:
    """The follower to go: of a broker that is gone, else of a crowded rack, else the fullest."""
    leader, *followers = placement.replicas[tp]
    alive = set(placement.brokers)

    def rank(broker: int) -> tuple[bool, int, int, int]:
        rest = [leader, *(b for b in followers if b != broker)]
        return broker not in alive, placement.rack_spread(rest), len(placement.on[broker]), broker

    return max(followers, key=rank)


def rebalance(
    layout: ClusterLayout,
    by: BalanceBy = BalanceBy.COUNT,
    *,
    brokers: Sequence[int] | None = None,
    topics: Iterable[str] | None = None,
    moves_max: int | None = None,
) -> ReassignmentPlan:
    """Evened out over `brokers` (all live ones), moving replicas of `topics` only (all); broken
    rack rules are mended on the way. By leaders nothing moves. With `moves_max`, as even as so
    many moves make it, beyond those that must be."""
    chosen = sorted(layout.racks if brokers is None else set(brokers))
    _check_alive(layout, chosen)
    wanted = None if topics is None else set(topics)
    if by is BalanceBy.SIZE and not any(layout.sizes.values()):
        raise UsageError("No sizes are known to balance by", hint="--by count")
    placement = layout.placement(chosen)
    if wanted is not None:
        unknown = sorted(wanted - {tp.topic for tp in layout.assignment})
        if unknown:
            raise UsageError(f"No topic {unknown[0]}")
        placement.fixed = {tp for tp in layout.assignment if tp.topic not in wanted}
    movable = [tp for tp in placement.replicas if tp not in placement.fixed]
    if by is not BalanceBy.LEADERS:
        _move_into(placement, chosen)
        repair_racks(placement)
        if by is BalanceBy.SIZE:
            balance_bytes(placement, chosen, _left(layout, placement, moves_max))
        else:
            balance_counts(placement, chosen, _left(layout, placement, moves_max))
    balance_leaders(placement, movable)
    return _result(layout, placement)


def _left(layout: ClusterLayout, placement: ReplicaPlacement, moves_max: int | None) -> int | None:
    """How many moves may still be made."""
    if moves_max is None:
        return None
    return max(0, moves_max - _result(layout, placement).moves)


def _move_into(placement: ReplicaPlacement, chosen: Sequence[int]) -> None:
    """Replicas that are on none of the chosen brokers come to one."""
    outside = sorted(set(placement.on) - set(chosen))
    stuck = [tp for tp in evacuate(placement, outside) if tp not in placement.fixed]
    if stuck:
        raise UsageError(f"{stuck[0]} has more replicas than {len(chosen)} brokers can hold")


def move(
    layout: ClusterLayout, partitions: Iterable[TopicPartition], source: int, destination: int
) -> ReassignmentPlan:
    """The replica of each on `source` goes to `destination`, in the same place of the order."""
    _check_alive(layout, [destination])
    chosen = list(partitions)
    after = {}
    for tp in chosen:
        brokers = _replicas_of(layout, tp)
        if source not in brokers:
            raise UsageError(f"{tp} has no replica on broker {source}, only on {_text(brokers)}")
        if destination in brokers:
            free = [it for it in chosen if destination not in layout.assignment[it]]
            others = f"{tp.topic}:{_text(it.partition for it in free if it.topic == tp.topic)}"
            raise UsageError(
                f"{tp} has a replica on broker {destination} already",
                hint=f"what can move is {others}" if free else None,
            )
        after[tp] = tuple(destination if b == source else b for b in brokers)
    return plan_of(layout, after)


def swap_leader(
    layout: ClusterLayout, partitions: Iterable[TopicPartition], leader: int | None = None
) -> ReassignmentPlan:
    """Another replica is preferred: `leader`, or else the next in order. Nothing moves."""
    after = {}
    for tp in partitions:
        brokers = _replicas_of(layout, tp)
        if leader is None and len(brokers) < 2:
            raise UsageError(f"{tp} has one replica only: nobody else can lead it")
        first = brokers[1] if leader is None else leader
        if first not in brokers:
            raise UsageError(f"{tp} has no replica on broker {first}, only on {_text(brokers)}")
        after[tp] = (first, *(b for b in brokers if b != first))
    return plan_of(layout, after)


def _replicas_of(layout: ClusterLayout, tp: TopicPartition) -> Replicas:
    if tp not in layout.assignment:
        raise UsageError(f"No partition {tp}")
    return layout.assignment[tp]


def _check_alive(layout: ClusterLayout, brokers: Iterable[int]) -> None:
    missing = [broker for broker in brokers if broker not in layout.racks]
    if missing:
        raise UsageError(
            f"Broker {missing[0]} is not alive", hint=f"there are: {_text(sorted(layout.racks))}"
        )


def _text(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


def _result(layout: ClusterLayout, placement: ReplicaPlacement) -> ReassignmentPlan:
    return plan_of(layout, {tp: tuple(brokers) for tp, brokers in placement.replicas.items()})
