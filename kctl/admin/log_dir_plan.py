"""Plans moves that balance the log directories of a broker.

Each step moves a replica from the fullest directory to the emptiest: the one that closes the gap
best without reversing it. It ends when no move narrows the gap by a hundredth of the mean. Kafka
2.7 has no such plan; KIP-113 has the moves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.dead_brokers import brokers_text
from kctl.errors import NotFoundError
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.log_dirs import LogDirDescription, ReplicaSize
    from kctl.admin.reassignment_plan import ClusterLayout

_TOLERANCE = 0.01


class LogDirMove(NamedTuple):
    """A move of a replica from one directory of a broker to another."""

    broker_id: int
    partition: TopicPartition
    size_bytes: int
    source: str
    destination: str


async def plan_log_dir_moves(
    admin: "AdminClient", brokers: Sequence[int] | None = None
) -> "tuple[list[LogDirMove], ClusterLayout]":
    """Return the moves within each of `brokers`, or of all, and the layout that they start from.

    Raise NotFoundError if one of `brokers` is not alive.
    """
    layout = await admin.reassignments.layout(with_sizes=False)
    gone = [broker for broker in brokers or () if broker not in layout.racks]
    if gone:
        live = ", ".join(map(str, layout.racks))
        raise NotFoundError(brokers_text(gone), hint=f"live brokers: {live}")
    return balance_log_dirs(await admin.log_dirs.describe(brokers)), layout


def balance_log_dirs(directories: "Sequence[LogDirDescription]") -> list[LogDirMove]:
    """Return the moves within each broker, in order; offline directories are ignored. No I/O."""
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
    # Replicas that are moving already are left out, and each moves at most once.
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
