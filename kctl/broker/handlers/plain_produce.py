"""The fast path of Produce: one plain batch for one partition, from request bytes to response
bytes.

Most requests of a busy broker are one batch for one partition, and a producer begins all its
requests for a partition with the same bytes, except for the correlation id:

    api key, version | correlation id | client id ... partition index | size of the batch | batch
                                        |------------ head ----------|

A head is therefore decoded once and cached with its fields and the begin and end of its response.
After that a request costs one look-up, the append, and one join.

Behaviour:

- The client's permissions are looked up for each request; without them it is left to the handler,
  which refuses it.
- Batches are not checked here but by the log, as in every append.
- Requests that are not plain (more partitions, zstd, transactions, acks=0, an error, an append
  that must wait) are left, untouched, to `handle_produce`.
- Its responses would be identical to the last byte.

Versions: 5-8; older ones are left to `handle_produce`.

Invariants: a head's fields follow from its bytes and the version alone; a response's bytes come
from the codec, and only the three numbers at ANSWER are set here.

Kafka 2.7: kafka.server.KafkaApis.handleProduceRequest.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from kctl.broker.replication.replica_manager import LogAppendInfo, ReplicaManager
from kctl.broker.request import RequestContext
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl import CLUSTER_NAME, AclOperation, ResourceType
from kctl.protocol.codec import decode, encode
from kctl.protocol.connection import read_request_header, response_frame
from kctl.protocol.constants import ACKS_ALL, ACKS_LEADER
from kctl.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.protocol.primitives import Buffer
from kctl.records.compression import ZSTD
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD

if TYPE_CHECKING:
    from kctl.broker.security.authorizer import AclAuthorizer

# The first version whose responses have a log start offset.
VERSION_MIN: Final = 5
# Maximum number of cached heads, and of their bytes; beyond either the cache is cleared.
HEADS_MAX: Final = 4096
HEADS_BYTES_MAX: Final = 4 * 1024 * 1024
HEAD_START: Final = 8
# Version and size of the client id.
_start: Final = Struct(">2xh4xh").unpack_from
_CLIENT_ID_START: Final = 10
# Transactional id (null), acks, timeout, number of topics.
_BEFORE_NAME: Final = 2 + 2 + 4 + 4
# Size of the name; number of partitions, partition index.
_AROUND_NAME: Final = 2 + 4 + 4
# Size of the batch, its base offset, length, leader epoch, magic, CRC, attributes.
_records: Final = Struct(">i8xi4xb4xh").unpack_from
_SIZE_BYTES: Final = 4
_producer_id: Final = Struct(">43xq").unpack_from
# Base offset, log append time, log start offset.
_ANSWER: Final = Struct(">qqq")
# Size and correlation id of the response; number of topics, size of the name.
_ANSWER_BODY: Final = 8
_ANSWER_NAME: Final = _ANSWER_BODY + 4 + 2
# Number of partitions, partition index, error code.
_AFTER_ANSWER_NAME: Final = 4 + 4 + 2

_VALID_ACKS: Final = (ACKS_ALL, ACKS_LEADER)


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that requests with the same head share."""

    key: tuple[str, int]
    acks: int
    # The response, without correlation id and numbers.
    size: bytes
    before: bytes
    after: bytes


