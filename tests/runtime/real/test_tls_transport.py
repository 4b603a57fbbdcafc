"""TLS connections of RealNetwork, with Python's blocking ssl as the other side."""

import contextlib
import os
import socket
import ssl
import struct
import threading
from datetime import UTC, datetime, timedelta

import pytest

from kctl.errors import AuthenticationError, StorageError, UnreachableError
from kctl.runtime.disk import FileSlice
from kctl.runtime.network import TlsError
from kctl.runtime.real.tls_stack import expiry_warning
from kctl.runtime.real.tls_states import NEXT_STATES, TlsState
from kctl.tls.settings import TlsSettings
from tests.runtime.test_network import UNREADABLE_PARTS
from tests.support.certificates import TestCertificates
from tests.support.real_loop import real_loop


@pytest.fixture
def loop():
    with real_loop() as it:
        yield it


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return TestCertificates(tmp_path_factory.mktemp("tls"))


class Echo:
    """A Receiver that keeps what it receives."""

    def __init__(self, transport):
        self.transport = transport
        self.buffer = memoryview(bytearray(100_000))
        self.data = bytearray()
        self.sessions = []
        self.lost = []

    def get_buffer(self):
        return self.buffer

    def buffer_updated(self, count):
        self.data += self.buffer[:count]

    def when_secured(self, session):
        assert not self.data
        self.sessions.append(session)

    def connection_lost(self, error):
        self.lost.append(error)


class Listening:
    def __init__(self, loop, settings, receiver=Echo):
        self.connections = []
        self.sockets = []
        self.loop = loop

        def accept(transport):
            self.connections.append(receiver(transport))
            return self.connections[-1]

        self.listener = loop.runtime.network.listen(
            "127.0.0.1", 0, accept, tls=TlsSettings.of(settings)
        )

    def connect(self, certificates, **context_options):
        """(a blocking TLS socket, our Receiver)."""
        context = ssl.create_default_context(cafile=certificates.ca_file)
        for name, value in context_options.items():
            setattr(context, name, value)
        sock = in_thread(self.loop, lambda: self.secured(context))
        # The client's handshake ends before ours.
        self.loop.until(lambda: self.connections[-1].sessions)
        return sock, self.connections[-1]

    def secured(self, context):
        secured = context.wrap_socket(self.plain(), server_hostname="localhost")
        self.sockets.append(secured)
        return secured

    def plain(self):
        self.sockets.append(socket.create_connection(("127.0.0.1", self.listener.port)))
        self.sockets[-1].settimeout(120)
        return self.sockets[-1]

    def close(self):
        self.listener.close()
        for sock in self.sockets:
            sock.close()


