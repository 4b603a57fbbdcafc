"""Balances replicas and leaders over brokers with as few moves as possible. Pure.

Counts: replicas move from the fullest broker to the emptiest until they differ by one; if none may
move directly, along a chain of brokers. Bytes: first, the largest replicas that take neither broker
past the mean; then any that narrow the gap, also by exchange. Leaders: the order of replicas
changes, and no data moves.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

from kctl.admin.replica_placement import ReplicaPlacement
from kctl.model import TopicPartition

# Gaps in bytes below this share of the mean are ignored.
BYTES_TOLERANCE = 0.01
# The largest number of exchanges of two replicas.
EXCHANGES_MAX = 200
# Replicas of either broker that an exchange considers; and pairs of brokers.
EXCHANGE_CANDIDATES_MAX = 60
EXCHANGE_PAIRS_MAX = 8

Load = Callable[[int], int]
Link = Callable[[int, int], TopicPartition | None]


def repair_racks(placement: ReplicaPlacement) -> None:
    """Move the replicas that violate the rack rule, each to the emptiest broker."""
    for tp in list(placement.replicas):
        while not placement.keeps_racks(tp) and tp not in placement.fixed:
            brokers = placement.replicas[tp]
            spread = placement.rack_spread(brokers)
            ways = [
                (-len(placement.on[source]), len(placement.on[to]), source, to)
                for source in brokers
                for to in placement.brokers
                if to not in brokers
                and placement.rack_spread([to, *(b for b in brokers if b != source)]) > spread
            ]
            if not ways:
                break
            *_, source, to = min(ways)
            placement.move(tp, source, to)


def evacuate(placement: ReplicaPlacement, brokers: Iterable[int]) -> list[TopicPartition]:
    """Move every replica from `brokers` to the emptiest broker that may have it; return the
    partitions for which there is none."""
    stuck = []
    for source in brokers:
        for tp in list(placement.on.get(source, ())):
            to = emptiest_for(placement, tp, partial(placement.can_move, tp, source))
            if to is None:
                stuck.append(tp)
            else:
                placement.move(tp, source, to)
    return stuck


def emptiest_for(
    placement: ReplicaPlacement, tp: TopicPartition, is_allowed: Callable[[int], bool]
) -> int | None:
    """Return the allowed broker with the fewest replicas, then replicas of the topic, then
    bytes."""
    ranked = [
        (len(placement.on[b]), placement.topic_count(b, tp.topic), placement.bytes[b], b)
        for b in placement.brokers
        if is_allowed(b)
    ]
    return min(ranked)[-1] if ranked else None


def balance_counts(
    placement: ReplicaPlacement, takers: Sequence[int], moves_max: int | None = None
) -> None:
    """Balance the number of replicas with at most `moves_max` moves to `takers`."""
    moves = 0

    def load(broker: int) -> int:
        return len(placement.on[broker])

    def go(source: int, to: int) -> bool:
        nonlocal moves
        tp = placement.best_to_move(source, to)
        if tp is None:  # taken by an earlier step of the chain
            return False
        placement.move(tp, source, to)
        moves += 1
        return True

    def find(source: int, to: int) -> TopicPartition | None:
        return None if moves == moves_max else placement.some_to_move(source, to)

    _even_out(placement.brokers, takers, load, find, go)


def balance_leaders(
    placement: ReplicaPlacement, only: Iterable[TopicPartition] | None = None
) -> None:
    """Balance preferred leaders by reordering the replicas of `only` (default: all partitions)."""
    touchable = list(placement.replicas if only is None else dict.fromkeys(only))
    counts = dict.fromkeys(placement.brokers, 0)
    for brokers in placement.replicas.values():
        if brokers and brokers[0] in counts:
            counts[brokers[0]] += 1
    # Leader -> follower -> the partitions they share.
    links: dict[int, dict[int, dict[TopicPartition, None]]] = {b: {} for b in counts}

    def link(tp: TopicPartition, is_new: bool) -> None:
        leader, *followers = placement.replicas[tp]
        for follower in followers:
            if leader in links and follower in links:
                partitions = links[leader].setdefault(follower, {})
                if is_new:
                    partitions[tp] = None
                else:
                    partitions.pop(tp, None)

    for tp in touchable:
        link(tp, is_new=True)

    def go(source: int, to: int) -> bool:
        tp = next(iter(links[source].get(to, ())), None)
        if tp is None:
            return False
        link(tp, is_new=False)
        brokers = placement.replicas[tp]
        brokers.remove(to)
        brokers.insert(0, to)
        link(tp, is_new=True)
        counts[source] -= 1
        counts[to] += 1
        return True

    _even_out(
        placement.brokers,
        placement.brokers,
        counts.__getitem__,
        lambda a, b: next(iter(links[a].get(b, ())), None),
        go,
    )


def _even_out(
    brokers: Sequence[int],
    takers: Sequence[int],
    load: Load,
    find: Link,
    go: Callable[[int, int], bool],
) -> None:
    """Execute chains of moves until no broker has one to give."""
    has_moved = True
    while has_moved:
        has_moved = False
        givers = set(brokers)
        while (way := _way(brokers, takers, load, find, givers)) is not None:
            has_moved = True
            for source, to in way:
                if not go(source, to):
                    break


def _way(
    brokers: Sequence[int],
    takers: Sequence[int],
    load: Load,
    find: Link,
    givers: set[int],
) -> list[tuple[int, int]] | None:
    """Return the shortest chain of moves from the fullest broker to the emptiest that has at least
    two less. Brokers without a chain are removed from `givers`."""
    for source in sorted(givers, key=lambda b: (-load(b), b)):
        aims = [b for b in takers if load(b) <= load(source) - 2]
        aims.sort(key=lambda b: (load(b), b))
        if not aims:
            return None
        for aim in aims:
            if find(source, aim) is not None:
                return [(source, aim)]
        if len(takers) == len(brokers):
            chain = _chain(source, aims, brokers, find)
            if chain is not None:
                return chain
        givers.discard(source)
    return None


def _chain(
    source: int, aims: Sequence[int], brokers: Sequence[int], find: Link
) -> list[tuple[int, int]] | None:
    """Return the shortest chain from `source` to one of `aims` over other brokers."""
    came_from = {source: source}
    queue = [source]
    for broker in queue:
        for to in brokers:
            if to in came_from or find(broker, to) is None:
                continue
            came_from[to] = broker
            if to in aims:
                path = [to]
                while path[-1] != source:
                    path.append(came_from[path[-1]])
                return list(pairwise(reversed(path)))
            queue.append(to)
    return None


def balance_bytes(
    placement: ReplicaPlacement, takers: Sequence[int], moves_max: int | None = None
) -> None:
    """Balance bytes with at most `moves_max` moves to `takers`."""
    loads = placement.bytes
    mean = sum(loads[broker] for broker in placement.brokers) // max(1, len(placement.brokers))
    floor = max(1, int(mean * BYTES_TOLERANCE))
    moves = 0
    steps: tuple[tuple[Callable[[], bool], int], ...] = (
        (lambda: _one_below_mean(placement, takers, mean, floor), 1),
        (lambda: _one_into_gap(placement, takers, floor), 1),
        (lambda: _one_exchange(placement, takers, floor), 2),
    )
    for step, cost in steps:
        most = EXCHANGES_MAX if cost == 2 else sum(map(len, placement.replicas.values()))
        for _ in range(most):
            if (moves_max is not None and moves + cost > moves_max) or not step():
                break
            moves += cost


def _pairs(placement: ReplicaPlacement, takers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (gap, giver, taker), the widest gap first."""
    loads = placement.bytes
    pairs = [
        (loads[source] - loads[to], source, to)
        for source in placement.brokers
        for to in takers
        if loads[source] > loads[to]
    ]
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))


