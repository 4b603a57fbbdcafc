"""ListGroups: the groups that a broker coordinates, with their types.

API 16, v5. v5: types, also as a filter (KIP-848).
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import Message, Struct, array, int16, int32, string, string_array


class ListGroupsRequest(Message, api=LaterApi.LIST_GROUPS):
    """States and types to list; none: all."""

    states_filter: list[str] = string_array("4+")
    types_filter: list[str] = string_array("5+")


class ListedGroup(Struct):
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, api=LaterApi.LIST_GROUPS):
    """Groups of this broker."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
