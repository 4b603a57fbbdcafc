"""AlterConfigs: replace all configs of topics and brokers (KIP-133).

API 33, v0-1. IncrementalAlterConfigs changes single ones.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    """One config and its value."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """The new configs of one resource, which replace all others."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, api=ApiKey.ALTER_CONFIGS):
    """Resources to configure."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The outcome of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, api=ApiKey.ALTER_CONFIGS):
    """Outcomes by resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
