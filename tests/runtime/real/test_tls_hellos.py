"""T12: what a listener with TLS refuses: old versions, weak suites, compression, renegotiation."""

import shutil
import socket
import struct
import subprocess

import pytest

from kctl.tls.settings import TlsSettings
from tests.runtime.real.test_tls_transport import Echo, in_thread
from tests.support.certificates import TestCertificates
from tests.support.real_loop import real_loop

TIMEOUT_S = 120
ALERT, HANDSHAKE, SERVER_HELLO = 21, 22, 2
TLS_1_2 = 0x0303
# TLS_ECDHE_{ECDSA,RSA}_WITH_AES_128_GCM_SHA256.
GOOD = (0xC02B, 0xC02F)
WEAK_SUITES = {
    "RSA_NULL_MD5": 0x0001,
    "RSA_NULL_SHA": 0x0002,
    "RSA_NULL_SHA256": 0x003B,
    "ECDHE_ECDSA_NULL_SHA": 0xC006,
    "ECDHE_RSA_NULL_SHA": 0xC010,
    "ECDH_anon_NULL_SHA": 0xC015,
    "DH_anon_RC4_128_MD5": 0x0018,
    "DH_anon_AES_128_CBC_SHA": 0x0034,
    "DH_anon_AES_128_GCM_SHA256": 0x00A6,
    "ECDH_anon_AES_128_CBC_SHA": 0xC018,
    "RSA_EXPORT_RC4_40_MD5": 0x0003,
    "RSA_EXPORT_RC2_CBC_40_MD5": 0x0006,
    "RSA_EXPORT_DES40_CBC_SHA": 0x0008,
    "DHE_RSA_EXPORT_DES40_CBC_SHA": 0x0014,
    "DH_anon_EXPORT_RC4_40_MD5": 0x0017,
    "RSA_RC4_128_MD5": 0x0004,
    "RSA_RC4_128_SHA": 0x0005,
    "ECDHE_ECDSA_RC4_128_SHA": 0xC007,
    "ECDHE_RSA_RC4_128_SHA": 0xC011,
    "RSA_DES_CBC_SHA": 0x0009,
    "DHE_RSA_DES_CBC_SHA": 0x0015,
    "RSA_3DES_EDE_CBC_SHA": 0x000A,
    "DHE_RSA_3DES_EDE_CBC_SHA": 0x0016,
    "ECDHE_ECDSA_3DES_EDE_CBC_SHA": 0xC008,
    "ECDHE_RSA_3DES_EDE_CBC_SHA": 0xC012,
    "RSA_IDEA_CBC_SHA": 0x0007,
    "RSA_SEED_CBC_SHA": 0x0096,
}
# With it a client says that it can do better than TLS 1.2, as the listener can (RFC 7507).
FALLBACK = 0x5600


def block(width, data):
    """`data` with its length before it, in `width` bytes."""
    return len(data).to_bytes(width, "big") + data


def extension(number, data):
    return struct.pack(">H", number) + block(2, data)


def hello(version=TLS_1_2, suites=GOOD, compression=b"\x00"):
    """A ClientHello without `supported_versions`: at most TLS 1.2."""
    extensions = (
        extension(0, block(2, b"\x00" + block(2, b"localhost")))
        # Groups secp256r1 and x25519, uncompressed points, usual signatures.
        + extension(10, block(2, struct.pack(">HH", 23, 29)))
        + extension(11, block(1, b"\x00"))
        + extension(13, block(2, struct.pack(">4H", 0x0403, 0x0804, 0x0401, 0x0201)))
    )
    body = (
        struct.pack(">H", version)
        + bytes(range(32))
        + block(1, b"")
        + block(2, b"".join(struct.pack(">H", suite) for suite in suites))
        + block(1, compression)
        + block(2, extensions)
    )
    return struct.pack(">BH", HANDSHAKE, 0x0301) + block(2, b"\x01" + block(3, body))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return TestCertificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(certificates):
    with real_loop() as loop:
        listener = loop.runtime.network.listen(
            "127.0.0.1", 0, Echo, tls=TlsSettings.of(certificates.broker_settings())
        )
        yield loop, listener.port
        listener.close()


def answer(server, first):
    """The first bytes of the answer to `first`, or b'' if the connection is closed without."""
    loop, port = server

    def exchange():
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock:
            sock.sendall(first)
            return sock.recv(4096)

    return in_thread(loop, exchange)


def test_the_hello_of_these_tests_is_accepted_with_a_good_suite(server):
    got = answer(server, hello())
    assert (got[0], got[5]) == (HANDSHAKE, SERVER_HELLO)


@pytest.mark.parametrize("name", WEAK_SUITES)
def test_a_weak_suite_is_refused(server, name):
    got = answer(server, hello(suites=[WEAK_SUITES[name]]))
    assert got == b"" or got[0] == ALERT


def test_a_weak_suite_beside_a_good_one_is_not_chosen(server):
    got = answer(server, hello(suites=[*WEAK_SUITES.values(), *GOOD]))
    session_id_bytes = got[43]
    (chosen,) = struct.unpack_from(">H", got, 44 + session_id_bytes)
    assert chosen in GOOD


def test_a_fallback_to_tls_1_2_is_refused(server):
    got = answer(server, hello(suites=[*GOOD, FALLBACK]))
    assert got == b"" or got[0] == ALERT


@pytest.mark.parametrize("version", [0x0300, 0x0301, 0x0302])
def test_versions_before_tls_1_2_are_refused(server, version):
    got = answer(server, hello(version))
    assert got == b"" or got[0] == ALERT


def test_the_hello_of_ssl_2_is_refused(server):
    body = b"\x01" + struct.pack(">HHHH", 0x0002, 3, 0, 16) + b"\x01\x00\x80" + bytes(16)
    got = answer(server, struct.pack(">H", 0x8000 | len(body)) + body)
    assert got == b"" or got[0] == ALERT


def test_compression_is_refused(server):
    got = answer(server, hello(compression=b"\x01"))
    assert got == b"" or got[0] == ALERT
    got = answer(server, hello(compression=b"\x01\x00"))
    session_id_bytes = got[43]
    assert got[46 + session_id_bytes] == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_renegotiation_is_refused(server, certificates):
    loop, port = server
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2"]
    command += ["-CAfile", certificates.ca_file]

    def renegotiate():
        return subprocess.run(
            command,
            check=False,
            input="R\nafter\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    ended = in_thread(loop, renegotiate)
    assert "RENEGOTIATING" in ended.stdout + ended.stderr
    assert "no renegotiation" in ended.stderr
