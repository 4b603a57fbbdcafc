"""What a TLS connection takes at once: records without plaintext, such as those of new keys."""

import contextlib
import hashlib
import hmac
import socket
import ssl
import struct

import pytest

from kctl.runtime.real.tls_records import RECORDS_PER_TURN, ReceivedRecords
from kctl.runtime.real.tls_transport import TlsTransport
from tests.runtime.real.test_tls_transport import Listening, in_thread
from tests.support.certificates import TestCertificates
from tests.support.real_loop import real_loop

aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")

HASHES = {"TLS_AES_256_GCM_SHA384": ("sha384", 32), "TLS_AES_128_GCM_SHA256": ("sha256", 16)}
APPLICATION_DATA, HANDSHAKE = b"\x17", b"\x16"
# "Here are new keys; send me yours."
KEY_UPDATE = b"\x18\0\0\x01\x01" + HANDSHAKE


class ForgingClient:
    """A client of TLS 1.3 that makes its records itself, after the handshake."""

    def __init__(self, port, certificates, directory):
        context = ssl.create_default_context(cafile=certificates.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(directory / "keys")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(120)
        self.socket.connect(("127.0.0.1", port))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while tls.version() is None or not outgoing.pending:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(outgoing.read())
                incoming.write(self.socket.recv(65_536))
        # The end of the handshake, which the client sends with its first records.
        self.finished = outgoing.read()
        lines = (directory / "keys").read_text().splitlines()
        found = [it.split()[2] for it in lines if it.startswith("CLIENT_TRAFFIC_SECRET_0")]
        self.secret = bytes.fromhex(found[-1])
        self.hash, self.key_size = HASHES[tls.cipher()[0]]

    def new_keys(self, count):
        """`count` records, each of which announces the keys of the next one."""
        return b"".join(self._new_key() for _ in range(count))

    def _new_key(self):
        sealed = self.record(KEY_UPDATE)
        self.secret = self._expand(b"traffic upd", hashlib.new(self.hash).digest_size)
        return sealed

    def record(self, inner):
        """The first record that the current key protects."""
        header = APPLICATION_DATA + struct.pack(">HH", 0x0303, len(inner) + 16)
        key, nonce = self._expand(b"key", self.key_size), self._expand(b"iv", 12)
        return header + aead.AESGCM(key).encrypt(nonce, inner, header)

    def _expand(self, label, size):
        label = b"tls13 " + label
        info = struct.pack(">HB", size, len(label)) + label + b"\0\x01"
        return hmac.new(self.secret, info, self.hash).digest()[:size]


@pytest.fixture
def loop():
    with real_loop() as it:
        yield it


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return TestCertificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(loop, certificates):
    server = Listening(loop, certificates.broker_settings())
    yield server
    server.close()


@pytest.fixture
def client(loop, server, certificates, tmp_path):
    client = in_thread(loop, lambda: ForgingClient(server.listener.port, certificates, tmp_path))
    with client.socket:
        yield client


@pytest.mark.parametrize("when", ["with the handshake", "after it"])
def test_new_keys_are_taken_over_many_turns(loop, server, client, monkeypatch, when):
    (ours,) = server.connections
    if when == "after it":
        client.socket.sendall(client.finished)
        client.finished = b""
        loop.until(lambda: ours.sessions)
    pump, turns = TlsTransport._pump, []

    def counted_pump(transport):
        turns.append(transport)
        pump(transport)

    monkeypatch.setattr(TlsTransport, "_pump", counted_pump)
    data = client.new_keys(10 * RECORDS_PER_TURN) + client.record(b"x" + APPLICATION_DATA)
    client.socket.sendall(client.finished + data)
    loop.until(lambda: ours.data)
    assert ours.data == b"x"
    assert len(turns) >= 10


def test_a_peer_that_does_not_read_the_answers_to_new_keys_loses_its_connection(
    loop, server, client, monkeypatch
):
    # The socket's buffer takes some hundreds of KiB of answers before any is unsent.
    monkeypatch.setattr("kctl.runtime.real.tls_transport.ANSWER_BYTES_MAX", 1024)
    (ours,) = server.connections
    data = client.finished + client.new_keys(20_000)

    def send():
        with contextlib.suppress(ConnectionError):
            client.socket.sendall(data)

    in_thread(loop, send)
    loop.until(lambda: ours.lost)
    assert "does not read" in str(ours.lost[0])
    assert ours.transport.unsent_bytes() == 0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_records_are_counted_however_their_bytes_arrive(monkeypatch, size):
    monkeypatch.setattr("kctl.runtime.real.tls_records.RECORDS_PER_TURN", 3)
    lengths = [0, 1, 19, 300, 0, 0, 0, 0, 5, 1_000, 2]
    data = b"".join(b"\x17\x03\x03" + struct.pack(">H", it) + bytes(it) for it in lengths)
    records = ReceivedRecords()
    given = []
    for start in range(0, len(data), size):
        records.feed(memoryview(bytearray(data[start : start + size])))
        given.append(records.bio.read())
        while records.feed_more():
            given.append(records.bio.read())
        assert not records.unfed
    assert b"".join(given) == data
    # A header that is split between two reads is not counted.
    assert all(it.count(b"\x17\x03\x03") <= 3 for it in given)
