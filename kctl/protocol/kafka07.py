"""The wire protocol of Kafka 0.7: five requests, their answers and its error codes, both sides.

    request  = size int32 | kind int16 | body      response = size int32 | error int16 | body

`size` counts what follows it. Strings are an int16 length and UTF-8 bytes. There is no API version,
correlation id or client id: a connection is served in order. PRODUCE and MULTIPRODUCE are never
answered. Message sets pass through as the buffers they came in (`kctl.records.message07` reads
them).

A decoder accepts any bytes after a body, as 0.7 does, and raises CorruptDataError for what cannot
be read; bytes of a name that are not UTF-8 become U+FFFD.

Kafka 0.7: kafka.api.{ProducerRequest, MultiProducerRequest, FetchRequest, MultiFetchRequest,
OffsetRequest}, kafka.server.MessageSetSend, kafka.common.ErrorMapping.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import TypeVar

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer
from kctl.work import Work, at_once

# Times of an OffsetsRequest that are no times.
LATEST_TIME = -1
EARLIEST_TIME = -2
# The partition of a ProduceRequest that leaves the choice to the broker.
ANY_PARTITION = -1
# Parts of a multi request: the largest int16.
PARTS_MAX = 0x7FFF
# Parts that are decoded between two turns of the loop: about a millisecond.
PARTS_PER_TURN = 500

SIZE_BYTES = 4
ERROR_BYTES = 2

_SIZE = Struct(">i")
_KIND = Struct(">h")
_FETCH_TAIL = Struct(">iqi")
_OFFSETS_TAIL = Struct(">iqi")
_PRODUCE_TAIL = Struct(">ii")
_RESPONSE_HEADER = Struct(">ih")
_OFFSET_BYTES = 8

Part = TypeVar("Part")


class RequestKind(IntEnum):
    """The int16 at the start of a request."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


class Kafka07Error(IntEnum):
    """The int16 at the start of a response."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """Append `message_set` to a partition; never answered."""

    topic: str
    # ANY_PARTITION: one of the broker's own, at random.
    partition: int
    message_set: Buffer


@dataclass(frozen=True, slots=True)
class MultiProduceRequest:
    """Append to several partitions, in order; never answered."""

    parts: Sequence[ProduceRequest]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Read at most `bytes_max` bytes of a partition from the byte position `offset`."""

    topic: str
    partition: int
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Read from several partitions; the answer has one part for each, in order."""

    parts: Sequence[FetchRequest]


@dataclass(frozen=True, slots=True)
class OffsetsRequest:
    """List at most `count_max` offsets before `time_ms` (or LATEST_TIME, EARLIEST_TIME)."""

    topic: str
    partition: int
    time_ms: int
    count_max: int


Request07 = ProduceRequest | FetchRequest | MultiFetchRequest | MultiProduceRequest | OffsetsRequest


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The answer to a fetch, or to one part of a multifetch. `error` may be an unknown number."""

    error: int
    message_set: Buffer


@dataclass(frozen=True, slots=True)
class OffsetsAnswer:
    """The answer to an OffsetsRequest: offsets, descending."""

    error: int
    offsets: Sequence[int]


# --- requests


def encode_request(request: Request07) -> bytes:
    """Return the whole frame of `request`, with its size."""
    kind, body = _kind_and_body(request)
    return _SIZE.pack(_KIND.size + len(body)) + _KIND.pack(kind) + body


def _kind_and_body(request: Request07) -> tuple[RequestKind, bytes]:
    match request:
        case ProduceRequest():
            return RequestKind.PRODUCE, _produce_body(request)
        case FetchRequest():
            return RequestKind.FETCH, _fetch_body(request)
        case MultiFetchRequest():
            return RequestKind.MULTIFETCH, _joined(map(_fetch_body, request.parts))
        case MultiProduceRequest():
            return RequestKind.MULTIPRODUCE, _joined(map(_produce_body, request.parts))
        case OffsetsRequest():
            tail = _OFFSETS_TAIL.pack(request.partition, request.time_ms, request.count_max)
            return RequestKind.OFFSETS, _string(request.topic) + tail


def _joined(bodies: "map[bytes]") -> bytes:
    parts = list(bodies)
    if len(parts) > PARTS_MAX:
        raise ValueError(f"a request of {len(parts)} parts; the limit is {PARTS_MAX}")
    return _KIND.pack(len(parts)) + b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _KIND.pack(len(encoded)) + encoded


def _produce_body(request: ProduceRequest) -> bytes:
    sizes = _PRODUCE_TAIL.pack(request.partition, len(request.message_set))
    return b"".join((_string(request.topic), sizes, request.message_set))


def _fetch_body(request: FetchRequest) -> bytes:
    tail = _FETCH_TAIL.pack(request.partition, request.offset, request.bytes_max)
    return _string(request.topic) + tail


def decode_request(frame: Buffer) -> Request07:
    """Return the request in `frame`, a frame without its size field; CorruptDataError."""
    return at_once(decoding_request(frame))