def in_thread(loop, work):
    """The result of `work`, which blocks, while the loop runs."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except Exception as error:  # noqa: BLE001 - raised below
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    loop.until(lambda: outcome)
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


@pytest.fixture
def listen(loop):
    servers = []

    def listen(settings, receiver=Echo):
        servers.append(Listening(loop, settings, receiver))
        return servers[-1]

    yield listen
    for it in servers:
        it.close()


@pytest.fixture
def server(listen, certificates):
    return listen(certificates.broker_settings())


def test_bytes_of_any_size_arrive_in_both_directions(loop, server, certificates, tmp_path):
    sock, ours = server.connect(certificates)
    sent = bytes(range(256)) * 8_000
    in_thread(loop, lambda: sock.sendall(sent))
    loop.until(lambda: len(ours.data) == len(sent))
    assert ours.data == sent
    path = tmp_path / "segment"
    path.write_bytes(sent)
    file = loop.runtime.disk.open(str(path))
    parts = [
        b"head",
        bytearray(sent),
        FileSlice(file, 5, 300_000),
        b"",
        memoryview(sent)[:7],
        b"end",
    ]
    expected = b"head" + sent + sent[5:300_005] + sent[:7] + b"end"
    ours.transport.send(parts)
    assert ours.transport.unsent_bytes() > 0
    done = []
    ours.transport.when_sent(lambda: done.append(True))

    def read():
        received = b""
        while len(received) < len(expected):
            received += sock.recv(1 << 20)
        return received

    assert in_thread(loop, read) == expected
    loop.until(lambda: done)
    assert ours.transport.unsent_bytes() == 0
    file.close()


def test_the_session_is_known_before_the_first_byte(loop, server, certificates):
    sock, ours = server.connect(certificates)
    loop.until(lambda: ours.sessions)
    (session,) = ours.sessions
    assert session.version == "TLSv1.3"
    assert session.certificate is None
    assert "AES" in session.cipher or "CHACHA" in session.cipher
    sock.close()


def test_a_paused_connection_delivers_nothing_until_it_reads_again(loop, server, certificates):
    sock, ours = server.connect(certificates)
    ours.transport.pause_reading()
    in_thread(loop, lambda: sock.sendall(b"x" * 50_000))
    loop.turns(50)
    assert not ours.data
    ours.transport.resume_reading()
    loop.until(lambda: len(ours.data) == 50_000)


def test_bytes_before_the_end_of_the_stream_are_delivered_although_reading_is_paused(
    loop, server, certificates
):
    sock, ours = server.connect(certificates)
    ours.transport.pause_reading()
    in_thread(loop, lambda: sock.sendall(b"x" * 1000))
    in_thread(loop, sock.close)
    loop.turns(50)
    ours.transport.resume_reading()
    loop.until(lambda: ours.lost)
    assert len(ours.data) == 1000
    assert ours.lost == [None]


def test_a_close_sends_what_is_queued_and_a_close_notify(loop, server, certificates):
    sock, ours = server.connect(certificates)
    ours.transport.send([b"y" * 500_000])
    ours.transport.close()

    def read_to_the_end():
        received = b""
        while data := sock.recv(1 << 20):
            received += data
        return received

    sock.suppress_ragged_eofs = False
    assert len(in_thread(loop, read_to_the_end)) == 500_000
    loop.until(lambda: ours.lost)
    assert ours.lost == [None]


def test_a_half_closed_peer_still_receives_what_is_sent(loop, listen, certificates):
    class Polite(Echo):
        def eof_received(self):
            self.transport.send([b"goodbye"])
            self.transport.close()
            return True

    server = listen(certificates.broker_settings(), Polite)
    sock, _ = server.connect(certificates)
    sock.sendall(b"question")
    # Only close_notify, as the end of the peer's bytes; the socket stays open.
    sock.settimeout(0)
    with pytest.raises(ssl.SSLWantReadError):
        sock._sslobj.shutdown()
    sock.settimeout(120)
    assert in_thread(loop, lambda: sock.recv(100)) == b"goodbye"


def test_bytes_after_a_close_notify_are_not_read(loop, listen, certificates):
    class Busy(Echo):
        def eof_received(self):
            return True

    server = listen(certificates.broker_settings(), Busy)
    sock, ours = server.connect(certificates)
    sock.settimeout(0)
    sock.sendall(b"question")
    with pytest.raises(ssl.SSLWantReadError):
        sock._sslobj.shutdown()
    loop.until(lambda: ours.transport._has_eof)
    assert ours.data == b"question"
    # As much as the buffers of both sockets hold, if nothing is read; without an end otherwise.
    sent = 0
    with socket.socket(fileno=os.dup(sock.fileno())) as raw, contextlib.suppress(BlockingIOError):
        while sent < 64 << 20:
            sent += raw.send(b"\x17\x03\x03\x40\x00" + bytes(16_384))
            loop.turns(2)
    assert sent < 64 << 20
    ours.transport.send([b"answer"])
    sock.settimeout(120)
    assert in_thread(loop, lambda: sock.recv(100)) == b"answer"
    assert not ours.lost
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    loop.until(lambda: ours.lost)


@pytest.mark.parametrize("part", UNREADABLE_PARTS, ids=["slice", "streamed"])
def test_a_part_that_cannot_be_read_closes_the_connection(loop, server, certificates, part):
    sock, ours = server.connect(certificates)
    ours.transport.send([b"header", part])
    # What was encrypted with it is not sent.
    assert in_thread(loop, lambda: sock.recv(100)) == b""
    loop.until(lambda: ours.lost)
    assert isinstance(ours.lost[0], StorageError)
    assert ours.transport.unsent_bytes() == 0


def test_a_peer_that_speaks_no_tls_gets_three_bytes_of_an_alert(loop, server):
    sock = server.plain()
    sock.sendall(b"\0\0\0\x10\0\x12\0\0")
    received = in_thread(loop, lambda: (sock.recv(100), sock.recv(100)))
    assert received == (b"\x15\x03\x03", b"")
    loop.until(lambda: server.connections and server.connections[-1].lost)
    (error,) = server.connections[-1].lost
    assert isinstance(error, TlsError)
    assert "does not speak TLS" in str(error)


def test_what_is_sent_during_the_handshake_is_limited(loop, server):
    # T9: a handshake record that never ends.
    sock = server.plain()
    sock.settimeout(120)
    record = b"\x16\x03\x03\x40\x00" + b"\x01\x00\xff\xff" + b"x" * (16_384 - 4)

    def send():
        try:
            for _ in range(100):
                sock.sendall(record)
        except OSError:
            pass

    in_thread(loop, send)
    loop.until(lambda: server.connections and server.connections[-1].lost)
    assert isinstance(server.connections[-1].lost[0], TlsError)


def test_silent_handshakes_beyond_the_bound_end_the_oldest(loop, server, monkeypatch):
    # T10
    monkeypatch.setattr("kctl.runtime.real.handshakes.HANDSHAKES_MAX", 3)
    for _ in range(5):
        server.plain()
    loop.until(lambda: len([it for it in server.connections if it.lost]) == 2)
    assert [bool(it.lost) for it in server.connections] == [True, True, False, False, False]


def test_a_handshake_has_a_time_limit(loop, listen, certificates, monkeypatch):
    monkeypatch.setattr("kctl.runtime.real.tls_transport.HANDSHAKE_MS_MAX", 1)
    server = listen(certificates.broker_settings())
    server.plain()
    loop.until(lambda: server.connections and server.connections[0].lost)
    assert "no TLS handshake" in str(server.connections[0].lost[0])


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("auth", ["none", "requested", "required"])
@pytest.mark.parametrize("sent", ["none", "good", "foreign"])
def test_client_certificates(loop, listen, certificates, tmp_path, auth, sent, version):
    # T14
    settings = certificates.broker_settings() | {
        "ssl.client.auth": auth,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca_file,
    }
    server = listen(settings)
    context = ssl.create_default_context(cafile=certificates.ca_file)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    if sent == "good":
        context.load_cert_chain(certificates.client_file)
    elif sent == "foreign":
        context.load_cert_chain(TestCertificates(tmp_path).client_file)

    def ask():
        with server.secured(context) as sock:
            sock.sendall(b"x")
            loop.scheduler.call_soon_threadsafe(answer)
            return sock.recv(1)

    def answer():
        server.connections[-1].transport.send([b"y"])

    is_refused = (auth != "none" and sent == "foreign") or (auth == "required" and sent == "none")
    if is_refused:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            in_thread(loop, ask)
        loop.until(lambda: server.connections and server.connections[-1].lost)
        assert isinstance(server.connections[-1].lost[0], TlsError)
        assert not server.connections[-1].sessions
    else:
        assert in_thread(loop, ask) == b"y"
        certificate = server.connections[-1].sessions[0].certificate
        assert (certificate is not None) == (auth != "none" and sent == "good")


# As a client


class Accepting:
    """A listener whose only connection is handled by `serve`, on a thread."""

    def __init__(self, serve):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(120)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run, args=(serve,), daemon=True)
        self.thread.start()

    def run(self, serve):
        try:
            raw, _ = self.listener.accept()
        except OSError:
            return
        raw.settimeout(120)
        with contextlib.suppress(OSError), raw:
            serve(raw)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


@pytest.fixture
def accepting(loop):
    servers = []

    def accepting(serve):
        servers.append(Accepting(serve))
        return servers[-1]

    yield accepting
    loop.close()
    for it in servers:
        it.close()


@pytest.fixture
def answering(accepting, certificates):
    """A blocking TLS server that answers one connection with what it received."""

    def answering(file=None, **options):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file or certificates.broker_file)
        for name, value in options.items():
            setattr(context, name, value)
        if context.verify_mode is not ssl.CERT_NONE:
            context.load_verify_locations(certificates.ca_file)

        def serve(raw):
            with context.wrap_socket(raw, server_side=True) as sock:
                while data := sock.recv(65_536):
                    sock.sendall(data)

        return accepting(serve)

    return answering


def connect_to(loop, host, port, settings):
    """(transport, our Receiver)."""
    ours = []

    def attach(transport):
        ours.append(Echo(transport))
        return ours[-1]

    network = loop.runtime.network
    future = network.connect(host, port, attach, 20_000, tls=TlsSettings.of(settings))
    return loop.wait(future), ours[-1]


def test_a_client_connects_and_learns_the_brokers_certificate(loop, answering, certificates):
    server = answering()
    transport, ours = connect_to(loop, "localhost", server.port, certificates.client_settings())
    assert ours.sessions[0].certificate is not None
    transport.send([b"tea" * 100_000])
    loop.until(lambda: len(ours.data) == 300_000)
    transport.close()
    loop.until(lambda: ours.lost)


@pytest.mark.parametrize(
    ("names", "host", "is_accepted"),
    [
        (["localhost"], "localhost", True),
        (["localhost"], "127.0.0.1", False),
        (["127.0.0.1"], "127.0.0.1", True),
        (["127.0.0.1"], "localhost", False),
        (["*.example.com"], "localhost", False),
        (["broker.example.com", "localhost"], "localhost", True),
    ],
)
def test_the_brokers_name_is_verified(loop, answering, certificates, names, host, is_accepted):
    # T13
    server = answering(certificates.issue("named", *names))
    if is_accepted:
        transport, _ = connect_to(loop, host, server.port, certificates.client_settings())
        transport.close()
        return
    with pytest.raises(AuthenticationError, match="is for another") as raised:
        connect_to(loop, host, server.port, certificates.client_settings())
    assert "endpoint.identification" in raised.value.hint


def test_any_name_is_accepted_without_an_endpoint_identification_algorithm(
    loop, answering, certificates
):
    server = answering(certificates.issue("other", "other.example.com"))
    settings = certificates.client_settings() | {"ssl.endpoint.identification.algorithm": ""}
    transport, _ = connect_to(loop, "localhost", server.port, settings)
    transport.close()


def test_a_foreign_ca_is_rejected_with_its_cause(loop, answering, certificates, tmp_path):
    server = answering()
    settings = TestCertificates(tmp_path).client_settings()
    with pytest.raises(AuthenticationError, match="CA that is not trusted") as raised:
        connect_to(loop, "localhost", server.port, settings)
    assert "ssl.truststore.location" in raised.value.hint


def test_the_log_distinguishes_an_expired_certificate_from_one_that_expires_soon():
    now = datetime(2026, 11, 28, tzinfo=UTC)
    ends = {days: expiry_warning("CN=a", now + timedelta(days), now) for days in (-2, 2, 60)}
    assert ends == {
        -2: "The certificate of CN=a has expired at 2026-11-26 00:00: renew it",
        2: "The certificate of CN=a expires at 2026-11-30 00:00",
        60: None,
    }


def test_an_expired_certificate_is_rejected_with_its_cause(loop, answering, certificates):
    past = datetime(2020, 1, 1, tzinfo=UTC)
    server = answering(certificates.issue("old", "localhost", not_after=past))
    with pytest.raises(AuthenticationError, match="has expired"):
        connect_to(loop, "localhost", server.port, certificates.client_settings())


def test_a_broker_that_wants_a_certificate_says_so(loop, answering, certificates):
    server = answering(
        verify_mode=ssl.CERT_REQUIRED,
        maximum_version=ssl.TLSVersion.TLSv1_2,
    )
    with pytest.raises((AuthenticationError, UnreachableError)):
        connect_to(loop, "localhost", server.port, certificates.client_settings())
    server = answering(verify_mode=ssl.CERT_REQUIRED)
    _, ours = connect_to(loop, "localhost", server.port, certificates.client_settings())
    loop.until(lambda: ours.lost)
    assert "requires a certificate" in str(ours.lost[0])


def test_a_broker_without_tls_is_recognized(loop, accepting, certificates):
    def answer(sock):
        sock.recv(65_536)
        sock.sendall(b"\0\0\0\x0a\0\0\0\0\0\0")
        sock.recv(65_536)

    port = accepting(answer).port
    with pytest.raises(UnreachableError, match="does not speak TLS") as raised:
        connect_to(loop, "127.0.0.1", port, certificates.client_settings())
    assert "PLAINTEXT" in raised.value.hint


def test_a_broker_that_closes_during_the_handshake_may_not_speak_tls(loop, accepting, certificates):
    port = accepting(socket.socket.close).port
    with pytest.raises(UnreachableError) as raised:
        connect_to(loop, "127.0.0.1", port, certificates.client_settings())
    assert "does the listener speak TLS" in raised.value.hint


def test_illegal_moves_are_refused():
    assert NEXT_STATES[TlsState.CLOSED] == frozenset()
    assert TlsState.OPEN not in NEXT_STATES[TlsState.CLOSING]
