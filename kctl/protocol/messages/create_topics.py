"""CreateTopics: create topics (KIP-4).

API 19, v0-6. v1: validate only; v4: the broker's defaults by -1 (KIP-464); v5: details of the
created topic (KIP-525); v6: throttling by quota (KIP-599).
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
    int32_array,
    string,
)


class CreatableReplicaAssignment(Struct):
    """The replicas of one partition."""

    partition_index: int = int32()
    broker_ids: list[int] = int32_array()


class CreateableTopicConfig(Struct):
    """One config of the new topic."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """A topic to create; with assignments, partitions and replication factor are -1."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreateableTopicConfig] = array(CreateableTopicConfig)


class CreateTopicsRequest(Message, api=ApiKey.CREATE_TOPICS):
    """Topics to create."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Struct):
    """One config of the created topic."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    """The outcome of one topic."""

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
    """Outcomes by topic."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
