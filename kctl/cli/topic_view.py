"""What commands show of topics, and which topics names and globs stand for."""

from typing import TYPE_CHECKING, Any

from kctl.cli.items import counted, did_you_mean, is_pattern, matching

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.topics import PartitionDescription, TopicDescription
    from kctl.model import TopicPartition

PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr")


class DescribedTopics:
    """Topics, with what is looked up beside them."""

    def __init__(self, topics: "list[TopicDescription]", missing: dict[str, str | None]) -> None:
        self.topics = topics
        self.missing = missing
        self._configs: dict[str, dict[str, str | None]] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    async def look_up(self, admin: "AdminClient", *, with_offsets: bool) -> None:
        """Settings that differ from the defaults and, if asked for, offsets."""
        from kctl.admin.configs import ConfigResource, ConfigSource, ResourceType
        from kctl.model import TopicPartition
        from kctl.protocol.api_keys import ApiKey

        if self.topics and await admin.router.max_version(ApiKey.DESCRIBE_CONFIGS) >= 0:
            resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in self.topics]
            for found in await admin.configs.describe(resources):
                self._configs[found.resource.name] = {
                    entry.name: entry.value
                    for entry in found.entries
                    if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
                }
        if with_offsets:
            led = [
                TopicPartition(topic.name, partition.partition)
                for topic in self.topics
                for partition in topic.partitions
                if not partition.is_offline
            ]
            starts, ends = await admin.offsets.earliest(led), await admin.offsets.latest(led)
            self._starts = {p: found.offset for p, found in starts.items() if not found.error}
            self._ends = {p: found.offset for p, found in ends.items() if not found.error}

    def partition_document(self, partition: "PartitionDescription") -> dict[str, Any]:
        """A partition as `-o json` shows it."""
        from kctl.model import TopicPartition

        document = {
            "topic": partition.topic,
            "partition": partition.partition,
            "leader": None if partition.is_offline else partition.leader,
            "leader_epoch": known(partition.leader_epoch),
            "replicas": partition.replicas,
            "isr": partition.isr,
            "offline_replicas": partition.offline_replicas,
        }
        key = TopicPartition(partition.topic, partition.partition)
        if self._ends:
            document["start_offset"] = self._starts.get(key)
            document["end_offset"] = self._ends.get(key)
        return document

    def topic_document(
        self, topic: "TopicDescription", partitions: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """A topic as `-o json` shows it."""
        return {
            "name": topic.name,
            "internal": topic.is_internal,
            "partition_count": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "configs": self._configs.get(topic.name, {}),
            "partitions": partitions,
        }


def heading(document: dict[str, Any]) -> str:
    """The line above a topic's partitions."""
    configs = ", ".join(f"{name}={value}" for name, value in document["configs"].items())
    return (
        f"{document['name']}: {counted(document['partition_count'], 'partition')}, "
        f"replication factor {document['replication_factor']}" + (f", {configs}" if configs else "")
    )


async def find(
    admin: "AdminClient", names: list[str], *, internal: bool = False
) -> "tuple[list[TopicDescription], dict[str, str | None]]":
    """The topics that `names` (globs among them) stand for, and those that are not there with a
    hint each. No names: all topics."""
    if names and not any(map(is_pattern, names)):
        described = await admin.topics.describe(names)
        topics = [topic for topic in described if topic.error is None]
        if len(topics) == len(described):
            return topics, {}
    everything = {topic.name: topic for topic in await admin.topics.list_topics()}
    if not names:
        return [t for t in everything.values() if internal or not t.is_internal], {}
    missing = {
        name: did_you_mean(name, everything)
        for name in dict.fromkeys(names)
        if not is_pattern(name) and name not in everything
    }
    # A glob leaves internal topics alone: 'a*' or '*' must not take __consumer_offsets with it.
    globs = [name for name in names if is_pattern(name)]
    own = [topic.name for topic in everything.values() if not topic.is_internal]
    wanted = {*names, *(matching(own, globs) if globs else [])}
    return [topic for topic in everything.values() if topic.name in wanted], missing


def known(number: int) -> int | None:
    """`number`, or None where it stands for nothing known."""
    return None if number < 0 else number
