"""TopicAdmin: create, list, describe, enlarge and delete topics.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.admin.TopicCommand; KIP-4,
KIP-195, KIP-464, KIP-516
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kctl.client.results import error_of, is_unknown_topic
from kctl.errors import UnsupportedVersionError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.later_apis import LaterApi
from kctl.protocol.primitives import uuid_text
from kctl.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.messages.create_topics import CreatableTopic
    from kctl.protocol.schema import Message

# The broker chooses the number (KIP-464).
BROKER_DEFAULT = -1
# The version of CreateTopics that accepts BROKER_DEFAULT. Before version 1, there is no
# validate_only.
_CREATE_WITH_DEFAULTS_VERSION = 4
_CREATE_VALIDATE_VERSION = 1


@dataclass(slots=True)
class NewTopic:
    """A topic to create; BROKER_DEFAULT leaves a number to the broker."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    # Partition -> brokers, preferred leader first; replaces the two numbers.
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(slots=True)
class TopicResult:
    """The result of one topic; numbers that the broker does not report are -1."""

    name: str
    error: ApiError | None = None
    partitions: int = -1
    replication_factor: int = -1


@dataclass(slots=True)
class PartitionDescription:
    """A partition as brokers report it; leader -1 if it has none."""

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
        """Return whether any replica is out of sync."""
        return len(self.isr) < len(self.replicas)

    @property
    def is_offline(self) -> bool:
        """Return whether it has no leader."""
        return self.leader < 0


@dataclass(slots=True)
class TopicDescription:
    """A topic and its partitions, in order."""

    name: str
    is_internal: bool = False
    partitions: list[PartitionDescription] = field(default_factory=list)
    error: ApiError | None = None
    # As Kafka prints it; None before Kafka 2.8.
    topic_id: str | None = None

    @property
    def replication_factor(self) -> int:
        """Return the number of replicas of the first partition; 0 without partitions."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class TopicAdmin:
    """The topics of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def list_topics(self) -> list[TopicDescription]:
        """Return all topics by name, including internal ones."""
        response = await self._router.send_to_any(await self._metadata_request(None))
        return sorted(map(_describe, response.topics), key=lambda topic: topic.name)

    async def describe(self, names: Iterable[str]) -> list[TopicDescription]:
        """Return the topics in the given order. An unknown topic carries its error, and is not
        created by the request."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return []
        if await self._router.max_version(ApiKey.METADATA) < 4:
            # Before Metadata v4 a request for a topic creates it: request all topics instead.
            found = {topic.name: topic for topic in await self.list_topics()}
        else:
            response = await self._router.send_to_any(await self._metadata_request(wanted))
            found = {topic.name: _describe(topic) for topic in response.topics}
        missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [
            found.get(name) or TopicDescription(name, error=error_of(missing)) for name in wanted
        ]

    async def _metadata_request(self, names: Sequence[str] | None) -> "Message":
        """Return the request for topics, or for all (None), that creates none of them; its response
        has the topics' ids if the broker reports them."""
        messages: Any
        if await self._router.max_version(LaterApi.METADATA) >= 0:
            from kctl.protocol.later import metadata as messages
        else:
            from kctl.protocol.messages import metadata as messages
        topics = None
        if names is not None:
            topics = [messages.MetadataRequestTopic(name=name) for name in names]
        elif await self._router.max_version(ApiKey.METADATA) == 0:
            topics = []  # version 0 has no null: empty means all
        allows_creation = names is None  # the default, which old versions lack a field for
        request: Message = messages.MetadataRequest(
            topics=topics, allow_auto_topic_creation=allows_creation
        )
        return request

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 30_000
    ) -> list[TopicResult]:
        """Create topics and return a result per topic; with `validate_only` only check them.

        `timeout_ms` limits how long the controller waits for the creation. Raise UsageError if the
        broker is too old for a requested feature (KIP-4, KIP-195, KIP-464).
        """
        from kctl.protocol.messages.create_topics import CreateTopicsRequest

        if not topics:
            return []
        version = await self._router.max_version(ApiKey.CREATE_TOPICS)
        if validate_only and version < _CREATE_VALIDATE_VERSION:
            raise UnsupportedVersionError(
                "This broker is too old to validate topics without creating them"
            )
        if version < _CREATE_WITH_DEFAULTS_VERSION and not all(map(_is_complete, topics)):
            raise UnsupportedVersionError(
                "This broker is older than Kafka 2.4 and has no defaults for new topics",
                hint="set the numbers of partitions and replicas: -p 1 -r 1",
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
        """Increase topics to the given total numbers of partitions; return a result per topic
        (KIP-195)."""
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
        """Delete topics and return a result per topic."""
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


def _describe(topic: Any) -> TopicDescription:
    """Return a MetadataResponseTopic of any version as a description."""
    partitions = [_describe_partition(topic.name, item) for item in topic.partitions]
    topic_id = getattr(topic, "topic_id", NO_UUID)
    return TopicDescription(
        topic.name,
        topic.is_internal,
        sorted(partitions, key=lambda item: item.partition),
        _topic_error(topic),
        None if topic_id == NO_UUID else uuid_text(topic_id),
    )


def _topic_error(topic: Any) -> ApiError | None:
    error = error_of(topic.error_code)
    # A topic without a leader can still be described.
    return None if error is not None and topic.partitions and not is_unknown_topic(error) else error


def _describe_partition(topic: str, item: Any) -> PartitionDescription:
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
        name,
        error_of(int(ErrorCode.UNKNOWN_SERVER_ERROR), "The broker did not answer for this topic"),
    )