def decoding_request(frame: Buffer) -> Work[Request07]:
    """Decode like `decode_request`, with turns for others: a frame may hold PARTS_MAX parts."""
    try:
        (kind,) = _KIND.unpack_from(frame)
        match kind:
            case RequestKind.PRODUCE:
                return _read_produce(frame, _KIND.size)[0]
            case RequestKind.FETCH:
                return _read_fetch(frame, _KIND.size)[0]
            case RequestKind.OFFSETS:
                return _read_offsets(frame, _KIND.size)
            case RequestKind.MULTIFETCH:
                return MultiFetchRequest((yield from _reading_parts(frame, _read_fetch)))
            case RequestKind.MULTIPRODUCE:
                return MultiProduceRequest((yield from _reading_parts(frame, _read_produce)))
    except StructError:
        raise CorruptDataError("a request that ends too early") from None
    raise CorruptDataError(f"a request of unknown kind {kind}")


def _reading_parts(
    frame: Buffer, read: Callable[[Buffer, int], tuple[Part, int]]
) -> Work[list[Part]]:
    (count,) = _KIND.unpack_from(frame, _KIND.size)
    if count < 0:
        raise CorruptDataError(f"a request of {count} parts")
    position = 2 * _KIND.size
    parts: list[Part] = []
    while len(parts) < count:
        part, position = read(frame, position)
        parts.append(part)
        if len(parts) % PARTS_PER_TURN == 0:
            yield
    return parts


def _read_string(frame: Buffer, position: int) -> tuple[str, int]:
    (size,) = _KIND.unpack_from(frame, position)
    start = position + _KIND.size
    end = start + size
    if size < 0 or end > len(frame):
        raise CorruptDataError(f"a topic name of {size} bytes")
    return str(frame[start:end], "utf-8", "replace"), end


def _read_produce(frame: Buffer, position: int) -> tuple[ProduceRequest, int]:
    topic, position = _read_string(frame, position)
    partition, size = _PRODUCE_TAIL.unpack_from(frame, position)
    start = position + _PRODUCE_TAIL.size
    end = start + size
    if size < 0 or end > len(frame):
        raise CorruptDataError(f"a message set of {size} bytes")
    return ProduceRequest(topic, partition, memoryview(frame)[start:end]), end


def _read_fetch(frame: Buffer, position: int) -> tuple[FetchRequest, int]:
    topic, position = _read_string(frame, position)
    partition, offset, bytes_max = _FETCH_TAIL.unpack_from(frame, position)
    return FetchRequest(topic, partition, offset, bytes_max), position + _FETCH_TAIL.size


def _read_offsets(frame: Buffer, position: int) -> OffsetsRequest:
    topic, position = _read_string(frame, position)
    partition, time_ms, count_max = _OFFSETS_TAIL.unpack_from(frame, position)
    return OffsetsRequest(topic, partition, time_ms, count_max)


# --- responses


def encode_header(error: int, body_bytes: int) -> bytes:
    """Return size and error before a body of `body_bytes` bytes (a response, or a part of one)."""
    return _RESPONSE_HEADER.pack(ERROR_BYTES + body_bytes, error)


def encode_offsets_answer(offsets: Sequence[int]) -> bytes:
    """Return the whole answer to an OffsetsRequest."""
    body = Struct(f">i{len(offsets)}q").pack(len(offsets), *offsets)
    return encode_header(Kafka07Error.NONE, len(body)) + body


def decode_fetch_answer(frame: Buffer) -> FetchAnswer:
    """Return the answer in `frame`, which has no size; CorruptDataError."""
    return FetchAnswer(_read_error(frame), memoryview(frame)[ERROR_BYTES:])


def decode_multifetch_answer(frame: Buffer) -> list[FetchAnswer]:
    """Return the parts in `frame`, which has no size; CorruptDataError.

    The outer error is 0 from every known broker; another one raises CorruptDataError.
    """
    outer = _read_error(frame)
    if outer != Kafka07Error.NONE:
        raise CorruptDataError(f"a multifetch answered with error {outer}")
    answers = []
    position = ERROR_BYTES
    while position < len(frame):
        if position + SIZE_BYTES > len(frame):
            raise CorruptDataError("a multifetch answer that ends inside a size")
        (size,) = _SIZE.unpack_from(frame, position)
        start, position = position + SIZE_BYTES, position + SIZE_BYTES + size
        if size < ERROR_BYTES or position > len(frame):
            raise CorruptDataError(f"a part of {size} bytes in a multifetch answer")
        answers.append(decode_fetch_answer(memoryview(frame)[start:position]))
    return answers


def decode_offsets_answer(frame: Buffer) -> OffsetsAnswer:
    """Return the answer in `frame`, which has no size; CorruptDataError."""
    error = _read_error(frame)
    start = ERROR_BYTES + SIZE_BYTES
    if error != Kafka07Error.NONE and len(frame) < start:
        return OffsetsAnswer(error, ())
    if len(frame) < start:
        raise CorruptDataError("an offsets answer without a count")
    (count,) = _SIZE.unpack_from(frame, ERROR_BYTES)
    if not 0 <= count <= (len(frame) - start) // _OFFSET_BYTES:
        raise CorruptDataError(f"{count} offsets in {len(frame) - start} bytes")
    return OffsetsAnswer(error, Struct(f">{count}q").unpack_from(frame, start))


def _read_error(frame: Buffer) -> int:
    if len(frame) < ERROR_BYTES:
        raise CorruptDataError("an answer without an error code")
    error: int = _KIND.unpack_from(frame)[0]
    return error
