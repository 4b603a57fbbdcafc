"""EndTxn: commit or abort a transaction (KIP-98).

API 26, v0-2. v2: PRODUCER_FENCED (KIP-588).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, api=ApiKey.END_TXN):
    """Commit, or abort."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api=ApiKey.END_TXN):
    """Whether the decision was written down."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
