"""Connection: bytes in, events out; messages in, parts out. No socket, no clock.

Each side of a connection has its class. On the broker's side (`BrokerConnection`) requests arrive
as RequestReceived, and responses are encoded with the correlation id and the header of their
request. On the client's side (`ClientConnection`) requests get consecutive correlation ids;
responses arrive in the order of the requests (Kafka guarantees it per connection), and each is
decoded as its request's response.

The owner moves bytes as `framing` describes: get_buffer, buffer_updated, next_event until None,
release. The owner also limits requests in flight: a broker takes the next event only after it has
answered the last one.

Bytes that break the protocol raise CorruptDataError, after which the connection is unusable. So do
requests that Kafka answers by closing the connection: unknown API, unsupported version. The
exception is ApiVersions of an unknown version: it arrives with an empty body and the version as
sent, and is answered in version 0 (KIP-511), which every client understands. Header versions:
ApiKey.request_header_version. Kafka 2.7: RequestHeader, RequestContext, NetworkClient.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import Api, ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.framing import FRAME_BYTES_MAX, BufferPool, FrameBuffer, Scratch
from kctl.protocol.primitives import Buffer, read_unknown_tags, read_uvarint
from kctl.protocol.schema import Message, Part
from kctl.protocol.server_phase import ServerPhase, moved

CORRELATION_ID_MAX: Final = 0x7FFF_FFFF

# API, version, correlation id, length of the client id.
_request_header: Final = Struct(">hhih")
_request_header_v0: Final = Struct(">hhi")
_unpack_request_header = _request_header.unpack_from
_correlation_id: Final = Struct(">i")
_error_code: Final = Struct(">h")
_response_prefix: Final = Struct(">ii").pack
_flexible_response_prefix: Final = Struct(">iix").pack
_pack_size: Final = Struct(">i").pack

# Reads the body of a response at a position of a frame; None: the general decoder has to.
Reader = Callable[[Buffer, int], object | None]


@dataclass(slots=True)
class RequestReceived:
    """A complete, decoded request; record data in `body` are views into its frame."""

    api_key: ApiKey
    # As sent: it exceeds the supported versions only for ApiVersions.
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Message
    # Bytes of the request without the frame's size.
    size: int


@dataclass(slots=True)
class ResponseReceived:
    """The response to the oldest request without one."""

    api_key: Api
    # The version of the body: 0 for ApiVersions if the broker does not support the requested
    # version.
    api_version: int
    correlation_id: int
    # What the request's reader returned, else a Message.
    body: Any
    # Bytes of the response without the frame's size.
    size: int


class Connection:
    """The framing that both sides share."""

    def __init__(
        self,
        scratch: Scratch | None = None,
        pool: BufferPool | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Take the parameters of FrameBuffer."""
        self.frames = FrameBuffer(scratch, pool, frame_bytes_max)
        self.get_buffer = self.frames.get_buffer
        self.buffer_updated = self.frames.buffer_updated
        self.release = self.frames.release

    def close(self) -> None:
        """Return buffers to the pool."""
        self.frames.close()


