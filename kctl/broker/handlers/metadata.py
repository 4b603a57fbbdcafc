"""Metadata: brokers, the controller, topics with their leaders, as this broker last heard.

Behaviour:
- Brokers and leaders are given by their addresses on the listener that the request came through.
- An unknown topic is made if request and broker allow it (internal topics always), and answered
  LEADER_NOT_AVAILABLE: the client asks again.
- A partition whose leader is not alive is LEADER_NOT_AVAILABLE; alive but not on this listener:
  LISTENER_NOT_FOUND from version 6 on.
- Version 0 leaves out replicas on dead brokers and says so by REPLICA_NOT_AVAILABLE.
- Topics come in the order asked for (each once), or sorted.
- Authorized operations, when asked for, are all there are, as nothing is forbidden to anybody.

Versions: 0-9. Before v1 an empty list means all topics, from v1 on null does.

Kafka 2.7: kafka.server.KafkaApis.handleTopicMetadataRequest; KIP-4, KIP-112 (offline replicas),
KIP-302 (listeners), KIP-430 (authorized operations).
"""

from collections.abc import Iterable, Sequence

from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.broker.topic_creation import is_internal
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.protocol.messages.update_metadata import UpdateMetadataPartitionState

NO_ID = -1
# What stands for the operations that were not asked for.
NOT_ASKED = -(1 << 31)
# Bit n: operation n of Kafka's AclOperation.
ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NULL_MEANS_ALL_FROM = 1
LISTENER_ERRORS_FROM = 6


def handle_metadata(services: Services, request: Request) -> None:
    """Answer at once, unless topics have to be made first."""
    body: MetadataRequest = request.body
    cache = services.metadata_cache
    names = _names(cache, body, request.api_version)
    missing = [name for name in names if not cache.contains(name)]
    if missing and _may_create(services, body, missing):
        services.runtime.scheduler.spawn(
            _create_and_answer(services, request, names, missing), "auto-create"
        )
    else:
        unknown = dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        request.reply(_response(services, request, names, unknown))


def _names(cache: MetadataCache, body: MetadataRequest, version: int) -> Sequence[str]:
    wants_all = body.topics is None or (version < NULL_MEANS_ALL_FROM and not body.topics)
    if wants_all:
        return cache.topics()
    return list(dict.fromkeys(topic.name for topic in body.topics or ()))


def _may_create(services: Services, body: MetadataRequest, missing: Iterable[str]) -> bool:
    if body.allow_auto_topic_creation and services.config.auto_create_topics_enable:
        return True
    return any(map(is_internal, missing))


async def _create_and_answer(
    services: Services, request: Request, names: Sequence[str], missing: Sequence[str]
) -> None:
    body: MetadataRequest = request.body
    errors: dict[str, ErrorCode] = {}
    for name in missing:
        if is_internal(name):
            errors[name] = await services.auto_topics.create_internal(name)
        elif body.allow_auto_topic_creation and services.config.auto_create_topics_enable:
            errors[name] = await services.auto_topics.create(name)
        else:
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request.reply(_response(services, request, names, errors))


def _response(
    services: Services, request: Request, names: Sequence[str], errors: dict[str, ErrorCode]
) -> MetadataResponse:
    body: MetadataRequest = request.body
    cache = services.metadata_cache
    describe = TopicDescriber(
        cache,
        request.context.listener_name,
        request.api_version,
        ALL_TOPIC_OPERATIONS if body.include_topic_authorized_operations else NOT_ASKED,
    )
    topics = [describe.topic(name, errors.get(name)) for name in names]
    response = MetadataResponse(
        brokers=describe.brokers(),
        cluster_id=services.cluster_id,
        controller_id=NO_ID if cache.controller_id is None else cache.controller_id,
        topics=topics,
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


class TopicDescriber:
    """What clients of one listener are told in one version of the answer; a topic once told is
    remembered with the snapshot."""

    def __init__(
        self, cache: MetadataCache, listener_name: str, version: int, operations: int
    ) -> None:
        self._snapshot = cache.snapshot
        self._listener = listener_name
        self._operations = operations
        self._leaves_out_dead = version == 0
        self._unknown_listener_error = (
            ErrorCode.LISTENER_NOT_FOUND
            if version >= LISTENER_ERRORS_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
        self._reachable = {
            broker_id
            for broker_id, endpoints in self._snapshot.endpoints.items()
            if listener_name in endpoints
        }

    def brokers(self) -> list[MetadataResponseBroker]:
        """Live brokers that have the listener."""
        return [
            MetadataResponseBroker(
                node_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
            )
            for broker in self._snapshot.brokers.values()
            if (endpoint := self._snapshot.endpoints[broker.broker_id].get(self._listener))
        ]

    def topic(self, name: str, error: ErrorCode | None) -> MetadataResponseTopic:
        """A topic, with what went wrong or with its partitions; not to be changed."""
        if error is not None:
            return self._topic(name, error, [])
        key = (
            name,
            self._listener,
            self._operations,
            self._leaves_out_dead,
            self._unknown_listener_error,
        )
        known: MetadataResponseTopic | None = self._snapshot.memo.get(key)
        if known is None:
            states = self._snapshot.topics.get(name, {})
            partitions = [self._partition(states[number]) for number in sorted(states)]
            known = self._snapshot.memo[key] = self._topic(name, ErrorCode.NONE, partitions)
        return known

    def _topic(
        self, name: str, error: ErrorCode, partitions: list[MetadataResponsePartition]
    ) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=error,
            name=name,
            is_internal=is_internal(name),
            partitions=partitions,
            topic_authorized_operations=self._operations,
        )

    def _partition(self, state: UpdateMetadataPartitionState) -> MetadataResponsePartition:
        replicas, isr = state.replicas, state.isr
        error, leader = ErrorCode.NONE, state.leader
        if self._leaves_out_dead:
            replicas, isr = self._alive(replicas), self._alive(isr)
            if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        if leader not in self._reachable:
            is_alive = leader in self._snapshot.brokers
            error = self._unknown_listener_error if is_alive else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_ID
        return MetadataResponsePartition(
            error_code=error,
            partition_index=state.partition_index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=state.offline_replicas,
        )

    def _alive(self, broker_ids: Sequence[int]) -> list[int]:
        return [broker_id for broker_id in broker_ids if broker_id in self._reachable]
