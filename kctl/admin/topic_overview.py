"""Lists and describes topics as kctl topic shows them: partitions, configs, offsets, sizes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.configs import ConfigResource, ConfigSource, ResourceType
from kctl.admin.partition_states import PartitionState, partitions_in_states
from kctl.admin.selection import matching, select_topics
from kctl.admin.topic_sizes import TopicSizes, topic_sizes
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.eligible_leaders import EligibleLeaders
    from kctl.admin.topics import PartitionDescription, TopicDescription


@dataclass(slots=True)
class TopicOverview:
    """Topics with their configs and, if requested, offsets and sizes."""

    topics: "list[TopicDescription]"
    # Unknown names with a hint, or None.
    missing: dict[str, str | None]
    # Topic -> the configs that it overrides; empty for brokers without DescribeConfigs.
    configs: dict[str, dict[str, str | None]] = field(default_factory=dict)
    # Start and end offsets of the partitions that have a leader and answered.
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: TopicSizes | None = None
    # None if the cluster does not know them.
    eligible_leaders: "Mapping[TopicPartition, EligibleLeaders] | None" = None
    # The partitions in the requested states; None if all were requested.
    in_states: Collection[TopicPartition] | None = None

    def partitions(self, topic: "TopicDescription") -> "list[PartitionDescription]":
        """Return the requested partitions of a topic."""
        return [
            it
            for it in topic.partitions
            if self.in_states is None or TopicPartition(it.topic, it.partition) in self.in_states
        ]


async def list_topics(
    admin: "AdminClient",
    patterns: Sequence[str] = (),
    *,
    internal: bool = False,
    with_sizes: bool = False,
    states: Collection[PartitionState] = (),
) -> "tuple[list[TopicDescription], TopicSizes | None]":
    """Return the topics that match a name or glob, or all, and their sizes if requested.

    `internal` includes internal topics; with `states`, return only topics that have a partition in
    one of them. Raise UnreachableError.
    """
    listed = await admin.topics.list_topics()
    wanted = set(matching([topic.name for topic in listed], patterns))
    topics = [it for it in listed if it.name in wanted and (internal or not it.is_internal)]
    if states:
        chosen = {tp.topic for tp in await partitions_in_states(admin, topics, states)}
        topics = [topic for topic in topics if topic.name in chosen]
    if not with_sizes:
        return topics, None
    return topics, await topic_sizes(admin, [topic.name for topic in topics])


async def describe_topics(
    admin: "AdminClient",
    names: Sequence[str] = (),
    *,
    internal: bool = False,
    with_offsets: bool = False,
    with_sizes: bool = False,
    states: Collection[PartitionState] = (),
) -> TopicOverview:
    """Return the topics that names and globs select, or all; `internal` then adds internal ones.

    `with_offsets` adds start and end offsets, `with_sizes` the bytes of all replicas. With
    `states`, return only the partitions that are in one of them, and their topics. Raise
    UnreachableError.
    """
    selected = await select_topics(admin, names, internal=internal)
    overview = TopicOverview(selected.topics, selected.missing)
    if states:
        overview.in_states = await partitions_in_states(admin, selected.topics, states)
        names_left = {tp.topic for tp in overview.in_states}
        overview.topics = [topic for topic in selected.topics if topic.name in names_left]
    if overview.topics and await admin.router.max_version(ApiKey.DESCRIBE_CONFIGS) >= 0:
        resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in overview.topics]
        for found in await admin.configs.describe(resources):
            overview.configs[found.resource.name] = {
                entry.name: entry.value
                for entry in found.entries
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
            }
    if overview.topics:
        from kctl.admin.eligible_leaders import eligible_leaders

        names_left = {topic.name for topic in overview.topics}
        overview.eligible_leaders = await eligible_leaders(admin.router, names_left)
    if with_offsets:
        led = [
            TopicPartition(topic.name, partition.partition)
            for topic in overview.topics
            for partition in topic.partitions
            if not partition.is_offline
        ]
        starts, ends = await admin.offsets.earliest(led), await admin.offsets.latest(led)
        overview.starts = {tp: found.offset for tp, found in starts.items() if not found.error}
        overview.ends = {tp: found.offset for tp, found in ends.items() if not found.error}
    if with_sizes:
        overview.sizes = await topic_sizes(admin, [topic.name for topic in overview.topics])
    return overview
