"""TopicAdmin: create, list, describe, enlarge and delete topics.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.admin.TopicCommand; KIP-4,
KIP-195, KIP-464
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kctl.admin.result import error_of, is_unknown_topic
from kctl.errors import UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.messages.create_topics import CreatableTopic

# Let the broker decide (KIP-464).
BROKER_DEFAULT = -1
# CreateTopics from this version on takes BROKER_DEFAULT, and before version 1 no validate_only.
_CREATE_WITH_DEFAULTS_VERSION = 4
_CREATE_VALIDATE_VERSION = 1


@dataclass(slots=True)
class NewTopic:
    """A topic to be; BROKER_DEFAULT leaves a number to the broker."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    # Partition -> brokers, preferred leader first; instead of the two numbers.
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(slots=True)
class TopicResult:
    """What became of one topic; the numbers are -1 where the broker does not tell them."""

    name: str
    error: ApiError | None = None
    partitions: int = -1
    replication_factor: int = -1


@dataclass(slots=True)
class PartitionDescription:
    """One partition as the brokers see it; leader -1: none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    error: ApiError | None = None

    @property
    def is_under_replicated(self) -> bool:
        """Whether some replica is out of sync."""
        return len(self.isr) < len(self.replicas)

    @property
    def is_offline(self) -> bool:
        """Whether nobody leads it."""
        return self.leader < 0


@dataclass(slots=True)
class TopicDescription:
    """A topic and its partitions in order."""

    name: str
    is_internal: bool = False
    partitions: list[PartitionDescription] = field(default_factory=list)
    error: ApiError | None = None

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, as everybody counts it; 0 without partitions."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class TopicAdmin:
    """The topics of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def list_topics(self) -> list[TopicDescription]:
        """All topics by name, internal ones among them."""
        request = MetadataRequest(topics=None)
        if await self._router.max_version(ApiKey.METADATA) == 0:
            request = MetadataRequest(topics=[])  # version 0 has no null: empty means all
        response = await self._router.send_to_any(request)
        return sorted(map(_describe, response.topics), key=lambda topic: topic.name)

    async def describe(self, names: Iterable[str]) -> list[TopicDescription]:
        """These topics, in the order given; one that is not there carries its error and is not
        created by asking."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return []
        if await self._router.max_version(ApiKey.METADATA) < 4:
            # An old broker would create what it is asked for: ask for all of them instead.
            found = {topic.name: topic for topic in await self.list_topics()}
        else:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in wanted],
                allow_auto_topic_creation=False,
            )
            response = await self._router.send_to_any(request)
            found = {topic.name: _describe(topic) for topic in response.topics}
        missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [
            found.get(name) or TopicDescription(name, error=error_of(missing)) for name in wanted
        ]

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 30_000
    ) -> list[TopicResult]:
        """Create them, each on its own; UsageError if the broker is too old for what is asked."""
        from kctl.protocol.messages.create_topics import CreateTopicsRequest

        if not topics:
            return []
        version = await self._router.max_version(ApiKey.CREATE_TOPICS)
        if validate_only and version < _CREATE_VALIDATE_VERSION:
            raise UsageError("This broker is too old to check topics without creating them")
        if version < _CREATE_WITH_DEFAULTS_VERSION and not all(map(_is_complete, topics)):
            raise UsageError(
                "This broker is older than Kafka 2.4 and has no default numbers for new topics",
                hint="say how many partitions and replicas: -p 1 -r 1",
            )
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        response = await self._router.send_to_controller(request)
        results = {
            topic.name: TopicResult(
                topic.name,
                error_of(topic.error_code, topic.error_message),
                topic.num_partitions,
                topic.replication_factor,
            )
            for topic in response.topics
        }
        return [results.get(topic.name) or _unanswered(topic.name) for topic in topics]

    async def add_partitions(
        self,
        counts: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: int = 30_000,
    ) -> list[TopicResult]:
        """Enlarge each topic to that many partitions in all."""
        from kctl.protocol.messages.create_partitions import (
            CreatePartitionsRequest,
            CreatePartitionsTopic,
        )

        if not counts:
            return []
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in counts.items()
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        response = await self._router.send_to_controller(request)
        results = {
            topic.name: TopicResult(
                topic.name, error_of(topic.error_code, topic.error_message), counts[topic.name]
            )
            for topic in response.results
        }
        return [results.get(name) or _unanswered(name) for name in counts]

    async def delete(self, names: Sequence[str], *, timeout_ms: int = 30_000) -> list[TopicResult]:
        """Delete them, each on its own."""
        from kctl.protocol.messages.delete_topics import DeleteTopicsRequest

        if not names:
            return []
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
        response = await self._router.send_to_controller(request)
        results = {
            topic.name: TopicResult(topic.name, error_of(topic.error_code, topic.error_message))
            for topic in response.responses
        }
        return [results.get(name) or _unanswered(name) for name in names]


def _is_complete(topic: NewTopic) -> bool:
    return bool(topic.assignment) or (topic.partitions > 0 and topic.replication_factor > 0)


def _creatable(topic: NewTopic) -> "CreatableTopic":
    from kctl.protocol.messages.create_topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreateableTopicConfig,
    )

    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if topic.assignment else topic.partitions,
        replication_factor=BROKER_DEFAULT if topic.assignment else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in sorted(topic.assignment.items())
        ],
        configs=[
            CreateableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _describe(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = [_describe_partition(topic.name, item) for item in topic.partitions]
    return TopicDescription(
        topic.name,
        topic.is_internal,
        sorted(partitions, key=lambda item: item.partition),
        _topic_error(topic),
    )


def _topic_error(topic: MetadataResponseTopic) -> ApiError | None:
    error = error_of(topic.error_code)
    # A topic without a leader is no failure to describe it.
    return None if error is not None and topic.partitions and not is_unknown_topic(error) else error


def _describe_partition(topic: str, item: MetadataResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        topic,
        item.partition_index,
        item.leader_id,
        item.leader_epoch,
        list(item.replica_nodes),
        list(item.isr_nodes),
        list(item.offline_replicas),
        error_of(item.error_code),
    )


def _unanswered(name: str) -> TopicResult:
    return TopicResult(
        name, error_of(int(ErrorCode.UNKNOWN_SERVER_ERROR), "The broker said nothing about it")
    )