class BrokerConnection(Connection):
    """The broker's side: one request at a time, each answered before the next one begins."""

    def __init__(
        self,
        scratch: Scratch | None = None,
        pool: BufferPool | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        super().__init__(scratch, pool, frame_bytes_max)
        self.phase = ServerPhase.READING

    def next_event(self) -> RequestReceived | None:
        """Return the next whole request, or None. The request is in flight from then on."""
        if self.phase is not ServerPhase.READING:
            return None
        frame = self.frames.next_frame()
        if frame is None:
            return None
        request = read_request(frame)
        self.phase = moved(self.phase, ServerPhase.IN_FLIGHT)
        return request

    def send_response(self, request: RequestReceived, response: Message) -> list[Part]:
        """Return the frame that answers `request`, which is no longer in flight."""
        version = request.api_version
        if not request.api_key.has_version(version):
            version = 0
        header_version = request.api_key.response_header_version(version)
        body = encode(response, version)
        self.end_request()
        return response_frame(request.correlation_id, header_version, body)

    def end_request(self) -> None:
        """Note that the request in flight is done with: its response was sent or it has none."""
        is_last = self.phase is ServerPhase.DRAINING
        self.phase = moved(self.phase, ServerPhase.OVER if is_last else ServerPhase.READING)

    def wait_for_reader(self) -> None:
        """Begin no request until `resume`: the client has yet to read the last response."""
        self.phase = moved(self.phase, ServerPhase.SENDING)

    def resume(self) -> None:
        """Begin requests again after `wait_for_reader`."""
        self.phase = moved(self.phase, ServerPhase.READING)

    def drain(self) -> None:
        """End after the request in flight; at once if there is none."""
        if self.phase is ServerPhase.IN_FLIGHT:
            self.phase = moved(self.phase, ServerPhase.DRAINING)
        elif self.phase is not ServerPhase.DRAINING:
            self.phase = moved(self.phase, ServerPhase.OVER)

    def close(self) -> None:
        """End the conversation and return its buffers."""
        self.phase = moved(self.phase, ServerPhase.OVER)
        super().close()


class ClientConnection(Connection):
    """The client's side."""

    def __init__(
        self,
        client_id: str | None,
        scratch: Scratch | None = None,
        pool: BufferPool | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        super().__init__(scratch, pool, frame_bytes_max)
        self._client_id = b"" if client_id is None else client_id.encode()
        self._client_id_size = -1 if client_id is None else len(self._client_id)
        self._next_correlation_id = 0
        self._unanswered: deque[tuple[int, Api, int, Reader | None]] = deque()

    @property
    def unanswered(self) -> int:
        """Return the number of requests whose responses have not arrived."""
        return len(self._unanswered)

    def send_request(
        self,
        request: Message,
        version: int,
        *,
        is_answered: bool = True,
        body: list[Part] | None = None,
        reader: Reader | None = None,
    ) -> tuple[int, list[Part]]:
        """Return the correlation id and the frame. A Produce with acks=0 gets no response. `body`
        is the encoded request, if the caller has it: the list becomes the frame. `reader` is tried
        before the general decoder."""
        api = request.api
        if api is None:
            raise ValueError(f"{request.__class__.__name__} is not a request")
        if body is None:
            body = encode(request, version)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & CORRELATION_ID_MAX
        header = self._request_header(api, version, correlation_id)
        body[0] = header + body[0]
        body[0] = _pack_size(sum(map(len, body))) + body[0]
        if is_answered:
            self._unanswered.append((correlation_id, api, version, reader))
        return correlation_id, body

    def next_event(self) -> ResponseReceived | None:
        """Return the next whole response, or None."""
        frame = self.frames.next_frame()
        return None if frame is None else self._read_response(frame)

    def _request_header(self, api: Api, version: int, correlation_id: int) -> bytes:
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
        expected, api, version, reader = self._unanswered[0]
        if correlation_id != expected:
            raise CorruptDataError(f"response {correlation_id} came where {expected} was due")
        self._unanswered.popleft()
        position = _correlation_id.size
        if api.response_header_version(version):
            position = _skip_tags(frame, position)
        elif api == ApiKey.API_VERSIONS and _says_unsupported(frame, position):
            version = 0
        body = None if reader is None else reader(frame, position)
        if body is None:
            body = decode(api.response_class, version, frame, position)
        return ResponseReceived(api, version, correlation_id, body, len(frame))


def read_request_header(frame: Buffer) -> tuple[ApiKey, int, int, str | None, int]:
    """Return (API, version as sent, correlation id, client id, position of the body)."""
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
        # In an unknown version only this much of the header is certain.
        if api.flexible_from <= version <= api.max_version:
            position = position + 1 if not frame[position] else _skip_tags(frame, position)
    except (struct_error, IndexError) as error:
        raise CorruptDataError("a request that ends inside its header") from error
    if position > len(frame):
        raise CorruptDataError("a request that ends inside its header")
    return api, version, correlation_id, client_id, position


def read_request(frame: Buffer) -> RequestReceived:
    """Return the request in `frame` (without its size)."""
    api, version, correlation_id, client_id, position = read_request_header(frame)
    if 0 <= version <= api.max_version:
        body = decode(api.request_class, version, frame, position)
    elif api is ApiKey.API_VERSIONS:
        body = api.request_class()
    else:
        raise CorruptDataError(f"{api.title} has no version {version}")
    return RequestReceived(api, version, correlation_id, client_id, body, len(frame))


def response_frame(correlation_id: int, header_version: int, body: list[Part]) -> list[Part]:
    """Return the frame of an encoded response; changes `body`, whose first part grows."""
    first = body[0]
    size = len(first) if len(body) == 1 else sum(map(len, body))
    if header_version == 0:
        body[0] = _response_prefix(size + 4, correlation_id) + first
    else:
        body[0] = _flexible_response_prefix(size + 5, correlation_id) + first
    return body


def _says_unsupported(frame: Buffer, position: int) -> bool:
    """Return whether an ApiVersions response is in version 0 because the requested version is not
    supported: each version begins with the error code."""
    code = bytes(frame[position : position + _error_code.size])
    return code == _error_code.pack(ErrorCode.UNSUPPORTED_VERSION)


def _skip_tags(frame: Buffer, position: int) -> int:
    """Return the position after the tagged fields of a header, which are ignored (2.7 has none)."""
    try:
        count, position = read_uvarint(frame, position)
        return read_unknown_tags(frame, position, count)[1]
    except IndexError as error:
        raise CorruptDataError("a header that ends inside its tagged fields") from error


_APIS: Final = {int(api): api for api in ApiKey}
