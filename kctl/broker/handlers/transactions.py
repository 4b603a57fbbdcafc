"""InitProducerId: producer ids for idempotent producers (KIP-98).

Behaviour:
- Without a transactional id, every call gets a fresh producer id with epoch 0, also when the
  client names one that it had (KIP-360).
- With a transactional id the answer is INVALID_REQUEST: transactions are not served yet, and
  FindCoordinator says so first.

Versions: 0-4. v2 flexible; v3 producer id and epoch (KIP-360); v4 PRODUCER_FENCED (KIP-588).

Kafka 2.7: kafka.server.KafkaApis.handleInitProducerIdRequest.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.store.errors import StoreError


def handle_init_producer_id(services: Services, request: Request) -> None:
    """Answer once an id is there."""
    services.runtime.scheduler.spawn(_init_producer_id(services, request), "init-producer-id")


async def _init_producer_id(services: Services, request: Request) -> None:
    body: InitProducerIdRequest = request.body
    if body.transactional_id is not None:
        request.reply(_error(ErrorCode.INVALID_REQUEST))
        return
    if (body.producer_id < 0) != (body.producer_epoch < 0):
        request.reply(_error(ErrorCode.INVALID_REQUEST))
        return
    try:
        producer_id = await services.producer_ids.next_producer_id()
    except StoreError:
        request.reply(_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    request.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def _error(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
