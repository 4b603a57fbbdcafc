"""error_answer: the response that refuses a request, for any API that kctl serves.

Nothing is done of what was asked. The answer names what the request named (topics, partitions,
resources, groups), each with the error; where an answer has one error for the whole request, that
is set instead, or as well. What a response and its request call by different names is in the
tables here; the rest follows from the messages' own fields.
"""

from collections.abc import Iterable
from typing import Any

from kctl.broker.request import Request
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kctl.protocol.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kctl.protocol.messages.fetch import FetchResponse
from kctl.protocol.messages.metadata import MetadataResponse
from kctl.protocol.messages.write_txn_markers import WritableTxnMarker
from kctl.protocol.schema import Field, Message, Struct

_APIS = {int(api): api for api in ApiKey}
# Array of a response: the arrays of a request that it may answer.
_ANSWERS = {
    "responses": ("topics", "topic_names", "resources"),
    "results": ("topics", "resources", "groups_names", "partitions"),
    "topics": ("topics",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partition_id",),
    "partition_responses": ("partitions",),
    "groups": ("groups",),
    "members": ("members",),
    "markers": ("markers",),
}
# Fields that say what an entry is about.
_IDENTITIES = frozenset(
    {
        "group_id", "group_instance_id", "member_id", "name", "partition", "partition_id",
        "partition_index", "resource_name", "resource_type", "topic",
    }
)  # fmt: skip
# What stands where a successful answer has an offset or an id.
_NOTHING = {
    "aborted_transactions": None,
    "base_offset": -1,
    "committed_offset": -1,
    "end_offset": -1,
    "generation_id": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "producer_epoch": -1,
    "producer_id": -1,
    "record_set": b"",
}


def error_answer(request: Request, code: ErrorCode) -> Message:
    """What refuses `request`. Not for Metadata, see `mark_metadata`."""
    if request.api_key == ApiKey.DESCRIBE_LOG_DIRS:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=int(code))])
    if isinstance(request.body, AlterReplicaLogDirsRequest):
        return _refused_moves(request.body, code)
    response_class = _APIS[request.api_key].response_class
    answer: Message = _mirrored(response_class, request.body, code)
    if isinstance(answer, FetchResponse):
        # That field is about the session: its errors would hide those of the partitions.
        answer.error_code = 0
    for field in response_class.fields:
        if not field.ignorable and not field.is_in(request.api_version):
            # ElectLeaders v0 has errors of partitions only.
            setattr(answer, field.name, getattr(response_class(), field.name))
    return answer


def _refused_moves(asked: AlterReplicaLogDirsRequest, code: ErrorCode) -> Message:
    # The request is by directory, the answer by topic.
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=it, error_code=int(code))
                    for it in topic.partitions
                ],
            )
            for directory in asked.dirs
            for topic in directory.topics
        ]
    )


def mark_metadata(answer: Message | None, code: ErrorCode) -> None:
    """Put the error on every topic of a Metadata answer; the brokers in it stay."""
    assert isinstance(answer, MetadataResponse)
    for topic in answer.topics:
        topic.error_code = int(code)
        topic.partitions = []


def _mirrored(cls: type[Any], asked: object, code: ErrorCode) -> Any:
    """An instance of `cls`, a part of a response, about what a part of the request is about."""
    values: dict[str, object] = {}
    for field in cls.fields:
        if field.name == "error_code":
            values[field.name] = int(code)
        elif field.name == "error_message":
            values[field.name] = f"injected by a test: {code.name}"
        elif field.name in _NOTHING and not isinstance(asked, WritableTxnMarker):
            values[field.name] = _NOTHING[field.name]
        elif field.name in _IDENTITIES | {"producer_id"} and hasattr(asked, field.name):
            values[field.name] = getattr(asked, field.name)
        elif _holds_errors(field):
            values[field.name] = [
                _entry(field.element, item, code) for item in _asked_items(field.name, asked)
            ]
    return cls(**values)


def _entry(cls: Any, item: object, code: ErrorCode) -> object:
    if isinstance(item, Struct):
        return _mirrored(cls, item, code)
    entry = _mirrored(cls, None, code)
    # The request listed mere names or numbers.
    identity = next(field.name for field in cls.fields if field.name in _IDENTITIES)
    setattr(entry, identity, item)
    return entry


def _asked_items(name: str, asked: object) -> Iterable[object]:
    for source in _ANSWERS.get(name, ()):
        items = getattr(asked, source, None)
        if items is not None:
            return list(items)
    return []


def _holds_errors(field: Field) -> bool:
    """Whether a field is an array whose entries have an error, or have such arrays."""
    element: Any = field.element
    if field.kind != "array" or isinstance(element, str):
        return False
    return any(inner.name == "error_code" or _holds_errors(inner) for inner in element.fields)
