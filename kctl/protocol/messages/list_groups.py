"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string, string_array


class ListGroupsRequest(Message, api=ApiKey.LIST_GROUPS):
    """TODO."""

    states_filter: list[str] = string_array("4+")


class ListedGroup(Struct):
    """TODO."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)


class ListGroupsResponse(Message, api=ApiKey.LIST_GROUPS):
    """TODO."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
