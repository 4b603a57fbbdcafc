"""FindCoordinator: the broker that coordinates a group (or a transactional id).

Behaviour:

- It is the leader of the partition of __consumer_offsets to which the group id hashes, or of the
  partition of __transaction_state for a transactional id.
- The first request creates the topic and waits briefly for it (Kafka does not wait, and its clients
  retry after their back-off).
- Without a leader that the client's listener can reach it is COORDINATOR_NOT_AVAILABLE, which
  clients retry.

Versions: 0-3. v1 key type and error message; v3 flexible.

Kafka 2.7: kafka.server.KafkaApis.handleFindCoordinatorRequest.
"""

from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.model import Endpoint, TopicPartition
from kctl.protocol.constants import (
    GROUP_KEY_TYPE,
    GROUP_METADATA_TOPIC,
    TRANSACTION_KEY_TYPE,
    TRANSACTION_STATE_TOPIC,
)
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_TOPICS = {
    GROUP_KEY_TYPE: GROUP_METADATA_TOPIC,
    TRANSACTION_KEY_TYPE: TRANSACTION_STATE_TOPIC,
}
# Maximum wait for the topic, during which the connection is blocked.
TOPIC_WAIT_MS_MAX = 500


def handle_find_coordinator(services: Services, request: Request) -> None:
    """Reply at once if the topic is known, else after creating it."""
    body: FindCoordinatorRequest = request.body
    topic = _TOPICS.get(body.key_type)
    if topic is None:
        request.reply(_error(ErrorCode.INVALID_REQUEST, "Unknown coordinator type"))
    elif services.metadata_cache.contains(topic):
        _answer(services, request)
    else:
        reply_from(
            services.runtime.scheduler,
            request,
            _create_topic(services, request, topic),
            "find-coordinator",
        )


async def _create_topic(services: Services, request: Request, topic: str) -> None:
    code = await services.auto_topics.create_internal(topic)
    if code == ErrorCode.LEADER_NOT_AVAILABLE:  # it is being created
        await services.topic_waits.wait(
            [topic], lambda: _find(services, request) is not None, TOPIC_WAIT_MS_MAX
        )
    _answer(services, request)


def _answer(services: Services, request: Request) -> None:
    found = _find(services, request)
    if found is None:
        request.reply(_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    else:
        request.reply(_node(*found))


def _find(services: Services, request: Request) -> tuple[int, Endpoint] | None:
    body: FindCoordinatorRequest = request.body
    if body.key_type == TRANSACTION_KEY_TYPE:
        partition = services.transaction_coordinator.partition_for(body.key)
    else:
        partition = services.group_coordinator.partition_for(body.key)
    return services.metadata_cache.leader_endpoint(
        TopicPartition(_TOPICS[body.key_type], partition), request.context.listener_name
    )


def _node(broker_id: int, endpoint: Endpoint) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        # Apache Kafka also sends the name of the error NONE.
        error_message=ErrorCode.NONE.name,
        node_id=broker_id,
        host=endpoint.host,
        port=endpoint.port,
    )


def _error(code: ErrorCode, message: str | None = None) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code, error_message=message or code.text, node_id=-1, host="", port=-1
    )
