"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string, string_array


class DeleteTopicsRequest(Message, api=ApiKey.DELETE_TOPICS):
    """TODO."""

    topic_names: list[str] = string_array()
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """TODO."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api=ApiKey.DELETE_TOPICS):
    """TODO."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
