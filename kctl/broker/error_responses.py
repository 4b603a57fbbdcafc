"""error_response: the response that rejects a request, for any API that kctl serves.

Nothing of the request is carried out. The response names what the request named (topics,
partitions, resources, groups), each with the error; if the response has one error for the whole
request, that is set instead, or as well. The tables below relate fields that a request and its
response name differently; everything else follows from the messages' fields.
"""

from collections.abc import Sequence
from copy import copy
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
from kctl.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kctl.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kctl.protocol.messages.write_txn_markers import WritableTxnMarker
from kctl.protocol.schema import Field, Message, Struct
from kctl.work import Work, at_once, parts

# Elements of a response that are made in one turn, a few milliseconds.
MIRRORED_PER_TURN = 1_000

# Array of a response: the request's arrays to which it may correspond.
_REQUEST_ARRAYS = {
    "responses": ("topics", "topic_names", "resources"),
    "results": (
        "topics",
        "resources",
        "groups_names",
        "partitions",
        "creations",
        "upsertions",
    ),
    "filter_results": ("filters",),
    "entries": ("entries",),
    "topics": ("topics",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partition_id",),
    "partition_responses": ("partitions",),
    "groups": ("groups",),
    "members": ("members",),
    "markers": ("markers",),
}
# Fields that identify an entry.
_IDENTITIES = frozenset(
    {
        "group_id", "group_instance_id", "member_id", "name", "partition", "partition_id",
        "partition_index", "resource_name", "resource_type", "topic",
    }
)  # fmt: skip
# Values of fields that hold an offset or an id in a successful response.
_UNKNOWN_VALUES = {
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


def error_response(request: Request, code: ErrorCode, message: str | None = None) -> Message:
    """Return the response that rejects `request` with `code`, and `message` where the response has
    a field for it. For Metadata, use `mark_metadata`."""
    return at_once(rejecting(request, code, message))


def rejecting(request: Request, code: ErrorCode, message: str | None = None) -> Work[Message]:
    """Make `error_response`, with a `yield` after every MIRRORED_PER_TURN elements."""
    if isinstance(request.body, OffsetDeleteRequest):
        return OffsetDeleteResponse(error_code=int(code))
    if isinstance(request.body, OffsetFetchRequest) and request.api_version >= 2:
        return OffsetFetchResponse(error_code=int(code))
    response = yield from _naming(request, code, message)
    return response


def named_error_response(request: Request, code: ErrorCode, message: str | None = None) -> Message:
    """Return `error_response` with all that the request names, even where Kafka returns one error
    instead."""
    return at_once(_naming(request, code, message))


def _naming(request: Request, code: ErrorCode, message: str | None) -> Work[Message]:
    if request.api_key == ApiKey.DESCRIBE_LOG_DIRS:
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=int(code))])
    if isinstance(request.body, AlterReplicaLogDirsRequest):
        moves = yield from _rejected_moves(request.body, code)
        return moves
    response_class: type[Any] = request.api_key.response_class
    mirror = _Mirror(response_class, request.body, code, message, _Turn())
    response: Message = yield from mirror.of(request.body)
    if isinstance(response, FetchResponse):
        # This field is the session's error, which would hide those of the partitions.
        response.error_code = 0
    for field in response_class.fields:
        if not field.ignorable and not field.is_in(request.api_version):
            # ElectLeaders v0 has partition errors only.
            setattr(response, field.name, getattr(response_class(), field.name))
    return response


def _rejected_moves(requested: AlterReplicaLogDirsRequest, code: ErrorCode) -> Work[Message]:
    # The request is grouped by directory, the response by topic.
    response = AlterReplicaLogDirsResponse()
    number, turn = int(code), _Turn()
    for directory in requested.dirs:
        for topic in directory.topics:
            result = AlterReplicaLogDirTopicResult(topic_name=topic.name)
            response.results.append(result)
            yield from turn.spend(1)
            for part in parts(topic.partitions, MIRRORED_PER_TURN):
                yield from turn.spend(len(part))
                result.partitions += [
                    AlterReplicaLogDirPartitionResult(partition_index=it, error_code=number)
                    for it in part
                ]
    return response


