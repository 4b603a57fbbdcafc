"""ReassignmentPlan: the moves that an intent requires, and their cost. Pure.

Each intent is a function: `drain`, `demote`, `add_brokers`, `set_replication_factor`, `rebalance`,
`move`, `swap_leader`. It takes the layout of a cluster and returns the partitions that change.
Plans are deterministic, keep the rack rule (see `replica_placement`) and move as little as
possible. If a plan is impossible, ImpossibleError names the partition. A plan that concerns
replicas on dead brokers is refused, unless the intent names these brokers or the caller decides
otherwise (`dead_brokers`).

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (generateAssignment); KIP-36, KIP-455.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from kctl.admin.dead_brokers import DeadBrokers, dead_replicas, partitions_to_keep
from kctl.admin.replica_balance import (
    balance_bytes,
    balance_counts,
    balance_leaders,
    emptiest_for,
    evacuate,
    repair_racks,
)
from kctl.admin.replica_placement import ReplicaPlacement
from kctl.counts import counted
from kctl.errors import ImpossibleError, NotFoundError, UsageError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.replica_assignment import Racks

# Bytes per second that a broker is assumed to copy if there is no limit.
ASSUMED_RATE = 100_000_000

Replicas = tuple[int, ...]
Assignment = Mapping[TopicPartition, Replicas]


class BalanceBy(StrEnum):
    """The quantities that `rebalance` balances."""

    SIZE = "size"
    COUNT = "count"
    LEADERS = "leaders"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Live brokers with their racks, the replicas of all partitions, and the bytes of a replica."""

    racks: Racks
    assignment: Assignment
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def dead(self) -> dict[int, int]:
        """Return dead broker -> the number of its replicas."""
        return dead_replicas(self.racks, self.assignment)

    def placement(self, brokers: Iterable[int] | None = None) -> ReplicaPlacement:
        """Return a placement to plan moves in, whose replicas may move to `brokers` only (all live
        ones)."""
        allowed = self.racks if brokers is None else {b: self.racks[b] for b in sorted(brokers)}
        return ReplicaPlacement(allowed, self.assignment, self.sizes)

    def kept(
        self,
        dead: DeadBrokers,
        concerned: Iterable[TopicPartition],
        named: Collection[int] = (),
    ) -> set[TopicPartition]:
        """Return the `concerned` partitions that stay because of dead brokers; UsageError if these
        forbid a plan. See `partitions_to_keep`."""
        return partitions_to_keep(dead, self.racks, self.assignment, concerned, named)


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of a broker as (before, after), and the bytes it receives and sends."""

    broker_id: int
    replicas: tuple[int, int]
    leaders: tuple[int, int]
    bytes: tuple[int, int]
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """The replicas of the partitions that change, before and after."""

    layout: ClusterLayout
    before: Assignment
    after: Assignment

    @property
    def moves(self) -> int:
        """Return the number of replicas that are copied to a broker."""
        return sum(len(self.adding(tp)) for tp in self.after)

    @property
    def bytes_to_move(self) -> int:
        """Return the bytes that are copied, as far as sizes are known."""
        return sum(self.layout.sizes.get(tp, 0) * len(self.adding(tp)) for tp in self.after)

    def adding(self, tp: TopicPartition) -> Replicas:
        """Return the brokers that get a replica."""
        return tuple(b for b in self.after[tp] if b not in self.before.get(tp, ()))

    def removing(self, tp: TopicPartition) -> Replicas:
        """Return the brokers that lose their replica."""
        return tuple(b for b in self.before.get(tp, ()) if b not in self.after[tp])

    def estimate_ms(self, rate: int | None = None) -> int:
        """Return how long the busiest broker takes at `rate` bytes/s, in milliseconds."""
        busiest = max((max(it.bytes_in, it.bytes_out) for it in self.loads()), default=0)
        return busiest * 1000 // (rate or ASSUMED_RATE)

    def loads(self) -> list[BrokerLoad]:
        """Return the load of every broker, by id, including dead brokers that have replicas."""
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
    """The counts per broker of one assignment."""

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
    """Return the plan whose result is `after`; partitions that do not change are left out."""
    changed = {
        tp: tuple(brokers)
        for tp, brokers in sorted(after.items())
        if tuple(brokers) != layout.assignment.get(tp)
    }
    before = {tp: layout.assignment[tp] for tp in changed if tp in layout.assignment}
    return ReassignmentPlan(layout, before, changed)


def drain(
    layout: ClusterLayout, brokers: Sequence[int], dead: DeadBrokers = DeadBrokers.REFUSE
) -> ReassignmentPlan:
    """Move all replicas from `brokers` to the others; `brokers` may be dead. Raise NotFoundError
    for an unknown broker, ImpossibleError if the others cannot hold all replicas."""
    gone = set(brokers)
    holders = {b for replicas in layout.assignment.values() for b in replicas}
    unknown = sorted(gone - holders - set(layout.racks))
    if unknown:
        raise not_found("broker", unknown[0], sorted(holders | set(layout.racks)))
    rest = [broker for broker in layout.racks if broker not in gone]
    if not rest:
        raise ImpossibleError("No broker remains to take the replicas")
    placement = layout.placement(rest)
    touched = [tp for b in sorted(gone) for tp in placement.on.get(b, ())]
    kept = layout.kept(dead, touched, gone)
    touched = [tp for tp in touched if tp not in kept]
    placement.fixed = set(layout.assignment).difference(touched)
    # What is fixed stays on other dead brokers: EVACUATE concerns the drained partitions.
    others = layout.dead if dead is DeadBrokers.EVACUATE else ()
    stuck = _evacuate(placement, sorted({*gone, *others}))
    if stuck:
        has = len(layout.assignment[stuck[0]])
        raise ImpossibleError(
            f"{stuck[0]} has {counted(has, 'replica')}: more than "
            f"{counted(len(rest), 'broker')} or their racks can hold",
            hint="lower its replication factor first: kctl reassign plan set-rf",
        )
    balance_leaders(placement, touched)
    return _result(layout, placement)


def add_brokers(
    layout: ClusterLayout,
    brokers: Sequence[int],
    by: BalanceBy = BalanceBy.COUNT,
    dead: DeadBrokers = DeadBrokers.REFUSE,
) -> ReassignmentPlan:
    """Move a fair share of the replicas to `brokers`, and nothing between the others. Raise
    UsageError if a broker is not alive."""
    _check_alive(layout, brokers)
    placement = layout.placement()
    placement.fixed = layout.kept(dead, layout.assignment)
    takers = sorted(set(brokers))
    if dead is DeadBrokers.EVACUATE:
        _check_none_is_stuck(placement, layout.dead)
    if by is BalanceBy.SIZE:
        balance_bytes(placement, takers)
    elif by is BalanceBy.COUNT:
        balance_counts(placement, takers)
    else:
        raise UsageError(
            "A broker without replicas cannot lead any partition", hint="--by count or size"
        )
    touched = [tp for b in takers for tp in placement.on[b] if tp not in placement.fixed]
    balance_leaders(placement, touched)
    return _result(layout, placement)


def set_replication_factor(
    layout: ClusterLayout,
    topic: str,
    replication_factor: int,
    dead: DeadBrokers = DeadBrokers.REFUSE,
) -> ReassignmentPlan:
    """Add replicas on the emptiest brokers of unused racks, or remove them from the fullest brokers
    of racks with several replicas, never the preferred leader's. Raise ImpossibleError if the
    brokers do not suffice."""
    if replication_factor < 1:
        raise UsageError("Replication factor must be larger than 0.")
    if replication_factor > len(layout.racks):
        raise ImpossibleError(
            f"Replication factor: {replication_factor} larger than available brokers: "
            f"{len(layout.racks)}."
        )
    partitions = [tp for tp in sorted(layout.assignment) if tp.topic == topic]
    if not partitions:
        raise not_found("topic", topic, _topics(layout))
    placement = layout.placement()
    kept = layout.kept(dead, partitions)
    if dead is DeadBrokers.EVACUATE:
        _leave_dead_brokers(layout, placement, partitions, replication_factor)
    for tp in (it for it in partitions if it not in kept):
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
                raise ImpossibleError(f"No broker can hold another replica of {tp}")
            placement.add(tp, to)
    return _result(layout, placement)


def _leave_dead_brokers(
    layout: ClusterLayout,
    placement: ReplicaPlacement,
    partitions: Sequence[TopicPartition],
    replication_factor: int,
) -> None:
    """Remove the replicas on dead brokers as far as the replication factor allows, and move the
    others."""
    for tp in partitions:
        for broker in layout.assignment[tp]:
            if broker not in layout.racks and len(placement.replicas[tp]) > replication_factor:
                placement.remove(tp, broker)
    placement.fixed = set(layout.assignment).difference(partitions)
    _check_none_is_stuck(placement, layout.dead)


def _least_needed(placement: ReplicaPlacement, tp: TopicPartition) -> int:
    """Return the follower to remove: in a rack with several, else on the fullest broker."""
    leader, *followers = placement.replicas[tp]

    def rank(broker: int) -> tuple[int, int, int]:
        rest = [leader, *(b for b in followers if b != broker)]
        return placement.rack_spread(rest), len(placement.on[broker]), broker

    return max(followers, key=rank)


def rebalance(
    layout: ClusterLayout,
    by: BalanceBy = BalanceBy.COUNT,
    *,
    brokers: Sequence[int] | None = None,
    topics: Iterable[str] | None = None,
    moves_max: int | None = None,
    dead: DeadBrokers = DeadBrokers.REFUSE,
) -> ReassignmentPlan:
    """Balance `brokers` (all live ones) by moving replicas of `topics` (all), and repair violations
    of the rack rule. By leaders, only the order of replicas changes. `moves_max` limits the moves
    beyond the required ones."""
    chosen = sorted(layout.racks if brokers is None else set(brokers))
    _check_alive(layout, chosen)
    wanted = None if topics is None else set(topics)
    if by is BalanceBy.SIZE and not any(layout.sizes.values()):
        raise ImpossibleError("The sizes of replicas are unknown", hint="--by count")
    placement = layout.placement(chosen)
    if wanted is not None:
        unknown = sorted(wanted - {tp.topic for tp in layout.assignment})
        if unknown:
            raise not_found("topic", unknown[0], _topics(layout))
        placement.fixed = {tp for tp in layout.assignment if tp.topic not in wanted}
    placement.fixed |= layout.kept(
        dead, [tp for tp in placement.replicas if tp not in placement.fixed]
    )
    if by is BalanceBy.LEADERS and dead is DeadBrokers.EVACUATE:
        raise UsageError(
            "Balancing leaders copies nothing: it cannot evacuate dead brokers",
            hint="--by count or size",
        )
    movable = [tp for tp in placement.replicas if tp not in placement.fixed]
    if by is not BalanceBy.LEADERS:
        _check_none_is_stuck(placement, set(placement.on).difference(chosen))
        repair_racks(placement)
        if by is BalanceBy.SIZE:
            balance_bytes(placement, chosen, _left(layout, placement, moves_max))
        else:
            balance_counts(placement, chosen, _left(layout, placement, moves_max))
    balance_leaders(placement, movable)
    return _result(layout, placement)


def _left(layout: ClusterLayout, placement: ReplicaPlacement, moves_max: int | None) -> int | None:
    """Return how many moves may still be made."""
    if moves_max is None:
        return None
    return max(0, moves_max - _result(layout, placement).moves)


def _evacuate(placement: ReplicaPlacement, brokers: Iterable[int]) -> list[TopicPartition]:
    """Move every replica that is not fixed off `brokers`; return the partitions that cannot."""
    stuck = evacuate(placement, sorted(brokers))
    return [tp for tp in stuck if tp not in placement.fixed]


def _check_none_is_stuck(placement: ReplicaPlacement, outside: Iterable[int]) -> None:
    """Move every replica that is not fixed off the brokers `outside`, or raise ImpossibleError."""
    stuck = _evacuate(placement, outside)
    if stuck:
        raise ImpossibleError(
            f"{stuck[0]} has more replicas than "
            f"{counted(len(placement.brokers), 'broker')} can hold"
        )


def move(
    layout: ClusterLayout,
    partitions: Iterable[TopicPartition],
    source: int,
    destination: int,
    dead: DeadBrokers = DeadBrokers.REFUSE,
) -> ReassignmentPlan:
    """Move the replica of each partition from `source`, which may be dead, to `destination`,
    keeping its position."""
    _check_alive(layout, [destination])
    _check_cannot_evacuate(dead)
    asked = [tp for tp in partitions if _replicas_of(layout, tp)]
    kept = layout.kept(dead, asked, [source])
    chosen = [tp for tp in asked if tp not in kept]
    after = {}
    for tp in chosen:
        brokers = _replicas_of(layout, tp)
        if source not in brokers:
            raise ImpossibleError(
                f"{tp} has no replica on broker {source}, only on {_text(brokers)}"
            )
        if destination in brokers:
            free = [it for it in chosen if destination not in layout.assignment[it]]
            others = f"{tp.topic}:{_text(it.partition for it in free if it.topic == tp.topic)}"
            raise ImpossibleError(
                f"{tp} has a replica on broker {destination} already",
                hint=f"partitions that can move: {others}" if free else None,
            )
        after[tp] = tuple(destination if b == source else b for b in brokers)
    return plan_of(layout, after)


def swap_leader(
    layout: ClusterLayout,
    partitions: Iterable[TopicPartition],
    leader: int | None = None,
    dead: DeadBrokers = DeadBrokers.REFUSE,
) -> ReassignmentPlan:
    """Make another replica the preferred leader: `leader`, or the next in order. No data moves."""
    _check_cannot_evacuate(dead)
    asked = [tp for tp in partitions if _replicas_of(layout, tp)]
    kept = layout.kept(dead, asked)
    after = {}
    for tp in (it for it in asked if it not in kept):
        brokers = _replicas_of(layout, tp)
        if leader is None and len(brokers) < 2:
            raise ImpossibleError(f"{tp} has a single replica: no other can lead it")
        first = brokers[1] if leader is None else leader
        if first not in brokers:
            raise ImpossibleError(
                f"{tp} has no replica on broker {first}, only on {_text(brokers)}"
            )
        after[tp] = (first, *(b for b in brokers if b != first))
    return plan_of(layout, after)


def demote(
    layout: ClusterLayout, brokers: Sequence[int], dead: DeadBrokers = DeadBrokers.REFUSE
) -> ReassignmentPlan:
    """Put `brokers` last in the replicas of every partition, so that the others come first in every
    election. No data moves. Raise NotFoundError for a broker that is not alive."""
    _check_cannot_evacuate(dead)
    _check_alive(layout, brokers)
    touched = [tp for tp, replicas in layout.assignment.items() if set(replicas) & set(brokers)]
    kept = layout.kept(dead, touched)
    after = {
        tp: tuple(sorted(layout.assignment[tp], key=lambda it: it in brokers))
        for tp in touched
        if tp not in kept
    }
    return plan_of(layout, after)


def _check_cannot_evacuate(dead: DeadBrokers) -> None:
    if dead is DeadBrokers.EVACUATE:
        raise UsageError(
            "Dead brokers are evacuated by drain, add, set-rf and rebalance only",
            hint="kctl reassign plan drain BROKERS accepts dead brokers",
        )


def _replicas_of(layout: ClusterLayout, tp: TopicPartition) -> Replicas:
    if tp not in layout.assignment:
        raise not_found("partition", tp, hint="kctl topic list shows the topics")
    return layout.assignment[tp]


def _check_alive(layout: ClusterLayout, brokers: Iterable[int]) -> None:
    missing = [broker for broker in brokers if broker not in layout.racks]
    if missing:
        raise NotFoundError(
            f"Broker {missing[0]} is not alive", hint=f"live brokers: {_text(sorted(layout.racks))}"
        )


def _topics(layout: ClusterLayout) -> list[str]:
    return sorted({tp.topic for tp in layout.assignment})


def _text(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


def _result(layout: ClusterLayout, placement: ReplicaPlacement) -> ReassignmentPlan:
    return plan_of(layout, {tp: tuple(brokers) for tp, brokers in placement.replicas.items()})
