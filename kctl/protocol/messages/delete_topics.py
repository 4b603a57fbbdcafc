"""DeleteTopics: delete topics (KIP-4).

API 20, v0-5. v3: an error when deletion is switched off (KIP-322); v5: error messages and quotas
(KIP-599).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string, string_array


class DeleteTopicsRequest(Message, api=ApiKey.DELETE_TOPICS):
    """Topics to delete."""

    topic_names: list[str] = string_array()
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """The outcome of one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api=ApiKey.DELETE_TOPICS):
    """Outcomes by topic."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
