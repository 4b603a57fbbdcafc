"""DeleteGroups: delete groups without members (KIP-229).

API 42, v0-2.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string, string_array


class DeleteGroupsRequest(Message, api=ApiKey.DELETE_GROUPS):
    """Groups to delete."""

    groups_names: list[str] = string_array()


class DeletableGroupResult(Struct):
    """The outcome of one group."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api=ApiKey.DELETE_GROUPS):
    """Outcomes by group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
