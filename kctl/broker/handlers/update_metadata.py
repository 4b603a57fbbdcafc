"""UpdateMetadata: the controller sends brokers and partitions to this broker.

Behaviour:

- A request of an older controller is STALE_CONTROLLER_EPOCH, one for a previous registration of
  this broker STALE_BROKER_EPOCH; neither changes anything.
- Groups forget their offsets of partitions that are being deleted; a StopReplica does not cause
  this, as it also deletes the logs of replicas that were moved elsewhere.
- This broker resigns as leader in epochs older than the received one, and deletes replicas that
  are no longer assigned to it.
- Requests that wait for a topic to appear or disappear are completed by the new metadata.

Versions: 0-6 (v5 groups by topic and has the broker epoch, KIP-380; v6 flexible).

Kafka 2.7: kafka.server.KafkaApis.handleUpdateMetadataRequest.
"""

from kctl.broker.metadata_cache import partition_states
from kctl.broker.replies import reply_in_turns
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kctl.work import Work


def handle_update_metadata(services: Services, request: Request) -> None:
    """Update the cache, in several turns of the loop if necessary, and reply."""
    work = update_metadata(services, request.body)
    reply_in_turns(services.runtime.scheduler, request, work)


def update_metadata(
    services: Services, body: UpdateMetadataRequest
) -> Work[UpdateMetadataResponse]:
    """Apply the controller's metadata, whichever way its request arrived."""
    refusal = services.leadership.refusal(body.controller_epoch, body.broker_epoch)
    if refusal:
        return UpdateMetadataResponse(error_code=refusal)
    deleted = yield from services.metadata_cache.updating(body)
    states = partition_states(body)
    yield from services.leadership.apply_metadata(states, may_delete=body.broker_epoch >= 0)
    if deleted:
        yield from services.group_coordinator.on_partitions_deleted(deleted)
    return UpdateMetadataResponse()
