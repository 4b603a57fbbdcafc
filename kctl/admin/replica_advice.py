"""Advises how to restore a damaged replica from the other replicas of its partition."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient


class Remedy(Enum):
    """What to do about a damaged replica."""

    # The cluster does not have the partition.
    UNKNOWN_PARTITION = auto()
    NO_OTHER_REPLICA = auto()
    # The leader is another broker and in sync: the broker copies the partition from it.
    COPY_FROM_LEADER = auto()
    # Another replica is alive but may lack records: take its records in a repair.
    TAKE_RECORDS = auto()
    # No broker with another replica is alive.
    START_A_BROKER = auto()


@dataclass(frozen=True, slots=True)
class ReplicaAdvice:
    """The remedy for one partition, and the brokers to use."""

    partition: TopicPartition
    remedy: Remedy
    brokers: tuple[int, ...] = ()
    # HOST:PORT of the first of `brokers`, for TAKE_RECORDS.
    address: str = ""


async def advise(
    admin: "AdminClient", damaged: Sequence[tuple[TopicPartition, int | None]]
) -> list[ReplicaAdvice]:
    """Return the advice for each (partition, id of the broker that holds the damaged replica)."""
    return [await _advice(admin, partition, broker_id) for partition, broker_id in damaged]


async def _advice(
    admin: "AdminClient", partition: TopicPartition, own_id: int | None
) -> ReplicaAdvice:
    [topic] = await admin.topics.describe([partition.topic])
    found = [it for it in topic.partitions if it.partition == partition.partition]
    if topic.error is not None or not found:
        return ReplicaAdvice(partition, Remedy.UNKNOWN_PARTITION)
    others = tuple(broker for broker in found[0].replicas if broker != own_id)
    if not others:
        return ReplicaAdvice(partition, Remedy.NO_OTHER_REPLICA)
    brokers = (await admin.router.refresh([partition.topic])).brokers
    live = tuple(broker for broker in others if broker in brokers)
    leader = found[0].leader
    if leader in live and leader in found[0].isr:
        return ReplicaAdvice(partition, Remedy.COPY_FROM_LEADER, (leader,))
    if live:
        source = brokers[live[0]]
        address = f"{source.host}:{source.port}"
        return ReplicaAdvice(partition, Remedy.TAKE_RECORDS, live, address)
    return ReplicaAdvice(partition, Remedy.START_A_BROKER, others)
