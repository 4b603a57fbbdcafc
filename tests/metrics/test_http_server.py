"""MetricsServer: pages over HTTP, and clients that are slow, many, or want something else."""

import contextlib
import gzip
import socket

import pytest

from kctl.errors import UnreachableError
from kctl.metrics import http_server
from kctl.metrics.http_server import MetricsServer, Page
from kctl.metrics.metrics_port import MetricsPort
from kctl.model import Endpoint
from kctl.runtime.polling import poll_until
from kctl.tls.settings import KeyStoreSettings, TlsSettings
from tests.support.real_loop import PATIENCE_MS, RealLoop

BODY = b"0123456789abcdef\n" * 10_000


@pytest.fixture
def loop():
    loop = RealLoop()
    yield loop
    loop.close()


@pytest.fixture
def server(loop):
    def page(request):
        yield
        return Page([f"{request.path} {sorted(request.parameters.items())}\n".encode()])

    def large(_request):
        yield
        return Page([BODY[:70_000], BODY[70_000:]])

    def broken(_request):
        yield
        raise ValueError("no page")

    server = MetricsServer(
        loop.runtime,
        Endpoint("127.0.0.1", 0),
        {"/metrics": page, "/large": large, "/broken": broken},
    )
    server.start()
    yield server
    server.close()


def poll(loop, condition):
    """Run the loop until `condition`."""

    async def until():
        assert await poll_until(loop.runtime, condition, PATIENCE_MS, 1)

    loop.run(until())


class Client:
    """A socket, driven beside the loop."""

    def __init__(self, loop, server):
        self.loop = loop
        self.socket = socket.create_connection((server.endpoint.host, server.endpoint.port))
        self.socket.settimeout(0)
        self.received = b""
        self.is_closed = False

    def send(self, data):
        self.socket.send(data)
        return self

    def receive(self):
        """Take what has arrived."""
        try:
            while data := self.socket.recv(65_536):
                self.received += data
            self.is_closed = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self.is_closed = True

    def until(self, condition):
        def is_done():
            self.receive()
            return condition()

        poll(self.loop, is_done)
        return self.received

    def ask(self, target="/metrics", method="GET", headers=""):
        self.received = b""
        self.send(f"{method} {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode())
        self.until(lambda: self.is_closed or self.is_whole(method))
        return self.received

    def is_whole(self, method):
        head, end, body = self.received.partition(b"\r\n\r\n")
        size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        return bool(end) and (method == "HEAD" or len(body) == size)


@pytest.fixture
def client(loop, server):
    clients = []

    def connect():
        clients.append(Client(loop, server))
        return clients[-1]

    yield connect
    for each in clients:
        each.socket.close()


def test_one_connection_gets_page_after_page(client):
    peer = client()
    assert peer.ask("/metrics?partitions=1&x=2").endswith(
        b"/metrics [('partitions', '1'), ('x', '2')]\n"
    )
    assert peer.ask("/metrics").endswith(b"\r\n\r\n/metrics []\n")
    assert peer.ask("/other").startswith(b"HTTP/1.1 404")
    head = peer.ask("/large", "HEAD")
    assert head.endswith(b"\r\n\r\n")
    assert b"content-length: 170000\r\n" in head
    assert peer.ask("/large").endswith(BODY)
    assert not peer.is_closed


def test_requests_that_do_not_wait_are_answered_in_order(client):
    peer = client().send(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(5)))
    peer.until(lambda: peer.received.count(b"HTTP/1.1 404") == 5)


