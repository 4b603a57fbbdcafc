"""InitProducerId: get a producer id and epoch (KIP-98).

API 22, v0-4. v3: an epoch bump by a known producer (KIP-360); v4: PRODUCER_FENCED (KIP-588).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, int16, int32, int64, string


class InitProducerIdRequest(Message, api=ApiKey.INIT_PRODUCER_ID):
    """The producer; a null transactional id: an idempotent producer only."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, api=ApiKey.INIT_PRODUCER_ID):
    """The producer's id and epoch."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
