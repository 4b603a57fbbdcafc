"""Requests that write one record, and their responses, without the general codec. Pure.

Produce requests of one topic differ in the partition and the batch only, which are last, so that
the bytes before them are encoded once. The response to a record that was written has one shape;
every other response is left to the general decoder.

tests/client/test_single_record.py compares both with the general builder and codec.

Kafka 2.7: org.apache.kafka.common.requests.{ProduceRequest, ProduceResponse}
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from kctl.protocol.codec import encode
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Part
from kctl.records.builder import assemble
from kctl.records.record_batch import NO_PARTITION_LEADER_EPOCH
from kctl.records.varint import write_varint

# The versions in which requests and responses have these shapes.
VERSIONS: Final = range(3, 9)
# Up to this size copying a batch costs less than sending two parts.
JOINED_BYTES_MAX: Final = 4_000
# Combinations of lengths whose encoding is kept.
FRAMES_MAX: Final = 1_024
# Partition and size of the batch.
_LAST_FIELDS: Final = Struct(">ii")
# Partition, error code, base offset, log append time.
_OUTCOME: Final = Struct(">ihqq")
_LOG_START_VERSION: Final = 5
_LOG_START_BYTES: Final = 8
_THROTTLE_BYTES: Final = 4
# Attributes, and the deltas of timestamp and offset.
_ALL_ZERO: Final = bytes(3)
_NO_HEADERS: Final = bytes(1)


class Written(NamedTuple):
    """The response to a record that was written."""

    base_offset: int
    # -1: the record keeps its own time.
    log_append_time_ms: int


class SingleRecordRequests:
    """Produce requests for one topic in one version, each with one batch."""

    def __init__(self, topic: str, version: int, *, acks: int, timeout_ms: int) -> None:
        self.version = version
        # For what a channel asks a request: its API, and whether it is answered.
        self.message = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topics=[TopicProduceData(name=topic, partitions=[PartitionProduceData(records=b"")])],
        )
        encoded = b"".join(bytes(it) for it in encode(self.message, version))
        self._prefix = encoded[: -_LAST_FIELDS.size]
        answer = ProduceResponse(
            responses=[TopicProduceResponse(name=topic, partitions=[PartitionProduceResponse()])]
        )
        shape = b"".join(bytes(it) for it in encode(answer, version))
        # What follows the outcome: log start offset, errors of single records, throttle time.
        self._skipped = _LOG_START_BYTES if version >= _LOG_START_VERSION else 0
        errors = 6 if version == VERSIONS[-1] else 0
        size = len(shape) - _OUTCOME.size - self._skipped - errors - _THROTTLE_BYTES
        self._head = shape[:size]
        self._errors = shape[len(shape) - errors - _THROTTLE_BYTES : -_THROTTLE_BYTES]
        self._response_size = len(shape)

    def body(self, partition: int, batch: bytearray) -> list[Part]:
        """Return the request for `batch`, as the general encoder does."""
        head = self._prefix + _LAST_FIELDS.pack(partition, len(batch))
        return [head + batch] if len(batch) <= JOINED_BYTES_MAX else [head, batch]

    def read(self, frame: Buffer, position: int) -> Written | None:
        """Return the outcome in the response at `position`; None if it is anything but that of a
        record that was written."""
        at = position + len(self._head)
        if len(frame) - position != self._response_size or frame[position:at] != self._head:
            return None
        _, error_code, base_offset, log_append_time_ms = _OUTCOME.unpack_from(frame, at)
        at += _OUTCOME.size + self._skipped
        if error_code or frame[at : at + len(self._errors)] != self._errors:
            return None
        return Written(base_offset, log_append_time_ms)


def single_record_batch(
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytearray:
    """Return the batch of one record without headers that RecordBatchBuilder builds."""
    before_key, before_value = _frame(
        -1 if key is None else len(key), -1 if value is None else len(value)
    )
    return assemble(
        b"".join((before_key, key or b"", before_value, value or b"", _NO_HEADERS)),
        0,
        NO_PARTITION_LEADER_EPOCH,
        0,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        1,
    )


@lru_cache(FRAMES_MAX)
def _frame(key_length: int, value_length: int) -> tuple[bytes, bytes]:
    """Return what comes before the key and before the value; the length of null is -1."""
    start, middle, size = bytearray(_ALL_ZERO), bytearray(), bytearray()
    write_varint(start, key_length)
    write_varint(middle, value_length)
    fields = max(key_length, 0) + max(value_length, 0)
    write_varint(size, len(start) + len(middle) + fields + len(_NO_HEADERS))
    return bytes(size + start), bytes(middle)