def test_a_page_is_compressed_if_that_is_asked_for(client):
    answer = client().ask("/large", headers="Accept-Encoding: deflate, gzip\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-encoding: gzip" in head
    assert gzip.decompress(body) == BODY
    assert len(body) < len(BODY) // 10


def test_a_page_that_fails_is_an_error_and_the_next_one_is_answered(loop, client):
    peer = client()
    assert peer.ask("/broken").startswith(b"HTTP/1.1 500")
    assert peer.ask().startswith(b"HTTP/1.1 200")
    assert "no page" in loop.trace.warnings[0]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET http://other/metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (
            b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
            400,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: c\r\n\r\n",
            501,
        ),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", 431),
        (b"\x00\x00\x00\x10\x00\x12\x00\x03 not http at all\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_for_a_page_is_refused_and_closed(client, request_bytes, status):
    peer = client()
    with contextlib.suppress(BlockingIOError, ConnectionError):
        peer.send(request_bytes)
    peer.until(lambda: peer.is_closed)
    # A client that sends much more may find its connection reset instead.
    assert peer.received.startswith(b"HTTP/1.1 %d" % status) or len(request_bytes) > 50_000
    # Other clients are not concerned.
    assert client().ask().startswith(b"HTTP/1.1 200")


def test_a_head_that_does_not_end_is_not_waited_for(loop, client, monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_MS_MAX", 50)
    peer = client().send(b"GET /metrics HTTP/1.1\r\n")

    def drip():
        if not peer.is_closed:
            try:
                peer.socket.send(b"X: y\r\n")
            except OSError:
                return
            loop.scheduler.call_later(10, drip)

    drip()
    peer.until(lambda: peer.is_closed)
    assert peer.received == b""
    # The limit holds for the second request of a connection, too.
    other = client()
    other.ask()
    other.send(b"GET /metr")
    other.until(lambda: other.is_closed)


def test_a_client_that_does_not_read_is_closed(loop, server, client, monkeypatch):
    monkeypatch.setattr(http_server, "SEND_MS_MAX", 50)
    peer = client()
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    for _ in range(100):
        peer.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    poll(loop, lambda: server.connection_count == 1)
    poll(loop, lambda: server.connection_count == 0)
    assert client().ask().startswith(b"HTTP/1.1 200")


def test_more_clients_than_there_may_be_replace_the_idle_ones(loop, server, client):
    clients = [client() for _ in range(2 * http_server.CONNECTIONS_MAX)]
    poll(loop, lambda: sum(not it.receive() and it.is_closed for it in clients) >= 50)
    assert client().ask().startswith(b"HTTP/1.1 200")
    assert server.connection_count <= http_server.CONNECTIONS_MAX
    assert len(clients) > server.connection_count


def test_metrics_need_the_token_and_the_pages_about_health_do_not(loop):
    def page(request):
        yield
        return Page([request.path.encode()])

    port = MetricsPort(Endpoint("127.0.0.1", 0), token="s3cret")
    assert "s3cret" not in repr(port)
    server = MetricsServer(loop.runtime, port, {"/metrics": page, "/healthz": page})
    server.start()
    try:

        def ask(target, header="", method="GET"):
            peer = Client(loop, server)
            with peer.socket:
                return peer.ask(target, method, headers=header)

        for header in ("", "Authorization: Bearer s3cre\r\n", "Authorization: Basic s3cret\r\n"):
            for target in ("/metrics", "/metrics?/healthz", "/healthz/../metrics", "//healthz"):
                assert ask(target, header).startswith(b"HTTP/1.1 401 "), (target, header)
        assert ask("/metrics", "Authorization: Bearer s3cret\r\n").endswith(b"/metrics")
        assert ask("/healthz").endswith(b"/healthz")
        assert ask("/metrics", method="HEAD").startswith(b"HTTP/1.1 401 ")
    finally:
        server.close()


def test_metrics_are_served_by_tls(loop, tmp_path):
    certificates = pytest.importorskip("tests.support.certificates").TestCertificates(tmp_path)

    def page(_request):
        yield
        return Page([b"up 1\n"])

    tls = TlsSettings(key_store=KeyStoreSettings(location=certificates.broker_file))
    server = MetricsServer(
        loop.runtime, MetricsPort(Endpoint("127.0.0.1", 0), tls, "t0"), {"/metrics": page}
    )
    server.start()
    try:
        url = f"{server.scheme}://127.0.0.1:{server.endpoint.port}/metrics"
        web = loop.runtime.web

        async def read(*request):
            return await web.metrics(url, *request)

        assert loop.run(read("Bearer t0", certificates.ca_file)) == b"up 1\n"
        with pytest.raises(UnreachableError, match="401"):
            loop.run(read("Bearer wrong", certificates.ca_file))
        with pytest.raises(UnreachableError, match="certificate"):
            loop.run(read("Bearer t0"))
    finally:
        server.close()
