"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    """TODO."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    """TODO."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    """TODO."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, api=ApiKey.ALTER_CLIENT_QUOTAS):
    """TODO."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class EntryDataResponse(Struct):
    """TODO."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, api=ApiKey.ALTER_CLIENT_QUOTAS):
    """TODO."""

    throttle_time_ms: int = int32()
    entries: list[EntryDataResponse] = array(EntryDataResponse)