class PlainProduce:
    """Handles plain produce requests; one per broker."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        version_max: int,
        authorizer: "AclAuthorizer | None" = None,
    ) -> None:
        self._append = replica_manager.append_plain
        self._wake_readers = replica_manager.wake_readers
        self._version_max = version_max
        self._authorizer = authorizer
        # By version and bytes; None: not plain.
        self._heads: dict[tuple[int, bytes], Head | None] = {}
        self._heads_bytes = 0

    def answer(
        self, frame: Buffer, send: Callable[[bytes], object], context: RequestContext
    ) -> bool:
        """Append, and `send` the response frame; return False if the request is not plain."""
        try:
            version, client_id_size = _start(frame)
            name = client_id_size + _CLIENT_ID_START + _BEFORE_NAME
            end = name + (frame[name] << 8) + frame[name + 1] + _AROUND_NAME
            size, length, magic, attributes = _records(frame, end)
        except (struct_error, IndexError):
            return False
        start = end + _SIZE_BYTES
        if size != len(frame) - start or size != length + LOG_OVERHEAD:
            return False
        if size < RECORD_BATCH_OVERHEAD or magic != CURRENT_MAGIC:
            return False
        # Uncompressed or compressed, but not with zstd, which some versions do not allow.
        if not 0 <= attributes < ZSTD:
            return False
        key = version, bytes(frame[HEAD_START:end])
        head = self._heads.get(key)
        if head is None:
            if key not in self._heads:
                self._learn(frame, key)
            return False
        authorizer = self._authorizer
        if authorizer is not None and not _may_append(authorizer, context, frame, start, head):
            return False
        info = self._append_in(frame, start, head)
        if info is None:
            return False
        numbers = _ANSWER.pack(info.first_offset, info.log_append_time_ms, info.log_start_offset)
        send(b"".join((head.size, frame[4:8], head.before, numbers, head.after)))
        self._wake_readers(head.key)
        return True

    def _append_in(self, frame: Buffer, start: int, head: Head) -> LogAppendInfo | None:
        if type(frame) is bytes:
            return self._append(head.key, bytearray(frame[start:]), head.acks)
        # A large frame is the connection's own buffer; the log writes into its header.
        records = memoryview(frame)[start:]
        header = bytes(records[:RECORD_BATCH_OVERHEAD])
        info = self._append(head.key, records, head.acks)
        if info is None:
            # The batch may have been numbered before it was rejected.
            records[:RECORD_BATCH_OVERHEAD] = header
        return info

    def _learn(self, frame: Buffer, key: tuple[int, bytes]) -> None:
        """Cache the head at `key`, if the request can be decoded."""
        try:
            api, version, _, client_id, position = read_request_header(frame)
            if not VERSION_MIN <= version <= self._version_max or client_id is None:
                return
            body = decode(api.request_class, version, frame, position)
        except CorruptDataError:
            return
        size = len(key[1])
        if len(self._heads) >= HEADS_MAX or self._heads_bytes + size > HEADS_BYTES_MAX:
            self._heads.clear()
            self._heads_bytes = 0
        self._heads_bytes += size
        self._heads[key] = None
        if isinstance(body, ProduceRequest) and _is_plain(body):
            (topic,) = body.topics
            index = topic.partitions[0].partition_index
            self._heads[key] = _head(version, topic.name, index, body.acks)


def _may_append(
    authorizer: "AclAuthorizer", context: RequestContext, frame: Buffer, start: int, head: Head
) -> bool:
    """Return whether the client may append the batch at `start`, which decides itself whether it
    needs IdempotentWrite."""
    principal, host = context.principal, context.client_host
    allows = authorizer.is_allowed
    if not allows(principal, host, AclOperation.WRITE, ResourceType.TOPIC, head.key[0]):
        return False
    (producer_id,) = _producer_id(frame, start)
    return producer_id < 0 or allows(
        principal, host, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    )


def _is_plain(body: ProduceRequest) -> bool:
    """Return whether the layout is that of the module docstring, and a response is expected."""
    if body.transactional_id is not None or body.acks not in _VALID_ACKS or len(body.topics) != 1:
        return False
    return len(body.topics[0].partitions) == 1


def _head(version: int, name: str, index: int, acks: int) -> Head:
    partition = PartitionProduceResponse(partition_index=index)
    response = ProduceResponse(responses=[TopicProduceResponse(name=name, partitions=[partition])])
    frame = b"".join(response_frame(0, 0, encode(response, version)))
    numbers = _ANSWER_NAME + len(name.encode()) + _AFTER_ANSWER_NAME
    return Head(
        (name, index),
        acks,
        frame[:_SIZE_BYTES],
        frame[_ANSWER_BODY:numbers],
        frame[numbers + _ANSWER.size :],
    )
