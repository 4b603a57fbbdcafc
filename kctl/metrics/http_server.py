"""MetricsServer: answers GET and HEAD of a few pages over HTTP/1.1, on the loop of its process.

Monitoring must not cost what it watches. One page is made at a time, in parts with turns of the
loop between them; other requests wait for it. A client has HEAD_MS_MAX for the head of a request of
at most HEAD_BYTES_MAX, and SEND_MS_MAX to take the response; it has one request in progress. A
client that connects when there are CONNECTIONS_MAX replaces the one that has been idle for longest.

What is not a plain request for a page is refused and the connection closed: other methods, bodies,
targets with a host, framing that two readers could understand differently. h11 parses it.

With a token /metrics answers only those who send it. The pages about health need none: what asks
for them rarely has one, and they have no names of topics or clients.
"""

import zlib
from collections import deque
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Any

import h11

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.metrics.metrics_port import MetricsPort
from kctl.model import Endpoint
from kctl.runtime.network import Listener, TlsSession, Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import in_turns
from kctl.work import Work

CONNECTIONS_MAX = 50
HEAD_BYTES_MAX = 8 * 1024
HEAD_MS_MAX = 5_000
SEND_MS_MAX = 10_000
# Between two requests: longer than the usual intervals of scrapes.
IDLE_MS_MAX = 130_000
# Bytes compressed per turn of the loop: a few milliseconds.
COMPRESSED_PER_TURN = 64 * 1024
_GZIP_WINDOW = 31
_RECEIVE_BYTES = 4 * 1024

