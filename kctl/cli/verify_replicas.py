"""kctl verify-log --replicas: the replicas of topics, compared over the network."""

from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import did_you_mean
from kctl.errors import KctlError, UsageError
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.replica_verification import ReplicaComparison, ReplicaDifference
    from kctl.admin.topics import PartitionDescription
    from kctl.cli.session import Session

COLUMNS = ("topic", "partition", "replicas", "batches", "end_offset", "result")
_NOT_COMPARED = "not compared"


def verify_replicas(session: "Session", topics: list[str]) -> int:
    """Print a row a partition; FAILED if replicas differ or cannot be compared."""
    from kctl.admin.result import is_unknown_topic

    async def work(admin: "AdminClient") -> list[dict[str, object]]:
        described = await admin.topics.describe(topics)
        for topic in described:
            if is_unknown_topic(topic.error):
                known = [it.name for it in await admin.topics.list_topics()]
                raise UsageError(f"No topic {topic.name}", hint=did_you_mean(topic.name, known))
            if topic.error is not None:
                raise UsageError(f"{topic.name}: {topic.error}")
        await admin.router.refresh(topics)
        return [
            await _row(admin, partition) for topic in described for partition in topic.partitions
        ]

    rows = session.run(work)
    session.output.show(rows, COLUMNS, name="topic")
    return DONE if all(row["is_same"] for row in rows) else FAILED


async def _row(admin: "AdminClient", partition: "PartitionDescription") -> dict[str, object]:
    from kctl.admin.replica_verification import compare_replicas

    row: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "replicas": partition.replicas,
        "batches": 0,
        "end_offset": None,
        "is_same": False,
    }
    brokers = admin.router.view.brokers
    ids = [partition.leader, *(it for it in partition.replicas if it != partition.leader)]
    if len(ids) == 1:
        return row | {"is_same": True, "result": "only one replica"}
    gone = [broker_id for broker_id in ids if broker_id not in brokers]
    if gone:
        return row | {"result": f"{_NOT_COMPARED}: broker {gone[0]} is not there"}
    tp = TopicPartition(partition.topic, partition.partition)
    try:
        start = (await admin.offsets.earliest([tp]))[tp]
        if start.error is not None:
            raise start.error
        addresses = [brokers[broker_id] for broker_id in ids]
        found = await compare_replicas(admin.router, tp, addresses, start.offset)
    except KctlError as error:
        return row | {"result": f"{_NOT_COMPARED}: {error}"}
    return row | _outcome(found)


def _outcome(found: "ReplicaComparison") -> dict[str, object]:
    differences = found.differences
    return {
        "batches": found.batches,
        "end_offset": found.end_offset,
        "is_same": not differences,
        "result": "; ".join(map(_words, differences)) if differences else "same",
    }


def _words(difference: "ReplicaDifference") -> str:
    leader, follower = difference.brokers
    epochs = [None if batch is None else batch.leader_epoch for batch in difference.batches]
    return (
        f"brokers {leader} and {follower} differ from offset {difference.offset} on (leader "
        f"epochs {epochs[0]} and {epochs[1]})"
    )
