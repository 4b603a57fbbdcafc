"""DescribeConfigs: read configs of topics and brokers (KIP-133).

API 32, v0-3. v1: where a value comes from, and its synonyms (KIP-226); v3: type and documentation
(KIP-569).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    string_array,
)


class DescribeConfigsResource(Struct):
    """A resource to describe; keys null: all of them."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = string_array(nullable="0+")


class DescribeConfigsRequest(Message, api=ApiKey.DESCRIBE_CONFIGS):
    """Resources to describe."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    """Another source of the value, with lower precedence."""

    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Struct):
    """One config."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    """Configs of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, api=ApiKey.DESCRIBE_CONFIGS):
    """Configs by resource."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