_TEXT = "text/plain; charset=utf-8"
# Pages that need no token.
_OPEN_PATHS = frozenset({b"/healthz", b"/livez", b"/readyz"})


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a page may depend on."""

    path: str
    # The parameters after `?`; the last of several with one name.
    parameters: Mapping[str, str]
    accept: str


@dataclass(frozen=True, slots=True)
class Page:
    """A response."""

    body: list[bytes]
    content_type: str = _TEXT
    status: int = 200


# Makes a page, in parts.
MakePage = Callable[[PageRequest], Work[Page]]


class MetricsServer:
    """Serves pages by path."""

    def __init__(
        self, runtime: Runtime, endpoint: Endpoint | MetricsPort, pages: Mapping[str, MakePage]
    ) -> None:
        self.runtime = runtime
        given = endpoint if isinstance(endpoint, MetricsPort) else MetricsPort(endpoint)
        self._tls = given.tls
        self._expected = f"Bearer {given.token}".encode() if given.token else None
        self.scheme = given.scheme
        # Has the bound port once it listens.
        self.endpoint = given.endpoint
        self._pages = pages
        self._listener: Listener | None = None
        # In order of their last request, the oldest first.
        self._connections: dict[_Connection, None] = {}
        self._waiting: deque[tuple[_Connection, PageRequest, bool]] = deque()
        self._is_making = False

    def start(self) -> None:
        """Listen; raise KctlError if that fails, UsageError if the files of TLS cannot be used."""
        endpoint = self.endpoint
        self._listener = self.runtime.network.listen(
            endpoint.host, endpoint.port, self._accept, tls=self._tls
        )
        self.endpoint = Endpoint(endpoint.host, self._listener.port)

    @property
    def url(self) -> str:
        """Return the URL of /metrics."""
        return f"{self.scheme}://{self.endpoint.host}:{self.endpoint.port}/metrics"

    @property
    def has_tls(self) -> bool:
        """Return whether it answers by https."""
        return self._tls is not None

    def reload_tls(
        self, say: Callable[[str], object], warn: Callable[[str], object] | None = None
    ) -> None:
        """Read the key and the certificates again, for new connections, and `say` so; those that
        are unusable change nothing but a line that `warn` gets, or `say`."""
        if self._tls is None or self._listener is None:
            return
        whose = "The key and the certificates of the metrics"
        try:
            self._listener.change_tls(self._tls)
        except UsageError as error:
            (warn or say)(f"{whose} are not reloaded: {error}")
        else:
            say(f"{whose} are reloaded")

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            self._listener.close()
        self._waiting.clear()
        for connection in list(self._connections):
            connection.abort()

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    def _accept(self, transport: Transport) -> "_Connection | None":
        if len(self._connections) >= CONNECTIONS_MAX:
            idle = next((it for it in self._connections if not it.is_answering), None)
            if idle is None:
                return None
            # Now: it learns that it is lost in a later turn.
            del self._connections[idle]
            idle.abort()
        connection = _Connection(self, transport)
        self._connections[connection] = None
        return connection

    # For connections

    def lets_in(self, target: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request has the token, or needs none."""
        if self._expected is None or target.partition(b"?")[0] in _OPEN_PATHS:
            return True
        return compare_digest(headers.get(b"authorization", b""), self._expected)

    def lost(self, connection: "_Connection") -> None:
        """Forget a connection that is closed."""
        self._connections.pop(connection, None)

    def asked(self, connection: "_Connection", request: PageRequest, *, wants_gzip: bool) -> None:
        """Make a page once those asked for before are made."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None
        self._waiting.append((connection, request, wants_gzip))
        if not self._is_making:
            self._make_next()

    def _make_next(self) -> None:
        self._is_making = True
        while self._waiting:
            connection, request, wants_gzip = self._waiting.popleft()
            if connection in self._connections:
                self._make(connection, request, wants_gzip=wants_gzip)
                return
        self._is_making = False

    def _make(self, connection: "_Connection", request: PageRequest, *, wants_gzip: bool) -> None:
        def done(page: Page) -> None:
            connection.answer(page, encoding="gzip" if wants_gzip else "")
            # Not in this stack, which may be that of many requests.
            self.runtime.scheduler.call_later(0, self._make_next)

        def failed(error: Exception) -> None:
            self.runtime.trace.warning(f"Cannot make {request.path} of the metrics: {error!r}")
            connection.answer(Page([b"internal error\n"], status=500))
            self.runtime.scheduler.call_later(0, self._make_next)

        try:
            in_turns(
                self.runtime.scheduler, self._page(request, wants_gzip=wants_gzip), done, failed
            )
        except Exception as error:  # noqa: BLE001 - a page that fails must not end the server
            failed(error)

    def _page(self, request: PageRequest, *, wants_gzip: bool) -> Work[Page]:
        make = self._pages.get(request.path)
        if make is None:
            known = " ".join(self._pages)
            return Page([f"not found; there are {known}\n".encode()], status=404)
        page = yield from make(request)
        if not wants_gzip:
            return page
        body = yield from _compressed(page.body)
        return Page(body, page.content_type, page.status)


def _compressed(body: list[bytes]) -> Work[list[bytes]]:
    """Return `body` as one gzip stream."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)
    pieces: list[bytes] = []
    held = 0
    for piece in body:
        pieces.append(compressor.compress(piece))
        held += len(piece)
        if held > COMPRESSED_PER_TURN:
            held = 0
            yield
    pieces.append(compressor.flush())
    return pieces


