"""The short road of Produce: one plain batch for one partition, from bytes to bytes.

Most of a busy broker's requests are one batch for one partition, and a producer begins
all its requests for a partition with the same bytes, but for the correlation id:

    api key, version | correlation id | client id ... partition index | size of the batch | batch
                                        |------------ head ----------|

So a head is decoded once, and remembered with what it says and with how its answer begins and ends.
After that a request costs one look-up, the append, and one join.

Behaviour:
- Nothing is judged here: batches are checked by the log, as always.
- Whatever is not plain (more partitions, zstd, transactions, acks=0, an error, an append
  that must wait) is left, untouched, to `handle_produce`.
- Its answers would be the same to the last byte.

Versions: 5-8; older ones are left to `handle_produce`.

Invariants: a head's facts follow from its bytes and the version alone; an answer's bytes come from
the codec, and only the three numbers at ANSWER are put in here.

Kafka 2.7: kafka.server.KafkaApis.handleProduceRequest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error

from kctl.broker.replication.replica_manager import ACKS_ALL, LogAppendInfo, ReplicaManager
from kctl.errors import CorruptDataError
from kctl.protocol.codec import decode, encode
from kctl.protocol.connection import read_request_header, response_frame
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

# The first version whose answers have a log start offset.
VERSION_MIN = 5
# Heads remembered; beyond it they are learnt anew.
HEADS_MAX = 4096
HEAD_START = 8
# Version and size of the client id.
_start = Struct(">2xh4xh").unpack_from
_CLIENT_ID_START = 10
# Transactional id (null), acks, timeout, number of topics.
_BEFORE_NAME = 2 + 2 + 4 + 4
# Size of the name; number of partitions, partition index.
_AROUND_NAME = 2 + 4 + 4
# Size of the batch, its base offset, length, leader epoch, magic, CRC, attributes.
_records = Struct(">i8xi4xb4xh").unpack_from
_SIZE_BYTES = 4
# Base offset, log append time, log start offset.
_ANSWER = Struct(">qqq")
# Size and correlation id of the answer; number of topics, size of the name.
_ANSWER_BODY = 8
_ANSWER_NAME = _ANSWER_BODY + 4 + 2
# Number of partitions, partition index, error code.
_AFTER_ANSWER_NAME = 4 + 4 + 2

_VALID_ACKS = (ACKS_ALL, 1)


@dataclass(frozen=True, slots=True)
class Head:
    """What requests that begin alike have in common."""

    key: tuple[str, int]
    acks: int
    # The answer, without correlation id and numbers.
    size: bytes
    before: bytes
    after: bytes


class PlainProduce:
    """See the module; one for a broker."""

    def __init__(self, replica_manager: ReplicaManager, version_max: int) -> None:
        self._append = replica_manager.append_plain
        self._wake_readers = replica_manager.wake_readers
        self._version_max = version_max
        # By version and bytes; None: not plain.
        self._heads: dict[tuple[int, bytes], Head | None] = {}

    def answer(self, frame: Buffer, send: Callable[[bytes], object]) -> bool:
        """Append, and `send` the answer's frame; False if the request is not plain."""
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
        # Only compressed or not, and not zstd, which not every version allows.
        if not 0 <= attributes < ZSTD:
            return False
        key = version, bytes(frame[HEAD_START:end])
        head = self._heads.get(key)
        if head is None:
            if key not in self._heads:
                self._learn(frame, key)
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
        # A large frame is a buffer of the connection's own, in whose header the log writes.
        records = memoryview(frame)[start:]
        header = bytes(records[:RECORD_BATCH_OVERHEAD])
        info = self._append(head.key, records, head.acks)
        if info is None:
            # It may have been numbered before it was refused.
            records[:RECORD_BATCH_OVERHEAD] = header
        return info

    def _learn(self, frame: Buffer, key: tuple[int, bytes]) -> None:
        """Remember the head at `key`, with which a request that decodes may begin, for others."""
        try:
            api, version, _, client_id, position = read_request_header(frame)
            if not VERSION_MIN <= version <= self._version_max or client_id is None:
                return
            body = decode(api.request_class, version, frame, position)
        except CorruptDataError:
            return
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[key] = None
        if isinstance(body, ProduceRequest) and _is_plain(body):
            (topic,) = body.topics
            index = topic.partitions[0].partition_index
            self._heads[key] = _head(version, topic.name, index, body.acks)


def _is_plain(body: ProduceRequest) -> bool:
    """Whether the layout is that of the module, and an answer is wanted."""
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