def _one_below_mean(
    placement: ReplicaPlacement, takers: Sequence[int], mean: int, floor: int
) -> bool:
    for _, source, to in _pairs(placement, takers):
        room = min(placement.bytes[source] - mean, mean - placement.bytes[to])
        if room < floor:
            continue
        found = placement.movable_of_size(source, to, room)
        if found is not None and found[0] >= floor:
            placement.move(found[1], source, to)
            return True
    return False


def _one_into_gap(placement: ReplicaPlacement, takers: Sequence[int], floor: int) -> bool:
    for gap, source, to in _pairs(placement, takers):
        if gap < 2 * floor:
            return False
        found = placement.movable_of_size(source, to, gap - floor)
        half = placement.movable_of_size(source, to, gap // 2)
        fits = [way for way in (found, half) if way is not None and way[0] >= floor]
        if fits:
            _, tp = min(fits, key=lambda way: (abs(gap - 2 * way[0]), way[1]))
            placement.move(tp, source, to)
            return True
    return False


def _one_exchange(placement: ReplicaPlacement, takers: Sequence[int], floor: int) -> bool:
    """Exchange a large replica for a smaller one of a broker that has fewer bytes."""
    if len(takers) < len(placement.brokers):
        return False
    for gap, source, to in _pairs(placement, takers)[:EXCHANGE_PAIRS_MAX]:
        best = _best_exchange(placement, source, to, gap, floor)
        if best is not None:
            placement.move(best[0], source, to)
            placement.move(best[1], to, source)
            return True
    return False


def _best_exchange(
    placement: ReplicaPlacement, source: int, to: int, gap: int, floor: int
) -> tuple[TopicPartition, TopicPartition] | None:
    best: tuple[int, TopicPartition, TopicPartition] | None = None
    theirs = list(placement.on[to])[:EXCHANGE_CANDIDATES_MAX]
    for mine in list(placement.on[source])[:EXCHANGE_CANDIDATES_MAX]:
        for other in theirs:
            difference = placement.size(mine) - placement.size(other)
            if not floor <= difference <= gap - floor:
                continue
            rest = abs(gap - 2 * difference)
            if best is not None and rest >= best[0]:
                continue
            if placement.can_move(mine, source, to) and placement.can_move(other, to, source):
                best = (rest, mine, other)
    return None if best is None else (best[1], best[2])
