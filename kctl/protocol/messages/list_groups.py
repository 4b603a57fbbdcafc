"""ListGroups: the groups that a broker coordinates.

API 16, v0-4. v4: states, also as a filter (KIP-518).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string, string_array


class ListGroupsRequest(Message, api=ApiKey.LIST_GROUPS):
    """States to list; none: all."""

    states_filter: list[str] = string_array("4+")


class ListedGroup(Struct):
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)


class ListGroupsResponse(Message, api=ApiKey.LIST_GROUPS):
    """Groups of this broker."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
