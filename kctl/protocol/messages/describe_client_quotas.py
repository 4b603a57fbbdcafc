"""DescribeClientQuotas: read quotas of users, client ids and ips (KIP-546).

API 48, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)


class ComponentData(Struct):
    """The filter of one part of the entity: match type 0 exactly, 1 the default, 2 any."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """A filter over entities; strict: no other parts."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """One part of an entity; a null name: the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    """One quota."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """Quotas of one entity."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """Quotas found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
