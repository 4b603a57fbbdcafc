"""Finds and aborts transactions, those of transactional ids and those that hang.

Kafka 3.0: org.apache.kafka.tools.TransactionsCommand (`abort`); KIP-664
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.selection import existing_topics
from kctl.admin.transactions import OpenTransaction, TransactionDescription
from kctl.errors import KctlError, NotFoundError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient


@dataclass(frozen=True, slots=True)
class AbortPlan:
    """The transactional ids whose transactions are aborted, and the ids that do not exist."""

    transactions: list[TransactionDescription]
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AbortedId:
    """The result of one transactional id."""

    transaction: TransactionDescription
    error: KctlError | None = None


@dataclass(frozen=True, slots=True)
class AbortedHanging:
    """The result of aborting one hanging transaction."""

    transaction: OpenTransaction
    error: KctlError | None = None


async def plan_abort(admin: "AdminClient", transactional_ids: Iterable[str]) -> AbortPlan:
    """Return which of the transactional ids exist, without changing anything.

    `abort` must not be asked for others: a request with an unknown id creates it.
    """
    known = {it.transactional_id: it for it in await admin.transactions.list_transactions()}
    names = list(dict.fromkeys(transactional_ids))
    return AbortPlan(
        [known[name] for name in names if name in known],
        [name for name in names if name not in known],
    )


async def abort(admin: "AdminClient", plan: AbortPlan) -> list[AbortedId]:
    """Abort the open transactions of a plan and fence their producers; return a result per id."""
    results = []
    for it in plan.transactions:
        error = None
        try:
            await admin.transactions.fence(it.transactional_id)
        except KctlError as failure:
            error = failure
        results.append(AbortedId(it, error))
    return results


async def hanging_transactions(
    admin: "AdminClient", topic: str | None = None
) -> list[OpenTransaction]:
    """Return the transactions that are open in a partition but unknown to their coordinator.

    Only partitions of `topic` are read, or those of all topics. Raise KctlError if it does not
    exist, ApiError.
    """
    found = await admin.transactions.open_transactions(await _partitions(admin, topic))
    return [it for it in found if it.transactional_id is None]


async def plan_abort_hanging(
    admin: "AdminClient", partition: TopicPartition, producer_id: int | None = None
) -> list[OpenTransaction]:
    """Return the hanging transactions of a partition, without changing anything.

    `producer_id` restricts them to one producer. Raise KctlError if the partition does not exist,
    or if one of its open transactions is not hanging, as its coordinator ends it.
    """
    if partition not in await _partitions(admin, partition.topic):
        raise NotFoundError(f"{partition.topic} has no partition {partition.partition}")
    found = [
        it
        for it in await admin.transactions.open_transactions([partition])
        if producer_id in (None, it.producer_id)
    ]
    for it in found:
        if it.transactional_id is not None:
            raise KctlError(
                f"The transaction of producer {it.producer_id} in {it.partition} is not hanging: "
                f"it belongs to transactional id {it.transactional_id}",
                hint=f"kctl txn abort {it.transactional_id}, or name another --producer-id",
            )
    return found


async def abort_hanging(
    admin: "AdminClient", found: Sequence[OpenTransaction], coordinator_epoch: int = 0
) -> list[AbortedHanging]:
    """Write the abort markers of hanging transactions; return a result per transaction."""
    results = []
    for it in found:
        error = None
        try:
            await admin.transactions.abort_hanging(it, coordinator_epoch)
        except KctlError as failure:
            error = failure
        results.append(AbortedHanging(it, error))
    return results


async def _partitions(admin: "AdminClient", topic: str | None) -> list[TopicPartition]:
    topics = await existing_topics(admin, None if topic is None else [topic])
    return [
        TopicPartition(it.name, partition.partition) for it in topics for partition in it.partitions
    ]
