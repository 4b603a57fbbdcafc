"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string, string_array


class DeleteGroupsRequest(Message, api=ApiKey.DELETE_GROUPS):
    """TODO."""

    groups_names: list[str] = string_array()


class DeletableGroupResult(Struct):
    """TODO."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api=ApiKey.DELETE_GROUPS):
    """TODO."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
