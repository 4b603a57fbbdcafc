"""kctl verify-log --replicas: compares the replicas of topics over the network."""

from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED

if TYPE_CHECKING:
    from kctl.admin.replica_verification import ReplicaDifference, VerifiedPartition
    from kctl.cli.session import Session

COLUMNS = ("topic", "partition", "replicas", "batches", "end_offset", "result")


def verify_replicas(session: "Session", topics: list[str]) -> int:
    """Print a row per partition; return FAILED if replicas differ or cannot be compared."""
    from kctl.admin.replica_verification import verify_topics

    found = session.run(lambda admin: verify_topics(admin, topics))
    session.output.show(list(map(_row, found)), COLUMNS, name="topic")
    return DONE if all(it.is_same for it in found) else FAILED


def _row(it: "VerifiedPartition") -> dict[str, object]:
    found = it.comparison
    return {
        "topic": it.partition.topic,
        "partition": it.partition.partition,
        "replicas": it.partition.replicas,
        "batches": 0 if found is None else found.batches,
        "end_offset": None if found is None else found.end_offset,
        "is_same": it.is_same,
        "result": _result(it),
    }


def _result(it: "VerifiedPartition") -> str:
    if it.obstacle:
        return f"not compared: {it.obstacle}"
    if it.comparison is None:
        return "only one replica"
    return "; ".join(map(_described, it.comparison.differences)) or "same"


def _described(difference: "ReplicaDifference") -> str:
    leader, follower = difference.brokers
    epochs = [None if batch is None else batch.leader_epoch for batch in difference.batches]
    return (
        f"brokers {leader} and {follower} differ from offset {difference.offset} on (leader "
        f"epochs {epochs[0]} and {epochs[1]})"
    )
