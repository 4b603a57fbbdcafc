"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32_array,
    string,
)


class CreatableReplicaAssignment(Struct):
    """TODO."""

    partition_index: int = int32()
    broker_ids: list[int] = int32_array()


class CreateableTopicConfig(Struct):
    """TODO."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """TODO."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreateableTopicConfig] = array(CreateableTopicConfig)


class CreateTopicsRequest(Message, api=ApiKey.CREATE_TOPICS):
    """TODO."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Struct):
    """TODO."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    """TODO."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, api=ApiKey.CREATE_TOPICS):
    """TODO."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
