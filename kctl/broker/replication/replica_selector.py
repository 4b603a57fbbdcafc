"""rack_aware_replica: selects the replica that serves a consumer of a rack (KIP-392). No I/O.

Candidates are followers that have the requested offset. Among the replicas in the consumer's rack
the leader is preferred, then the follower with the most records. A consumer without a rack, or
without a replica in it, is served by the leader.

Kafka 2.7: org.apache.kafka.common.replica.{RackAwareReplicaSelector, LeaderSelector},
kafka.server.ReplicaManager.findPreferredReadReplica.
"""

from collections.abc import Callable

from kctl.broker.replication.partition import Partition
from kctl.errors import UsageError

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER = "org.apache.kafka.common.replica.LeaderSelector"

RackOf = Callable[[int], str | None]
# (partition, the consumer's rack, requested offset) -> broker id.
ReplicaSelector = Callable[[Partition, str, int], int]


def replica_selector(class_name: str | None, rack_of: RackOf) -> ReplicaSelector | None:
    """Return the selector for `replica.selector.class` (None: only leaders serve); raise
    UsageError."""
    if not class_name or class_name == LEADER:
        return None
    if class_name == RACK_AWARE:
        return lambda partition, rack, offset: rack_aware_replica(partition, rack, offset, rack_of)
    raise UsageError(
        f"replica.selector.class={class_name} is not supported",
        hint=f"omit it, or set it to {RACK_AWARE}",
    )


def rack_aware_replica(partition: Partition, rack: str, offset: int, rack_of: RackOf) -> int:
    """Return the broker that the consumer should fetch from; called on a partition's leader."""
    if rack_of(partition.broker_id) == rack:
        return partition.broker_id
    nearby = [
        follower
        for follower in partition.followers.values()
        if rack_of(follower.broker_id) == rack
        and 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
    ]
    if not nearby:
        return partition.broker_id
    best = max(nearby, key=lambda follower: (follower.log_end_offset, follower.last_caught_up_ms))
    return best.broker_id
