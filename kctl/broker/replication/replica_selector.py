"""rack_aware_replica: which replica a consumer of a rack is best served by (KIP-392). Pure.

Only followers that have the offset asked for are candidates. Among those in the consumer's rack the
leader is best, then whoever is furthest; in no rack of its own, or with nobody there, the leader
serves it.

Kafka 2.7: org.apache.kafka.common.replica.{RackAwareReplicaSelector, LeaderSelector},
kafka.server.ReplicaManager.findPreferredReadReplica.
"""

from collections.abc import Callable

from kctl.broker.replication.partition import Partition
from kctl.errors import UsageError

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER = "org.apache.kafka.common.replica.LeaderSelector"

RackOf = Callable[[int], str | None]
# (partition, the consumer's rack, offset asked for) -> broker id.
ReplicaSelector = Callable[[Partition, str, int], int]


def replica_selector(class_name: str | None, rack_of: RackOf) -> ReplicaSelector | None:
    """What `replica.selector.class` asks for (None: leaders serve everybody); UsageError."""
    if not class_name or class_name == LEADER:
        return None
    if class_name == RACK_AWARE:
        return lambda partition, rack, offset: rack_aware_replica(partition, rack, offset, rack_of)
    raise UsageError(
        f"replica.selector.class={class_name} is not supported",
        hint=f"leave it out, or set it to {RACK_AWARE}",
    )


def rack_aware_replica(partition: Partition, rack: str, offset: int, rack_of: RackOf) -> int:
    """The broker that the consumer should fetch from; asked of a partition's leader."""
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
