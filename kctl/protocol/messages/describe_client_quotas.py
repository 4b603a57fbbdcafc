"""TODO."""

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
    """TODO."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """TODO."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """TODO."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    """TODO."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """TODO."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, api=ApiKey.DESCRIBE_CLIENT_QUOTAS):
    """TODO."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
