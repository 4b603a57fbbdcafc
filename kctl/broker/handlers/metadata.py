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

from kctl.broker.metadata_cache import Snapshot
from kctl.broker.replies import reply_from, reply_in_turns
from kctl.broker.request import Request
from kctl.broker.security.access import UNRESTRICTED
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
    """Reply at once, unless topics must be created first, or no controller has sent metadata."""
    if services.topic_waits.first_update.done:
        _reply(services, request)
    else:
        waiting = _reply_when_known(services, request)
        reply_from(services.runtime.scheduler, request, waiting, "first-metadata")


async def _reply_when_known(services: Services, request: Request) -> None:
    await services.topic_waits.wait_for_first_update()
    _reply(services, request)


def _reply(services: Services, request: Request) -> None:
    body: MetadataRequest = request.body
    cache = services.metadata_cache
    if _wants_all(body, request.api_version):
        reply_in_turns(
            services.runtime.scheduler, request, _response(services, request, cache.topics(), {})
        )
        return
    names = list(dict.fromkeys([topic.name for topic in body.topics or ()]))
    errors: dict[str, ErrorCode] = {}
    if request.access is not UNRESTRICTED:
        errors = _hidden(request, names)
    missing = [name for name in names if name not in errors and not cache.contains(name)]
    if missing:
        errors.update(dict.fromkeys(_uncreatable(services, request, missing), NOT_AUTHORIZED))
        missing = [name for name in missing if name not in errors]
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


def _hidden(request: Request, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Return the topics that the client may not describe, with the error of each."""
    describable = request.access.allowed(DESCRIBE, TOPIC, names)
    return {name: NOT_AUTHORIZED for name in names if name not in describable}


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
    describe = TopicDescriber.of(cache.snapshot, request.context.listener_name, request.api_version)
    is_filtered = access is not UNRESTRICTED and _wants_all(body, request.api_version)
    topics: list[MetadataResponseTopic] = []
    units = 0
    for name in names:
        units += 1
        if not is_filtered or access.allows(DESCRIBE, TOPIC, name, is_probe=True):
            error, operations = errors.get(name), NOT_REQUESTED
            if body.include_topic_authorized_operations and error is not NOT_AUTHORIZED:
                operations = access.operations(TOPIC, name)
            topic = describe.known(name, error, operations)
            if topic is None:
                topic = yield from describe.topic(name, error, operations)
            topics.append(topic)
            units += len(topic.partitions)
        if units >= PARTITIONS_PER_TURN:
            units = 0
            yield
    controller_id = cache.controller_id
    response = MetadataResponse(
        brokers=list(describe.brokers),
        cluster_id=services.cluster_id,
        controller_id=NO_ID if controller_id is None else controller_id,
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
    """Describes the topics of one snapshot for clients of one listener, in the versions that have
    the same errors. The snapshot keeps it, and with it what it has described."""

    def __init__(self, snapshot: Snapshot, listener_name: str, version: int) -> None:
        # Not the snapshot itself, which refers to this object.
        self._topics = snapshot.topics
        self._live = frozenset(snapshot.brokers)
        self._leaves_out_dead = version == 0
        self._unknown_listener_error = (
            ErrorCode.LISTENER_NOT_FOUND
            if version >= LISTENER_ERRORS_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
        self._reachable = {
            broker_id
            for broker_id, endpoints in snapshot.endpoints.items()
            if listener_name in endpoints
        }
        # The live brokers that have the listener.
        self.brokers = [
            MetadataResponseBroker(
                node_id=broker.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
            )
            for broker in snapshot.brokers.values()
            if (endpoint := snapshot.endpoints[broker.broker_id].get(listener_name))
        ]
        # By name and operations.
        self._described: dict[tuple[str, int], MetadataResponseTopic] = {}

    @classmethod
    def of(cls, snapshot: Snapshot, listener_name: str, version: int) -> "TopicDescriber":
        """Return the describer that `snapshot` keeps for these clients."""
        key = (cls, listener_name, version == 0, version >= LISTENER_ERRORS_FROM)
        found: TopicDescriber | None = snapshot.memo.get(key)
        if found is None:
            found = snapshot.memo[key] = cls(snapshot, listener_name, version)
        return found

    def known(
        self, name: str, error: ErrorCode | None, operations: int
    ) -> MetadataResponseTopic | None:
        """Return a topic without an error that was described before; the result must not be
        changed."""
        if error is not None:
            return None
        return self._described.get((name, operations))

    def topic(
        self, name: str, error: ErrorCode | None, operations: int
    ) -> Work[MetadataResponseTopic]:
        """Return a topic with its error or its partitions; the result must not be changed."""
        if error is not None:
            return self._topic(name, error, [], operations)
        states = self._topics.get(name, {})
        partitions: list[MetadataResponsePartition] = []
        for part in parts(sorted(states), PARTITIONS_PER_TURN):
            if partitions:
                yield
            partitions += [self._partition(states[number]) for number in part]
        described = self._topic(name, ErrorCode.NONE, partitions, operations)
        self._described[name, operations] = described
        return described

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
            is_alive = leader in self._live
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
