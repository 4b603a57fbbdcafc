"""An HTTP proxy in front of a server, which answers some requests with an error of S3's.

A fault is an error instead of the request (throttling), or one after it was served (the client
cannot know that it was). Bodies may have a length, be chunked, or be announced with `Expect`.
"""

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random  # noqa: TID251 - seeded
from urllib.parse import urlsplit

_TIMEOUT_S = 120
# Headers of one connection, which are not passed on.
_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}
_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
    "<Message>A fault of the test</Message><RequestId>1</RequestId></Error>"
)
SLOW_DOWN = (503, "SlowDown")
INTERNAL = (500, "InternalError")

Fault = tuple[int, str]


def _never(_method: str, _path: str) -> bool:
    return False


class FaultyProxy:
    """The faults to inject, and how many were."""

    def __init__(self, target: str, seed: int) -> None:
        self.target = urlsplit(target)
        self.url = ""
        self.faults: Counter[Fault] = Counter()
        # Shares of requests that are refused, and that are served but answered with an error.
        self.refused_share = self.lost_share = 0.0
        # Requests that are always refused: a function of the method and the path with its query.
        self.refuses: Callable[[str, str], bool] = _never
        # The first of these is served and answered with an error.
        self.loses: Callable[[str, str], bool] = _never
        self._rng = Random(seed)
        self._lock = threading.Lock()

    def choose(self, method: str, path: str) -> tuple[Fault | None, Fault | None]:
        """Return the fault instead of a request, and the one after it."""
        with self._lock:
            before = after = None
            if self.refuses(method, path) or self._rng.random() < self.refused_share:
                before = self._rng.choice((SLOW_DOWN, INTERNAL))
            elif self.loses(method, path):
                self.loses, after = _never, INTERNAL
            elif self._rng.random() < self.lost_share:
                after = INTERNAL
            if fault := before or after:
                self.faults[fault] += 1
            return before, after

    def clear(self) -> None:
        """Inject no further faults."""
        self.refused_share = self.lost_share = 0.0
        self.refuses = self.loses = _never


@contextmanager
def faulty_proxy(target: str, seed: int = 1) -> Iterator[FaultyProxy]:
    """Yield a proxy of the server at the URL `target`."""
    proxy = FaultyProxy(target, seed)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy

    def _pass(self) -> None:
        body = self._body()
        before, after = self.proxy.choose(self.command, self.path)
        if before is not None:
            self._fail(before)
            return
        status, headers, data = self._served(body)
        if after is not None:
            self._fail(after)
            return
        self.send_response(status)
        has_length = False
        for name, value in headers:
            if name.lower() == "content-length":
                has_length = self.command == "HEAD"
                if not has_length:
                    continue
            elif name.lower() in _HOP or name.lower() in ("date", "server"):
                continue
            self.send_header(name, value)
        if not has_length and status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

    def _served(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        target = self.proxy.target
        connection = http.client.HTTPConnection(
            target.hostname or "", target.port, timeout=_TIMEOUT_S
        )
        try:
            connection.putrequest(self.command, self.path, skip_host=True,
                                  skip_accept_encoding=True)  # fmt: skip
            for name, value in self.headers.items():
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return bytes(found)

    def _fail(self, fault: Fault) -> None:
        data = _ERROR.format(code=fault[1]).encode()
        self.send_response(fault[0])
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_words: object) -> None:
        """Say nothing."""
