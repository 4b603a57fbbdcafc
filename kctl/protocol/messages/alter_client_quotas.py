"""AlterClientQuotas: change quotas of users, client ids and ips (KIP-546).

API 49, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    """One part of an entity; a null name: the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    """A quota to set or to remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    """Changes of one entity."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, api=ApiKey.ALTER_CLIENT_QUOTAS):
    """Quotas to change."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class EntryDataResponse(Struct):
    """The outcome of one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, api=ApiKey.ALTER_CLIENT_QUOTAS):
    """Outcomes by entity."""

    throttle_time_ms: int = int32()
    entries: list[EntryDataResponse] = array(EntryDataResponse)
