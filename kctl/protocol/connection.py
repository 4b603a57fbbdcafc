"""Connection: bytes in, events out; messages in, parts out. No socket, no clock.

A connection is a conversation with two sides and one class for each. On the broker's side
(`BrokerConnection`) requests come in as RequestReceived, and answers are encoded with the
correlation id and the header of their request. On the asking side (`ClientConnection`) requests
get consecutive correlation ids; answers come back in the order of the requests (Kafka's promise
for a connection), and each is decoded as what was asked for.

The owner moves bytes as `framing` says: get_buffer, buffer_updated, next_event until None,
release. How many requests may be under way is the owner's affair: a broker asks for the next
event only when it has answered the last one.

Bytes that break the protocol raise CorruptDataError, after which the connection is of no use.
So do requests that Kafka answers by closing the connection: unknown API, unsupported version.
The exception is ApiVersions of an unknown version: it arrives with an empty body and the version
as sent, and is answered in version 0 (KIP-511), which a client that asked too much understands.
Header versions: ApiKey.request_header_version. Kafka 2.7: RequestHeader, RequestContext,
NetworkClient.
"""

from collections import deque
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.framing import FRAME_BYTES_MAX, BufferPool, FrameBuffer
from kctl.protocol.primitives import Buffer, read_unknown_tags, read_uvarint
from kctl.protocol.schema import Message, Part

CORRELATION_ID_MAX = 0x7FFF_FFFF

# API, version, correlation id, length of the client id.
_request_header = Struct(">hhih")
_request_header_v0 = Struct(">hhi")
_unpack_request_header = _request_header.unpack_from
_correlation_id = Struct(">i")
_error_code = Struct(">h")
_response_prefix = Struct(">ii").pack
_flexible_response_prefix = Struct(">iix").pack
_pack_size = Struct(">i").pack


@dataclass(slots=True)
class RequestReceived:
    """A request, whole and decoded; record data in `body` are views into its frame."""

    api_key: ApiKey
    # As sent: beyond what we speak only for ApiVersions.
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Message
    # Bytes of the request without the frame's size.
    size: int


@dataclass(slots=True)
class ResponseReceived:
    """The answer to the oldest request that had none."""

    api_key: ApiKey
    # Of the body: for ApiVersions it may be 0 where more was asked.
    api_version: int
    correlation_id: int
    body: Message
    # Bytes of the response without the frame's size.
    size: int