def mark_metadata(response: Message | None, code: ErrorCode) -> None:
    """Set the error on every topic of a Metadata response; its brokers are kept."""
    assert isinstance(response, MetadataResponse)
    # Copies: the metadata cache keeps the described topics.
    response.topics = list(map(copy, response.topics))
    for topic in response.topics:
        topic.error_code = int(code)
        topic.partitions = []


class _Turn:
    """Counts the elements that were made since the last `yield`."""

    def __init__(self) -> None:
        self._left = MIRRORED_PER_TURN

    def spend(self, count: int) -> Work[None]:
        """Count elements that are about to be made; `yield` first if this turn has no room."""
        self._left -= count
        if self._left < 0:
            self._left = MIRRORED_PER_TURN - count
            yield


class _Mirror:
    """Makes instances of `cls`, a part of a response, from parts of the request that are like one
    of them: a request may have thousands, so the fields are compared once."""

    def __init__(
        self,
        cls: type[Any],
        sample: object,
        code: ErrorCode,
        message: str | None,
        turn: _Turn,
    ) -> None:
        self._cls = cls
        self._turn = turn
        self._code = code
        self._message = message
        self.constants: dict[str, object] = {}
        # Fields that are copied -> the field of the request.
        self._copied: dict[str, str] = {}
        # Arrays with the same of their elements.
        self._arrays: list[Field] = []
        for field in cls.fields:
            name = field.name
            if name == "error_code":
                self.constants[name] = int(code)
            elif name == "error_message":
                self.constants[name] = message
            elif name in _UNKNOWN_VALUES and not isinstance(sample, WritableTxnMarker):
                self.constants[name] = _UNKNOWN_VALUES[name]
            elif name in _IDENTITIES | {"producer_id"} and hasattr(sample, name):
                self._copied[name] = name
            elif name == "user":
                self.constants[name] = ""
                if hasattr(sample, "name"):
                    self._copied[name] = "name"
            elif _holds_errors(field):
                self._arrays.append(field)

    def of(self, requested: object) -> Work[Any]:
        """Make the instance for one part, with a `yield` where its turn is used up."""
        values = dict(self.constants)
        for name, source in self._copied.items():
            values[name] = getattr(requested, source)
        for field in self._arrays:
            items = _requested_items(field.name, requested)
            values[field.name] = yield from self._entries(field.element, items)
        return self._cls(**values)

    def _entries(self, cls: Any, items: Sequence[object]) -> Work[list[Any]]:
        entries: list[Any] = []
        if not items:
            return entries
        if isinstance(items[0], Struct):
            # An array of a response may mirror elements of one class only.
            mirror = _Mirror(cls, items[0], self._code, self._message, self._turn)
            for item in items:
                yield from self._turn.spend(1)
                entry = yield from mirror.of(item)
                entries.append(entry)
            return entries
        # The request's array holds only names or numbers.
        constants = _Mirror(cls, None, self._code, self._message, self._turn).constants
        identity = next(field.name for field in cls.fields if field.name in _IDENTITIES)
        for part in parts(items, MIRRORED_PER_TURN):
            yield from self._turn.spend(len(part))
            entries += [cls(**{**constants, identity: item}) for item in part]
        return entries


def _requested_items(name: str, requested: object) -> Sequence[object]:
    for source in _REQUEST_ARRAYS.get(name, ()):
        items = getattr(requested, source, None)
        if items is not None:
            return list(items)
    return []


def _holds_errors(field: Field) -> bool:
    """Return whether a field is an array whose entries have an error code, or contain such
    arrays."""
    element: Any = field.element
    if field.kind != "array" or isinstance(element, str):
        return False
    return any(inner.name == "error_code" or _holds_errors(inner) for inner in element.fields)
