"""StreamsGroupDescribe: a group of Kafka Streams, its topology and its tasks (KIP-1071).

API 89, v0. Brokers of Kafka 4.1 have it only with unstable.api.versions.enable=true.
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32_array,
    int64,
    nullable_struct,
    string,
    string_array,
    struct,
    uint16,
)


class StreamsGroupDescribeRequest(Message, api=LaterApi.STREAMS_GROUP_DESCRIBE):
    """Groups to describe."""

    group_ids: list[str] = string_array()
    include_authorized_operations: bool = boolean()


class Endpoint(Struct):
    """Where a member answers interactive queries."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """How much of its changelogs a task has restored."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    """Tasks of one subtopology, one per partition of its input topics."""

    subtopology_id: str = string()
    partitions: list[int] = int32_array()


class Assignment(Struct):
    """The tasks of a member."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class KeyValue(Struct):
    """A tag of a client, or a config of a topic."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """An internal topic of the application."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    """A part of the application that reads and writes topics of its own."""

    subtopology_id: str = string()
    source_topics: list[str] = string_array()
    repartition_sink_topics: list[str] = string_array()
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    """The application; its parts are null until its topics exist."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+", default=None)


class Member(Struct):
    """A member: one thread of an application's process."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nullable_struct(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


class DescribedGroup(Struct):
    """One group."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = nullable_struct(Topology, nullable="0+")
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))


class StreamsGroupDescribeResponse(Message, api=LaterApi.STREAMS_GROUP_DESCRIBE):
    """Groups described."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
