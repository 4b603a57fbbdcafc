"""ZnodeReassignments: reassignments through ZooKeeper, for clusters older than Kafka 2.4.

A znode contains the requested reassignments; the controller deletes it when all are complete. Until
then, none can be added or cancelled.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (with `--zookeeper`), kafka.zk.KafkaZkClient.
"""

from typing import TYPE_CHECKING

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.reassignment_plan import ClusterLayout
from kctl.errors import ImpossibleError, UsageError
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.store import znodes
from kctl.store.errors import NodeExistsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kctl.admin.reassignment import Outcomes, Targets
    from kctl.admin.replication_throttle import Override
    from kctl.store.cluster_store import ClusterStore

_ENTITY = {
    ResourceType.TOPIC: znodes.TOPIC_CONFIGS,
    ResourceType.BROKER: znodes.BROKER_CONFIGS,
}


class ZnodeReassignments:
    """The reassignments of the cluster that the znodes belong to."""

    def __init__(self, store: "ClusterStore") -> None:
        self._store = store

    async def cluster_id(self) -> str | None:
        """Return the id of the cluster, or None."""
        return await self._store.get_cluster_id()

    async def layout(self, *, with_sizes: bool = True) -> ClusterLayout:
        """Return brokers and replicas without sizes, which ZooKeeper does not have; moving
        partitions have their targets."""
        _ = with_sizes
        topics = await self._store.get_topic_assignments(await self._store.get_all_topics())
        assignment = {
            TopicPartition(topic, number): replicas.target
            for topic, partitions in topics.items()
            for number, replicas in partitions.items()
        }
        assignment |= await self._store.get_partition_reassignment()
        brokers = await self._store.get_all_brokers()
        return ClusterLayout({b: brokers[b].rack for b in sorted(brokers)}, assignment, {})

    async def ongoing(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions that move, in order."""
        asked = await self._store.get_partition_reassignment()
        topics = await self._store.get_topic_assignments(await self._store.get_all_topics())
        found = {}
        for topic, partitions in topics.items():
            for number, current in partitions.items():
                tp = TopicPartition(topic, number)
                if current.is_being_reassigned:
                    found[tp] = current
                elif tp in asked:
                    found[tp] = current.reassign_to(tuple(asked[tp]))
        return dict(sorted(found.items()))

    async def alter(self, targets: "Targets") -> "Outcomes":
        """Submit all reassignments at once; raise UsageError for a cancellation."""
        wanted: dict[TopicPartition, Sequence[int]] = {}
        for tp, replicas in targets.items():
            if replicas is None:
                raise UsageError(
                    "A reassignment cannot be cancelled through ZooKeeper",
                    hint="use --bootstrap-server: Kafka 2.4 and later support it",
                )
            wanted[tp] = replicas
        try:
            await self._store.create_partition_reassignment(wanted)
        except NodeExistsError:
            raise ImpossibleError(
                "A reassignment is in progress, and ZooKeeper accepts one at a time",
                hint="kctl reassign list --zookeeper ... shows it",
            ) from None
        return dict.fromkeys(targets)

    async def overrides(
        self, resources: "Sequence[ConfigResource]", names: "Sequence[str]"
    ) -> "dict[ConfigResource, dict[str, Override]]":
        """Return those of `names` that each resource overrides."""
        from kctl.admin.replication_throttle import Override

        found = {}
        for resource in resources:
            entity = _ENTITY[resource.resource_type]
            config = await self._store.get_entity_config(entity, resource.name)
            found[resource] = {n: Override(config[n]) for n in names if n in config}
        return found

    async def alter_overrides(self, changes: "Mapping[ConfigResource, ConfigChanges]") -> None:
        """Set and delete overrides, and notify the brokers."""
        for resource, change in changes.items():
            entity = _ENTITY[resource.resource_type]

            def changed(
                config: "Mapping[str, str]", change: "ConfigChanges" = change
            ) -> dict[str, str]:
                kept = {n: value for n, value in config.items() if n not in change.delete}
                return {**kept, **change.set}

            await self._store.update_entity_config(entity, resource.name, changed)

    async def resources(self) -> list[ConfigResource]:
        """Return every broker and topic with overrides."""
        found = []
        for kind, entity in _ENTITY.items():
            names = await self._store.get_entities_with_config(entity)
            found += [ConfigResource(kind, name) for name in names if name != znodes.DEFAULT_ENTITY]
        return found
