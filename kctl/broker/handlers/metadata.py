"""Metadata: brokers, the controller, and topics with their leaders, from this broker's cache.

Behaviour:

- Brokers and leaders have their addresses on the listener that received the request.
- An unknown topic is created if request and broker allow it (internal topics always), and reported
  as LEADER_NOT_AVAILABLE: the client retries.
- A partition whose leader is not alive is LEADER_NOT_AVAILABLE; alive but not on this listener:
  LISTENER_NOT_FOUND from version 6 on.
- Version 0 omits replicas on dead brokers and reports REPLICA_NOT_AVAILABLE.
- Topics have the order of the request (each once), or are sorted.
- Topics that the client may not describe are reported as such whether they exist or not, and are
  left out if all topics are requested. Topics that it may not create are not created.

Versions: 0-9. Before v1 an empty list means all topics, from v1 on null does.

Kafka 2.7: kafka.server.KafkaApis.handleTopicMetadataRequest; KIP-4, KIP-112 (offline replicas),
KIP-302 (listeners), KIP-430 (authorized operations).
"""

from collections.abc import Iterable, Sequence

from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.replies import reply_from, reply_in_turns
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.broker.topic_creation import is_internal
from kctl.protocol.acl import CLUSTER_NAME, AclOperation, ResourceType
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.protocol.messages.update_metadata import UpdateMetadataPartitionState
from kctl.work import Work, parts

# Topics and partitions that are described in one turn, within 5 ms.
PARTITIONS_PER_TURN = 1_000
NO_ID = -1
# Stands for operations that were not requested.
NOT_REQUESTED = -(1 << 31)
NULL_MEANS_ALL_FROM = 1
NOT_AUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DESCRIBE, TOPIC = AclOperation.DESCRIBE, ResourceType.TOPIC
LISTENER_ERRORS_FROM = 6


def handle_metadata(services: Services, request: Request) -> None:
    """Reply at once, unless topics must be created first."""
    body: MetadataRequest = request.body
    cache = services.metadata_cache
    if _wants_all(body, request.api_version):
        reply_in_turns(
            services.runtime.scheduler, request, _response(services, request, cache.topics(), {})
        )
        return
    names = list(dict.fromkeys(topic.name for topic in body.topics or ()))
    describable = request.access.allowed(DESCRIBE, TOPIC, names)
    hidden = dict.fromkeys((it for it in names if it not in describable), NOT_AUTHORIZED)
    missing = [name for name in names if name in describable and not cache.contains(name)]
    uncreatable = _uncreatable(services, request, missing)
    missing = [name for name in missing if name not in uncreatable]
    errors = {**hidden, **dict.fromkeys(uncreatable, NOT_AUTHORIZED)}
    if missing and _may_create(services, body, missing):
        reply_from(
            services.runtime.scheduler,
            request,
            _create_and_answer(services, request, names, missing, errors),
            "auto-create",
        )
    else:
        errors.update(dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        reply_in_turns(
            services.runtime.scheduler, request, _response(services, request, names, errors)
        )


def _wants_all(body: MetadataRequest, version: int) -> bool:
    return body.topics is None or (version < NULL_MEANS_ALL_FROM and not body.topics)


def _creates_unknown(services: Services, body: MetadataRequest) -> bool:
    return body.allow_auto_topic_creation and services.config.auto_create_topics_enable


def _uncreatable(services: Services, request: Request, missing: Sequence[str]) -> set[str]:
    """Return the topics that would be created if the client had the permission."""
    access = request.access
    if not missing or not _creates_unknown(services, request.body):
        return set()
    if access.allows_cluster(AclOperation.CREATE, is_probe=True):
        return set()
    return set(missing) - access.allowed(AclOperation.CREATE, TOPIC, missing)


def _may_create(services: Services, body: MetadataRequest, missing: Iterable[str]) -> bool:
    return _creates_unknown(services, body) or any(map(is_internal, missing))


async def _create_and_answer(
    services: Services,
    request: Request,
    names: Sequence[str],
    missing: Sequence[str],
    errors: dict[str, ErrorCode],
) -> None:
    """Create the `missing` topics; add the result of each to `errors`, and reply."""
    for name in missing:
        if is_internal(name):
            errors[name] = await services.auto_topics.create_internal(name)
        elif _creates_unknown(services, request.body):
            errors[name] = await services.auto_topics.create(name)
        else:
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reply_in_turns(services.runtime.scheduler, request, _response(services, request, names, errors))


def _response(
    services: Services, request: Request, names: Sequence[str], errors: dict[str, ErrorCode]
) -> Work[MetadataResponse]:
    body: MetadataRequest = request.body
    cache, access = services.metadata_cache, request.access
    describe = TopicDescriber(cache, request.context.listener_name, request.api_version)
    is_filtered = _wants_all(body, request.api_version)
    topics: list[MetadataResponseTopic] = []
    units = 0
    for name in names:
        units += 1
        if not is_filtered or access.allows(DESCRIBE, TOPIC, name, is_probe=True):
            error, operations = errors.get(name), NOT_REQUESTED
            if body.include_topic_authorized_operations and error is not NOT_AUTHORIZED:
                operations = access.operations(TOPIC, name)
            topic = yield from describe.topic(name, error, operations)
            topics.append(topic)
            units += len(topic.partitions)
        if units >= PARTITIONS_PER_TURN:
            units = 0
            yield
    response = MetadataResponse(
        brokers=describe.brokers(),
        cluster_id=services.cluster_id,
        controller_id=NO_ID if cache.controller_id is None else cache.controller_id,
        topics=topics,
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            access.operations(ResourceType.CLUSTER, CLUSTER_NAME)
            if access.allows_cluster(DESCRIBE)
            else 0
        )
    return response


class TopicDescriber:
    """Describes topics for clients of one listener in one version of the response; topics are
    cached in the metadata snapshot."""

    def __init__(self, cache: MetadataCache, listener_name: str, version: int) -> None:
        self._snapshot = cache.snapshot
        self._listener = listener_name
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
        """Return the live brokers that have the listener."""
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

    def topic(
        self, name: str, error: ErrorCode | None, operations: int
    ) -> Work[MetadataResponseTopic]:
        """Return a topic with its error or its partitions; the result must not be changed."""
        if error is not None:
            return self._topic(name, error, [], operations)
        key = (
            name,
            self._listener,
            operations,
            self._leaves_out_dead,
            self._unknown_listener_error,
        )
        known: MetadataResponseTopic | None = self._snapshot.memo.get(key)
        if known is None:
            states = self._snapshot.topics.get(name, {})
            partitions: list[MetadataResponsePartition] = []
            for part in parts(sorted(states), PARTITIONS_PER_TURN):
                if partitions:
                    yield
                partitions += [self._partition(states[number]) for number in part]
            known = self._snapshot.memo[key] = self._topic(
                name, ErrorCode.NONE, partitions, operations
            )
        return known

    def _topic(
        self,
        name: str,
        error: ErrorCode,
        partitions: list[MetadataResponsePartition],
        operations: int,
    ) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=error,
            name=name,
            # Nothing is revealed about a topic that is hidden.
            is_internal=is_internal(name) and error is not NOT_AUTHORIZED,
            partitions=partitions,
            topic_authorized_operations=operations,
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
