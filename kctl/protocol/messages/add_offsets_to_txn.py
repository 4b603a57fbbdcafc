"""AddOffsetsToTxn: add a group's offsets partition to a transaction (KIP-98).

API 25, v0-2. v2: PRODUCER_FENCED (KIP-588).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api=ApiKey.ADD_OFFSETS_TO_TXN):
    """The group whose offsets the transaction is going to commit."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api=ApiKey.ADD_OFFSETS_TO_TXN):
    """The outcome."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