class Connection:
    """The part that both sides share: frames."""

    def __init__(
        self,
        scratch: bytearray | memoryview | None = None,
        pool: BufferPool | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """As FrameBuffer."""
        self.frames = FrameBuffer(scratch, pool, frame_bytes_max)
        self.get_buffer = self.frames.get_buffer
        self.buffer_updated = self.frames.buffer_updated
        self.release = self.frames.release

    def close(self) -> None:
        """Give buffers back."""
        self.frames.close()


class BrokerConnection(Connection):
    """The side that is asked."""

    def next_event(self) -> RequestReceived | None:
        """The next whole request, or None."""
        frame = self.frames.next_frame()
        return None if frame is None else read_request(frame)

    def send_response(self, request: RequestReceived, response: Message) -> list[Part]:
        """The frame that answers `request`."""
        version = request.api_version
        if not request.api_key.has_version(version):
            version = 0
        return response_frame(
            request.correlation_id,
            request.api_key.response_header_version(version),
            encode(response, version),
        )


class ClientConnection(Connection):
    """The side that asks."""

    def __init__(
        self,
        client_id: str | None,
        scratch: bytearray | memoryview | None = None,
        pool: BufferPool | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        super().__init__(scratch, pool, frame_bytes_max)
        self._client_id = b"" if client_id is None else client_id.encode()
        self._client_id_size = -1 if client_id is None else len(self._client_id)
        self._next_correlation_id = 0
        self._unanswered: deque[tuple[int, ApiKey, int]] = deque()

    @property
    def unanswered(self) -> int:
        """Requests whose answers are still to come."""
        return len(self._unanswered)

    def send_request(
        self, request: Message, version: int, *, is_answered: bool = True
    ) -> tuple[int, list[Part]]:
        """(correlation id, the frame). Nothing answers a Produce with acks=0."""
        api = request.api
        if api is None:
            raise ValueError(f"{request.__class__.__name__} is no request")
        body = encode(request, version)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & CORRELATION_ID_MAX
        header = self._request_header(api, version, correlation_id)
        body[0] = header + body[0]
        body[0] = _pack_size(sum(map(len, body))) + body[0]
        if is_answered:
            self._unanswered.append((correlation_id, api, version))
        return correlation_id, body

    def next_event(self) -> ResponseReceived | None:
        """The next whole response, or None."""
        frame = self.frames.next_frame()
        return None if frame is None else self._read_response(frame)

    def _request_header(self, api: ApiKey, version: int, correlation_id: int) -> bytes:
        header_version = api.request_header_version(version)
        if header_version == 0:
            return _request_header_v0.pack(api, version, correlation_id)
        size = self._client_id_size
        header = _request_header.pack(api, version, correlation_id, size) + self._client_id
        return header if header_version == 1 else header + b"\0"

    def _read_response(self, frame: Buffer) -> ResponseReceived:
        if len(frame) < _correlation_id.size:
            raise CorruptDataError("a response without a correlation id")
        (correlation_id,) = _correlation_id.unpack_from(frame)
        if not self._unanswered:
            raise CorruptDataError(f"response {correlation_id} to no request")
        expected, api, version = self._unanswered[0]
        if correlation_id != expected:
            raise CorruptDataError(f"response {correlation_id} came where {expected} was due")
        self._unanswered.popleft()
        position = _correlation_id.size
        if api.response_header_version(version):
            position = _skip_tags(frame, position)
        elif api is ApiKey.API_VERSIONS and _says_unsupported(frame, position):
            version = 0
        body = decode(api.response_class, version, frame, position)
        return ResponseReceived(api, version, correlation_id, body, len(frame))


def read_request_header(frame: Buffer) -> tuple[ApiKey, int, int, str | None, int]:
    """(API, version as sent, correlation id, client id, where the body begins)."""
    try:
        key, version, correlation_id, size = _unpack_request_header(frame, 0)
        api = _APIS.get(key)
        if api is None:
            raise CorruptDataError(f"unknown API key {key}")
        position = _request_header.size
        client_id = None
        if version == 0 and api is ApiKey.CONTROLLED_SHUTDOWN:
            position = _request_header_v0.size
        elif size >= 0:
            start, position = position, position + size
            client_id = str(frame[start:position], "utf-8", "replace")
        # Of a version that nobody knows, only so much of the header is sure.
        if api.flexible_from <= version <= api.max_version:
            position = position + 1 if not frame[position] else _skip_tags(frame, position)
    except (struct_error, IndexError) as error:
        raise CorruptDataError("a request that ends inside its header") from error
    if position > len(frame):
        raise CorruptDataError("a request that ends inside its header")
    return api, version, correlation_id, client_id, position


def read_request(frame: Buffer) -> RequestReceived:
    """The request in `frame` (without its size)."""
    api, version, correlation_id, client_id, position = read_request_header(frame)
    if 0 <= version <= api.max_version:
        body = decode(api.request_class, version, frame, position)
    elif api is ApiKey.API_VERSIONS:
        body = api.request_class()
    else:
        raise CorruptDataError(f"{api.title} has no version {version}")
    return RequestReceived(api, version, correlation_id, client_id, body, len(frame))


def response_frame(correlation_id: int, header_version: int, body: list[Part]) -> list[Part]:
    """The frame of an encoded response `body`, whose list is changed: its first part grows."""
    first = body[0]
    size = len(first) if len(body) == 1 else sum(map(len, body))
    if header_version == 0:
        body[0] = _response_prefix(size + 4, correlation_id) + first
    else:
        body[0] = _flexible_response_prefix(size + 5, correlation_id) + first
    return body


def _says_unsupported(frame: Buffer, position: int) -> bool:
    """Whether an ApiVersions response is the one that is always in version 0: each version
    begins with the error code."""
    code = bytes(frame[position : position + _error_code.size])
    return code == _error_code.pack(ErrorCode.UNSUPPORTED_VERSION)


def _skip_tags(frame: Buffer, position: int) -> int:
    """Behind the tagged fields of a header, which nobody here wants (there are none in 2.7)."""
    try:
        count, position = read_uvarint(frame, position)
        return read_unknown_tags(frame, position, count)[1]
    except IndexError as error:
        raise CorruptDataError("a header that ends inside its tagged fields") from error


_APIS = {int(api): api for api in ApiKey}
