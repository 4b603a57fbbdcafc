"""The samples of topics and groups that a broker knows: of the partitions that it leads and of the
groups that it coordinates, under kafka_exporter's names.

Together the brokers of a cluster have each series once. The lag of a group needs the end of a
partition, so that only those of partitions led here have one; `kctl metrics serve` has all.
"""

from collections.abc import Callable

from kctl.broker.replication.partition import Partition, Role
from kctl.broker.services import Services
from kctl.metrics import cluster_families as c
from kctl.metrics.family import Family, Sample, Samples
from kctl.model import TopicPartition

# A broker with more committed offsets has no series of each.
OFFSETS_MAX = 5_000


class ClusterSamples:
    """Reads the metrics of topics and groups."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def all(self, *, with_partitions: bool) -> Samples:
        """Yield every sample; without those of single partitions if they are not wanted."""
        services = self._services
        yield Sample(c.BROKERS, (), len(services.metadata_cache.alive_brokers()))
        if services.controller.is_active:
            # One broker has them, so that a sum over brokers is right.
            for broker_id, address in _addresses(services):
                yield Sample(c.BROKER_INFO, (str(broker_id), address), 1)
            for topic, assignment in list(services.controller.context.topics.items()):
                yield Sample(c.TOPIC_PARTITIONS, (topic,), len(assignment))
        if with_partitions:
            yield from self._partitions()
        yield from self._groups(with_partitions=with_partitions)

    def _partitions(self) -> Samples:
        led = [
            (partition, _labels(partition.topic_partition))
            for partition in self._services.replica_manager.partitions.values()
            if partition.role is Role.LEADER and partition.log is not None
        ]
        readings: tuple[tuple[Family, Callable[[Partition], int]], ...] = (
            (c.CURRENT_OFFSET, lambda it: it.log.high_watermark if it.log is not None else 0),
            (c.OLDEST_OFFSET, lambda it: it.log.log_start_offset if it.log is not None else 0),
            (c.LEADER, lambda it: it.leader_id),
            (c.REPLICAS, lambda it: len(it.assignment)),
            (c.IN_SYNC_REPLICAS, lambda it: len(it.isr)),
            (c.IS_PREFERRED, lambda it: it.assignment[:1] == (it.leader_id,)),
            (c.UNDER_REPLICATED, lambda it: len(it.isr) < len(it.assignment)),
        )
        for family, read in readings:
            for partition, labels in led:
                yield Sample(family, labels, read(partition))

    def _groups(self, *, with_partitions: bool) -> Samples:
        groups = [
            group
            for host in list(self._services.group_coordinator.hosts.values())
            for group in list(host.shard.groups.values())
        ]
        yield None
        for group in groups:
            yield Sample(c.GROUP_MEMBERS, (group.group_id,), len(group.members))
        if not with_partitions or sum(len(it.offsets.committed) for it in groups) > OFFSETS_MAX:
            return
        committed = [
            (group.group_id, tp, logged.committed.offset)
            for group in groups
            for tp, logged in group.offsets.committed.items()
        ]
        yield None
        for group_id, tp, offset in committed:
            yield Sample(c.GROUP_OFFSET, (group_id, *_labels(tp)), offset)
        for group_id, tp, offset in committed:
            end = self._end(tp)
            if end is not None:
                yield Sample(c.GROUP_LAG, (group_id, *_labels(tp)), max(end - offset, 0))

    def _end(self, tp: TopicPartition) -> int | None:
        partition: Partition | None = self._services.replica_manager.partitions.get(tp)
        if partition is None or partition.role is not Role.LEADER or partition.log is None:
            return None
        return partition.log.high_watermark


def _addresses(services: Services) -> list[tuple[int, str]]:
    """Return id and address of each live broker, at the first of its listeners."""
    return [
        (broker.broker_id, f"{broker.endpoints[0].host}:{broker.endpoints[0].port}")
        for broker in services.metadata_cache.alive_brokers()
        if broker.endpoints
    ]


def _labels(tp: TopicPartition) -> tuple[str, str]:
    return tp.topic, str(tp.partition)
