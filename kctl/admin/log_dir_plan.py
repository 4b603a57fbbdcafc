"""Which replicas go to another directory of their broker, so that its directories hold alike. Pure.

From the fullest directory to the emptiest, the largest replica that does not turn the tables, until
none narrows the gap by a hundredth of the mean. Kafka 2.7 has no such plan; KIP-113 has the moves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.log_dirs import LogDirDescription, ReplicaSize

_TOLERANCE = 0.01


class LogDirMove(NamedTuple):
    """A replica on the way from one directory of a broker to another."""

    broker_id: int
    partition: TopicPartition
    size_bytes: int
    source: str
    destination: str


def balance_log_dirs(directories: "Sequence[LogDirDescription]") -> list[LogDirMove]:
    """Moves within each broker, in order; directories that are offline take no part."""
    brokers: dict[int, dict[str, dict[TopicPartition, ReplicaSize]]] = {}
    for directory in directories:
        if directory.error is None:
            brokers.setdefault(directory.broker_id, {})[directory.path] = {
                replica.partition: replica for replica in directory.replicas
            }
    moves: list[LogDirMove] = []
    for broker_id, held in sorted(brokers.items()):
        moves += _balance(broker_id, held)
    return moves


def _balance(
    broker_id: int, held: "dict[str, dict[TopicPartition, ReplicaSize]]"
) -> list[LogDirMove]:
    loads = {
        path: sum(it.size_bytes for it in replicas.values()) for path, replicas in held.items()
    }
    floor = max(1, int(sum(loads.values()) / max(1, len(loads)) * _TOLERANCE))
    # A replica that is under way already stays out of it; each moves once.
    movable = {
        path: sorted(
            ((it.size_bytes, tp) for tp, it in replicas.items() if not it.is_future), reverse=True
        )
        for path, replicas in held.items()
    }
    moves: list[LogDirMove] = []
    while len(loads) > 1:
        source = max(sorted(loads), key=loads.__getitem__)
        to = min(sorted(loads), key=loads.__getitem__)
        gap = loads[source] - loads[to]
        fitting = [it for it in movable[source] if floor <= it[0] <= gap - floor]
        if not fitting:
            return moves
        size, tp = min(fitting, key=lambda it: (abs(gap - 2 * it[0]), it[1]))
        movable[source].remove((size, tp))
        loads[source] -= size
        loads[to] += size
        moves.append(LogDirMove(broker_id, tp, size, source, to))
    return moves