class _Connection:
    """One client, as the Receiver of its transport."""

    def __init__(self, server: MetricsServer, transport: Transport) -> None:
        self._server = server
        self._transport = transport
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._is_closed = False
        self._is_head_only = False
        # Whether a request waits for its response, or that for its reader.
        self.is_answering = False
        self._timer: Timer | None = None
        # Whether the timer limits a head that has begun: each byte does not start it again.
        self._is_head_timed = True
        self._set_timer(HEAD_MS_MAX)

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Take the first `count` bytes of the buffer."""
        try:
            self._http.receive_data(bytes(self._buffer[:count]))
            if self.is_answering:
                # A client that does not wait for its response: it is read when that is sent.
                self._transport.pause_reading()
            else:
                self._serve()
        except h11.RemoteProtocolError as error:
            self._is_head_only = False
            self._refuse(error.error_status_hint, "not a request")

    def when_secured(self, _session: TlsSession) -> None:
        """Do nothing: the token says who is let in."""

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._server.lost(self)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _serve(self) -> None:
        event = self._http.next_event()
        if event is h11.NEED_DATA:
            if not self._is_head_timed and self._http.trailing_data[0]:
                self._is_head_timed = True
                self._set_timer(HEAD_MS_MAX)
            return
        if not isinstance(event, h11.Request):
            self._transport.close()
            return
        headers = {bytes(name).lower(): bytes(value) for name, value in event.headers}
        method = bytes(event.method)
        self._is_head_only = method == b"HEAD"
        if method not in (b"GET", b"HEAD"):
            self._refuse(405, "only GET and HEAD", ("allow", "GET, HEAD"))
        elif b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
            self._refuse(400, "no body is expected")
        elif b"upgrade" in headers or not bytes(event.target).startswith(b"/"):
            self._refuse(400, "not a path")
        elif not self._server.lets_in(bytes(event.target), headers):
            self._refuse(401, "a bearer token is needed", ("www-authenticate", "Bearer"))
        else:
            self.is_answering = True
            self._set_timer(None)
            wants_gzip = b"gzip" in headers.get(b"accept-encoding", b"")
            self._server.asked(
                self, _page_request(bytes(event.target), headers), wants_gzip=wants_gzip
            )

    def answer(self, page: Page, *, encoding: str = "") -> None:
        """Send the response to the request in progress."""
        if self._is_closed:
            return
        headers = [("content-type", page.content_type), ("cache-control", "no-store")]
        if encoding:
            headers.append(("content-encoding", encoding))
        try:
            self._send(page, headers)
        except h11.LocalProtocolError:
            self._transport.abort()
            return
        if self._transport.unsent_bytes():
            self._set_timer(SEND_MS_MAX)
            self._transport.when_sent(self._sent)
        else:
            # Not in this stack: the client may have sent its next request.
            self._server.runtime.scheduler.call_soon(self._sent)

    def _send(self, page: Page, headers: list[tuple[str, str]]) -> None:
        http = self._http
        size = sum(map(len, page.body))
        all_headers = [*headers, ("content-length", str(size))]
        parts = [http.send(h11.Response(status_code=page.status, headers=all_headers))]
        if not self._is_head_only:
            # The bytes as they are: h11 only frames them.
            parts += [http.send(h11.Data(data=piece)) for piece in page.body if piece]
        parts.append(http.send(h11.EndOfMessage()))
        self._transport.send([part for part in parts if part])

    def _sent(self) -> None:
        if self._is_closed:
            return
        self.is_answering = False
        http = self._http
        try:
            # The end of the request, which has no body.
            while http.their_state is h11.SEND_BODY:
                if http.next_event() is h11.NEED_DATA:
                    break
            if http.our_state is h11.MUST_CLOSE or http.their_state is not h11.DONE:
                self._transport.close()
                return
            http.start_next_cycle()
            self._is_head_timed = False
            self._set_timer(IDLE_MS_MAX)
            self._transport.resume_reading()
            self._serve()
        except h11.ProtocolError:
            self._transport.close()

    def _refuse(self, status: int, why: str, header: tuple[str, str] | None = None) -> None:
        """Answer an unwanted request, and close."""
        headers: list[tuple[str, str]] = [
            ("content-type", _TEXT), ("connection", "close"), ("content-length", str(len(why) + 1)),
        ]  # fmt: skip
        if header is not None:
            headers.append(header)
        try:
            parts: list[Any] = [self._http.send(h11.Response(status_code=status, headers=headers))]
            if not self._is_head_only:
                parts.append(self._http.send(h11.Data(data=f"{why}\n".encode())))
            parts.append(self._http.send(h11.EndOfMessage()))
            self._transport.send([part for part in parts if part])
        except h11.LocalProtocolError:
            # A response has begun.
            pass
        self._set_timer(SEND_MS_MAX)
        self._transport.close()

    def _set_timer(self, delay_ms: int | None) -> None:
        """Close the connection in `delay_ms`, unless the timer is set again; None: never."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_ms is not None and not self._is_closed:
            self._timer = self._server.runtime.scheduler.call_later(delay_ms, self._transport.abort)


def _page_request(target: bytes, headers: Mapping[bytes, bytes]) -> PageRequest:
    path, _, query = target.decode("latin-1").partition("?")
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    parameters = {name: value for name, _, value in pairs}
    return PageRequest(path, parameters, headers.get(b"accept", b"").decode("latin-1"))
