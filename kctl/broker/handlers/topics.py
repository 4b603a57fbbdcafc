"""CreateTopics, DeleteTopics, CreatePartitions: written to the store and executed by the
controller.

Behaviour:

- Only the controller's broker handles them; others return NOT_CONTROLLER for every topic.
- A topic named twice is INVALID_REQUEST (create, create partitions); delete accepts it once.
- The response waits until this broker's metadata has leaders for all new partitions, or no longer
  has the topic. At the timeout, or if that is not above 0, unfinished topics are
  REQUEST_TIMED_OUT; their creation or deletion continues.
- The configs of a new topic are returned to clients that may describe them.
- A quota of mutations is asked per topic, in the order of the request (KIP-599).
- validate_only checks everything and writes nothing.
- Deletion forbidden by delete.topic.enable is INVALID_REQUEST before version 3 of DeleteTopics.

Versions: CreateTopics 0-6 (v1 validate_only and messages; v4 defaults by -1, KIP-464; v5 returns
the configs, KIP-525; v6 quota errors), DeleteTopics 0-5 (v5 messages), CreatePartitions 0-3.

Kafka 2.7: kafka.server.KafkaApis, kafka.server.AdminManager.
"""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kctl.broker.client_throttling import MutationQuota
from kctl.broker.config.config_entries import BrokerConfigView, topic_entries
from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.broker.topic_creation import NewTopic
from kctl.protocol.acl import AclOperation, ResourceType
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kctl.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kctl.store.errors import NodeExistsError, StoreError
from kctl.store.znodes import BROKER_CONFIGS, DEFAULT_ENTITY

CREATE_TOPICS_WITH_CONFIGS = 5
# From these versions on a topic that exceeds a quota is refused; before, only the client is paused.
CREATE_TOPICS_WITH_QUOTA_ERROR = 6
CREATE_PARTITIONS_WITH_QUOTA_ERROR = 3
DELETE_TOPICS_WITH_QUOTA_ERROR = 5
DELETE_TOPICS_WITH_DISABLED_ERROR = 3
DUPLICATE_IN_CREATE = "Found multiple entries for this topic."
DUPLICATE_IN_CREATE_PARTITIONS = "Duplicate topic in request."
QUEUED_FOR_DELETION = "The topic is queued for deletion."


# --- create


def handle_create_topics(services: Services, request: Request) -> None:
    """Create topics, and reply when all partitions have leaders."""
    reply_from(
        services.runtime.scheduler, request, _create_topics(services, request), "create-topics"
    )


async def _create_topics(services: Services, request: Request) -> None:
    body: CreateTopicsRequest = request.body
    counts = Counter(topic.name for topic in body.topics)
    quota = _mutation_quota(services, request, CREATE_TOPICS_WITH_QUOTA_ERROR)
    results = []
    tasks = []
    # Topic -> number of partitions to wait for.
    created: dict[str, int] = {}
    deletions: Collection[str] | None = None
    # Without them each topic reads its own, and reports the error.
    with suppress(StoreError):
        deletions = await services.topic_creator.deletions()
    for topic in body.topics:
        result = CreatableTopicResult(name=topic.name, error_message=None)
        results.append(result)

        async def create(topic: CreatableTopic = topic, result: Any = result) -> None:
            if counts[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, DUPLICATE_IN_CREATE)
            new = _new_topic(topic)
            assignment = await services.topic_creator.create(
                new,
                validate_only=body.validate_only,
                deletions=deletions,
                allow=None if quota is None else quota.record,
            )
            created[topic.name] = len(assignment)
            if request.api_version >= CREATE_TOPICS_WITH_CONFIGS:
                _describe_new(services, request, result, new, assignment)

        # Concurrently: their writes to the store are batched.
        tasks.append(services.runtime.scheduler.spawn(_attempt(services, result, create)))
        if quota is not None:
            # A quota is used up in the order of the request.
            await tasks[-1]
    for task in tasks:
        await task
    if created and not body.validate_only:
        waiting = _Leaders(services, created)
        await services.topic_waits.wait(created, waiting.are_known, body.timeout_ms)
        for result in results:
            if not result.error_code and waiting.are_late(result.name, body.timeout_ms):
                _time_out_creation(result)
    _pause_client(request, quota)
    request.reply(CreateTopicsResponse(topics=results))


def _describe_new(
    services: Services,
    request: Request,
    result: CreatableTopicResult,
    topic: NewTopic,
    assignment: Mapping[int, Sequence[int]],
) -> None:
    """Add the size and the configs of a new topic to its result (KIP-525)."""
    if not request.access.allows(
        AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, is_probe=True
    ):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return
    result.num_partitions = len(assignment)
    result.replication_factor = len(assignment[0])
    result.configs = _configs(services, topic)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {a.partition_index: a.broker_ids for a in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )


def _configs(services: Services, topic: NewTopic) -> list[CreatableTopicConfigs]:
    dynamic = services.dynamic_configs
    view = BrokerConfigView(
        services.config,
        dynamic.overrides(BROKER_CONFIGS, str(services.broker_id)),
        dynamic.overrides(BROKER_CONFIGS, DEFAULT_ENTITY),
    )
    overrides = {name: value or "" for name, value in topic.configs.items()}
    return [
        CreatableTopicConfigs(
            name=entry.key.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.key.is_sensitive,
        )
        for entry in topic_entries(overrides, view, None)
    ]


