"""FindCoordinator: which broker coordinates a group (or a transactional id).

Behaviour:
- It is the leader of the partition of __consumer_offsets that the group id hashes to.
- The first to ask makes the topic; until it is there, and while its partition has no leader that
  the asker's listener can reach, the answer is COORDINATOR_NOT_AVAILABLE, which clients retry.
- Transactional ids: COORDINATOR_NOT_AVAILABLE, as transactions are not served yet.

Versions: 0-3. v1 key type and error message; v3 flexible.

Kafka 2.7: kafka.server.KafkaApis.handleFindCoordinatorRequest.
"""

from kctl.broker.coordinator.group_coordinator_service import GROUP_METADATA_TOPIC
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.model import Endpoint, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1


def handle_find_coordinator(services: Services, request: Request) -> None:
    """Answer at once with what is known."""
    body: FindCoordinatorRequest = request.body
    if body.key_type == GROUP_KEY_TYPE:
        request.reply(_find_group(services, request, body.key))
    elif body.key_type == TRANSACTION_KEY_TYPE:
        request.reply(_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    else:
        request.reply(_error(ErrorCode.INVALID_REQUEST, "Unknown coordinator type"))


def _find_group(services: Services, request: Request, group_id: str) -> FindCoordinatorResponse:
    if not services.metadata_cache.contains(GROUP_METADATA_TOPIC):
        services.auto_topics.ensure_internal_topic(GROUP_METADATA_TOPIC)
        return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = services.group_coordinator.partition_for(group_id)
    found = services.metadata_cache.leader_endpoint(
        TopicPartition(GROUP_METADATA_TOPIC, partition), request.context.listener_name
    )
    if found is None:
        return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _node(*found)


def _node(broker_id: int, endpoint: Endpoint) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_message=None, node_id=broker_id, host=endpoint.host, port=endpoint.port
    )


def _error(code: ErrorCode, message: str | None = None) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code, error_message=message or code.text, node_id=-1, host="", port=-1
    )
