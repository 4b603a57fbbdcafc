"""UpdateMetadata: the controller tells this broker about brokers and partitions.

Behaviour:
- An older controller's request is STALE_CONTROLLER_EPOCH, one meant for our previous
  registration STALE_BROKER_EPOCH; neither changes anything.
- Groups forget their offsets of partitions that are being deleted; a StopReplica does not do so,
  as it deletes the logs of replicas that were moved elsewhere, too.
- What this broker leads in an older epoch than the one told is led by it no more; what it is no
  replica of is deleted.
- Requests that wait for a topic to come or go are answered by what this brings.

Versions: 0-6 (v5 groups by topic and has the broker epoch, KIP-380; v6 flexible).

Kafka 2.7: kafka.server.KafkaApis.handleUpdateMetadataRequest.
"""

from kctl.broker.metadata_cache import partition_states
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle_update_metadata(services: Services, request: Request) -> None:
    """Answer at once."""
    request.reply(update_metadata(services, request.body))


def update_metadata(services: Services, body: UpdateMetadataRequest) -> UpdateMetadataResponse:
    """Obey the controller, wherever its request came from."""
    refusal = services.leadership.refusal(body.controller_epoch, body.broker_epoch)
    if refusal:
        return UpdateMetadataResponse(error_code=refusal)
    deleted = services.metadata_cache.update(body)
    services.leadership.heed_metadata(partition_states(body), may_delete=body.broker_epoch >= 0)
    if deleted:
        services.group_coordinator.on_partitions_deleted(deleted)
    return UpdateMetadataResponse()
