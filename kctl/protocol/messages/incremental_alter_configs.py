"""IncrementalAlterConfigs: set, delete, append to and subtract from single configs (KIP-339).

API 44, v0-1.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    """One change: operation 0 sets, 1 deletes, 2 appends, 3 subtracts."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """Changes of one resource."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, api=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """Changes by resource."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The outcome of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Message, api=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """Outcomes by resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
