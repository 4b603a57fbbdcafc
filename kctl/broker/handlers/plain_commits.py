"""The fast path of OffsetCommit: one offset of one partition, from request bytes to response bytes.

A consumer's commits for a partition differ only in their last bytes:

    api key, version | correlation id | client id, group, member ... partition index | offset ...
                                      |------------------- head --------------------|-- tail --|

A head is therefore decoded once and cached with its fields and its response. After that a commit
costs one look-up, the checks, and the append of a batch with one record.

Behaviour:

- The group and the client's permissions are checked every time: a head states who commits, not
  that this is allowed.
- Requests that are not plain (more partitions, metadata, an expiry, a first commit, an error, an
  append that must wait) are left, untouched, to `handle_offset_commit`.
- Its responses would be identical to the last byte.

Versions: 2-8; older ones are left to `handle_offset_commit`.

Invariants: a head's fields follow from its bytes and the version alone; a response's bytes come
from the codec, and only the correlation id is set here.

Kafka 2.7: kafka.server.KafkaApis.handleOffsetCommitRequest.
"""

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from kctl.broker.coordinator.group.offset_commits import PlainCommit
from kctl.broker.request import RequestContext
from kctl.broker.services import Services
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.acl import AclOperation, ResourceType
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.connection import read_request_header, response_frame
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.protocol.primitives import Buffer

if TYPE_CHECKING:
    from kctl.broker.security.authorizer import AclAuthorizer

# Maximum number of cached heads, and of their bytes; beyond either the cache is cleared. The fields
# and responses take up to four times as much.
HEADS_MAX: Final = 16_384
HEADS_BYTES_MAX: Final = 8 * 1024 * 1024
HEAD_START: Final = 8
_VERSION_START: Final = 2
_CORRELATION_ID_START: Final = 4
# After the size of the response.
_ANSWER_CORRELATION_ID: Final = 4
_NO_RETENTION_MS: Final = -1


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of requests of some versions: offset, leader epoch if it has one, then `end`."""

    numbers: Callable[[bytes, int], tuple[int, ...]]
    size: int
    # No metadata; no tags, where the version has them.
    end: bytes
    # The bytes before the partition index if that is the topic's only one.
    one_partition: bytes


_OLD: Final = _Tail(Struct(">q").unpack_from, 10, b"\0\0", b"\0\0\0\1")
_WITH_EPOCH: Final = _Tail(Struct(">qi").unpack_from, 14, b"\0\0", b"\0\0\0\1")
_FLEXIBLE: Final = _Tail(Struct(">qi").unpack_from, 16, b"\1\0\0\0", b"\2")
_TAILS: Final = {
    2: _OLD, 3: _OLD, 4: _OLD, 5: _OLD, 6: _WITH_EPOCH, 7: _WITH_EPOCH, 8: _FLEXIBLE,
}  # fmt: skip
_INDEX_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Head:
    commit: PlainCommit
    # The response, without its correlation id.
    size: bytes
    rest: bytes


class PlainCommits:
    """Handles plain commits; one per broker."""

    def __init__(
        self, services: Services, version_max: int, authorizer: "AclAuthorizer | None" = None
    ) -> None:
        self._authorizer = authorizer
        self._commit = services.group_coordinator.commit_plain
        self._state_of = services.metadata_cache.partition
        self._may_be_static = services.group_coordinator.knows_static_members
        self._tails = {
            version.to_bytes(2, "big"): tail
            for version, tail in _TAILS.items()
            if version <= version_max
        }
        # By version and bytes.
        self._heads: dict[tuple[bytes, bytes], _Head] = {}
        self._heads_bytes = 0

    def answer(
        self, frame: Buffer, send: Callable[[bytes], object], context: RequestContext
    ) -> bool:
        """Commit, and `send` the response frame; return False if the request is not plain."""
        if type(frame) is not bytes:
            return False  # too large for one offset
        version = frame[_VERSION_START:_CORRELATION_ID_START]
        tail = self._tails.get(version)
        if tail is None or not frame.endswith(tail.end):
            return False
        start = len(frame) - tail.size
        if start < HEAD_START:
            return False
        key = version, frame[HEAD_START:start]
        head = self._heads.get(key)
        if head is None:
            if frame.endswith(tail.one_partition, 0, start - _INDEX_BYTES):
                self._learn(frame, key)
            return False
        commit = head.commit
        authorizer = self._authorizer
        if authorizer is not None and not _may_commit(authorizer, context, commit):
            return False
        if self._state_of(commit.topic_partition) is None:
            return False
        if not self._commit(commit, *tail.numbers(frame, start)):
            return False
        send(b"".join((head.size, frame[_CORRELATION_ID_START:HEAD_START], head.rest)))
        return True

    def _learn(self, frame: bytes, key: tuple[bytes, bytes]) -> None:
        """Cache the head at `key`, if the request is plain."""
        try:
            api, version, _, _, position = read_request_header(frame)
            body = decode(api.request_class, version, frame, position)
        except CorruptDataError:
            return
        if not isinstance(body, OffsetCommitRequest) or not self._is_plain(body):
            return
        # Anything else in it (tags, bytes after its end) is not handled here.
        if b"".join(encode(body, version)) != frame[position:]:
            return
        size = len(key[1])
        if len(self._heads) >= HEADS_MAX or self._heads_bytes + size > HEADS_BYTES_MAX:
            self._heads.clear()
            self._heads_bytes = 0
        self._heads_bytes += size
        self._heads[key] = _head(api, version, body)

    def _is_plain(self, body: OffsetCommitRequest) -> bool:
        if len(body.topics) != 1 or len(body.topics[0].partitions) != 1:
            return False
        if body.group_instance_id is not None and not self._may_be_static:
            return False
        return body.retention_time_ms == _NO_RETENTION_MS


def _may_commit(authorizer: "AclAuthorizer", context: RequestContext, commit: PlainCommit) -> bool:
    """Return whether the client may read the group and the topic."""
    principal, host = context.principal, context.client_host
    read, allows = AclOperation.READ, authorizer.is_allowed
    return allows(principal, host, read, ResourceType.GROUP, commit.group_id) and allows(
        principal, host, read, ResourceType.TOPIC, commit.topic_partition.topic
    )


def _head(api: ApiKey, version: int, body: OffsetCommitRequest) -> _Head:
    (topic,) = body.topics
    (asked,) = topic.partitions
    partition = OffsetCommitResponsePartition(partition_index=asked.partition_index)
    response = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=topic.name, partitions=[partition])]
    )
    header_version = api.response_header_version(version)
    frame = b"".join(response_frame(0, header_version, encode(response, version)))
    commit = PlainCommit(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        TopicPartition(topic.name, asked.partition_index),
    )
    return _Head(commit, frame[:_ANSWER_CORRELATION_ID], frame[_ANSWER_CORRELATION_ID + 4 :])