class _Leaders:
    """Waits for leaders of partitions 0 to n of topics in this broker's metadata."""

    def __init__(self, services: Services, partitions: dict[str, int]) -> None:
        self._cache = services.metadata_cache
        self._partitions = partitions

    def are_known(self) -> bool:
        """Return whether all topics have their leaders."""
        return not any(self._lacks(topic) for topic in self._partitions)

    def are_late(self, topic: str, timeout_ms: int) -> bool:
        """Return whether one topic lacks leaders after the wait; without a timeout it counts as
        late."""
        return topic in self._partitions and (timeout_ms <= 0 or self._lacks(topic))

    def _lacks(self, topic: str) -> bool:
        return self._cache.lacks_leader(topic, self._partitions[topic])


def _time_out_creation(result: CreatableTopicResult) -> None:
    result.error_code = ErrorCode.REQUEST_TIMED_OUT
    result.num_partitions = result.replication_factor = -1
    result.configs = []


# --- create partitions


def handle_create_partitions(services: Services, request: Request) -> None:
    """Add partitions, and reply when all of them have leaders."""
    reply_from(
        services.runtime.scheduler,
        request,
        _create_partitions(services, request),
        "create-partitions",
    )


async def _create_partitions(services: Services, request: Request) -> None:
    body: CreatePartitionsRequest = request.body
    counts = Counter(topic.name for topic in body.topics)
    quota = _mutation_quota(services, request, CREATE_PARTITIONS_WITH_QUOTA_ERROR)
    results: dict[str, CreatePartitionsTopicResult] = {}
    grown: dict[str, int] = {}
    for topic in body.topics:
        if topic.name in results:
            continue
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)

        async def add(topic: CreatePartitionsTopic = topic) -> None:
            if counts[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, DUPLICATE_IN_CREATE_PARTITIONS)
            if services.controller.context.is_to_be_deleted(topic.name):
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, QUEUED_FOR_DELETION)
            await services.topic_creator.add_partitions(
                topic.name,
                topic.count,
                None if topic.assignments is None else [a.broker_ids for a in topic.assignments],
                validate_only=body.validate_only,
                allow=None if quota is None else quota.record,
            )
            grown[topic.name] = topic.count

        await _attempt(services, result, add)
    if grown and not body.validate_only:
        waiting = _Leaders(services, grown)
        await services.topic_waits.wait(grown, waiting.are_known, body.timeout_ms)
        for result in results.values():
            if not result.error_code and waiting.are_late(result.name, body.timeout_ms):
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
    _pause_client(request, quota)
    request.reply(CreatePartitionsResponse(results=list(results.values())))


# --- delete


def handle_delete_topics(services: Services, request: Request) -> None:
    """Mark topics for deletion, and reply when they are gone."""
    reply_from(
        services.runtime.scheduler, request, _delete_topics(services, request), "delete-topics"
    )


async def _delete_topics(services: Services, request: Request) -> None:
    body: DeleteTopicsRequest = request.body
    cache = services.metadata_cache
    quota = _mutation_quota(services, request, DELETE_TOPICS_WITH_QUOTA_ERROR)
    results: dict[str, DeletableTopicResult] = {}
    marked: list[str] = []
    tasks = []
    for name in dict.fromkeys(body.topic_names):
        result = results[name] = DeletableTopicResult(name=name)

        async def mark(name: str = name) -> None:
            _check_deletion(services, request.api_version, name)
            if quota is not None:
                quota.record(cache.partition_count(name) or 0)
            # A repeated request waits for the same deletion.
            with suppress(NodeExistsError):
                await services.cluster_store.create_delete_topic_path(name)
            marked.append(name)

        tasks.append(services.runtime.scheduler.spawn(_attempt(services, result, mark)))
        if quota is not None:
            await tasks[-1]
    for task in tasks:
        await task
    if marked:
        await services.topic_waits.wait(
            marked, lambda: not any(map(cache.contains, marked)), body.timeout_ms
        )
        for name in marked:
            if body.timeout_ms <= 0 or cache.contains(name):
                results[name].error_code = ErrorCode.REQUEST_TIMED_OUT
    _pause_client(request, quota)
    request.reply(DeleteTopicsResponse(responses=[results[name] for name in body.topic_names]))


def _check_deletion(services: Services, version: int, name: str) -> None:
    if not services.config.delete_topic_enable:
        if version < DELETE_TOPICS_WITH_DISABLED_ERROR:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED)
    if not services.metadata_cache.contains(name):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# --- shared


def _mutation_quota(
    services: Services, request: Request, strict_since: int
) -> MutationQuota | None:
    quotas = services.client_quotas
    if not quotas.is_enabled:
        return None
    now_ms = services.runtime.clock.monotonic_ms
    return quotas.mutation_quota(request, now_ms, strict_since=strict_since)


def _pause_client(request: Request, quota: MutationQuota | None) -> None:
    if quota is not None:
        whole = request.whole or request
        whole.throttle_ms = max(whole.throttle_ms, quota.throttle_ms)


async def _attempt(
    services: Services, result: Any, attempt: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run one topic's operation; an error becomes that topic's result."""
    try:
        if not services.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        await attempt()
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.reason
    except StoreError as error:
        result.error_code, result.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
