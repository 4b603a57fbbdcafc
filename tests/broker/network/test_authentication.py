"""The SASL exchange of a connection: what strangers get, what failures cost, how sessions end."""

import contextlib
import tracemalloc
from functools import cache
from random import Random  # noqa: TID251 - seeded

import pytest

from kctl.broker.network.authentication import (
    LEGAL_MOVES,
    Authentication,
    AuthenticationState,
)
from kctl.broker.network.limits import UNAUTHENTICATED_BYTES_MAX
from kctl.broker.network.server import SocketServer
from kctl.configs.listener_security import SaslListener
from kctl.errors import CorruptDataError
from kctl.model import Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsRequest
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.metadata import MetadataRequest
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.sasl.mechanism import SaslFailure
from kctl.protocol.sasl.plain import plain_message
from kctl.protocol.sasl.scram import (
    ScramClient,
    ScramMechanism,
    credential_of,
    imaginary_credential,
    salted_password,
)
from tests.support.raw_requests import RequestWriter, decode_response
from tests.support.real_loop import connect

MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
DELAY_MS = 100
LIFETIME_MS = 5_000
ALICE = plain_message("alice", "secret")
BOB = plain_message("bob", "secret")


@cache
def credential_of_alice(mechanism):
    salted = salted_password(mechanism, "secret", b"salt", 4096)
    return credential_of(mechanism, salted, b"salt", 4096)


class Users:
    """Credentials of alice, whose password is `secret`; the others have none."""

    def scram(self, mechanism, user):
        if user != "alice":
            return imaginary_credential(mechanism, user, b"secret of the broker")
        return credential_of_alice(mechanism)

    def nonce(self):
        return "server-nonce"


class Peer:
    """Sends requests to one Authentication and decodes what it answers."""

    def __init__(self, lifetime_ms=0):
        listener = SaslListener(
            MECHANISMS,
            {"alice": "secret", "bob": "secret"},
            dict.fromkeys(MECHANISMS, lifetime_ms),
            DELAY_MS,
        )
        served = {int(key): (0, key.max_version) for key in ApiKey}
        self.now_ms = 1_000
        self.authentication = Authentication(listener, Users(), served)
        self.writer = RequestWriter()
        self.failure = None

    def ask(self, message, version=None):
        """The decoded answer, or None."""
        version = message.api.max_version if version is None else version
        frame = self.writer.frame(message, version)[4:]
        assert self.authentication.takes(frame, self.now_ms)
        return self._answer(self.authentication.receive(frame, self.now_ms), message.api, version)

    def raw(self, token):
        """The answer to a token without a header."""
        step = self.authentication.receive(token, self.now_ms)
        self.failure = step.failure
        return step.response and b"".join(step.response)

    def _answer(self, step, api, version):
        self.failure = step.failure
        if step.response is None:
            return None
        return decode_response(api, version, b"".join(map(bytes, step.response))[4:])

    def handshake(self, mechanism="PLAIN", version=1):
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token, version=2):
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, token=ALICE):
        assert self.handshake().error_code == 0
        return self.authenticate(token)


def test_plain_logs_in():
    peer = Peer()
    versions = peer.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    assert len(versions.api_keys) == len(ApiKey)
    assert versions.finalized_features_epoch == -1
    assert peer.handshake().mechanisms == list(MECHANISMS)
    answer = peer.authenticate(ALICE)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert peer.authentication.principal == "User:alice"
    assert not peer.authentication.takes(peer.writer.frame(MetadataRequest(), 9)[4:], peer.now_ms)


def test_bare_tokens_log_in():
    peer = Peer()
    assert peer.handshake(version=0).error_code == 0
    assert peer.raw(ALICE) == bytes(4)
    assert peer.authentication.is_complete


def test_wrong_bare_token_is_not_answered():
    peer = Peer()
    peer.handshake(version=0)
    assert peer.raw(b"\0alice\0wrong") is None
    assert peer.authentication.is_failed


@pytest.mark.parametrize("user", ["alice", "eve"])
def test_scram_fails_at_its_end_for_known_and_unknown_users(user):
    peer = Peer()
    peer.handshake("SCRAM-SHA-256")
    client = ScramClient(ScramMechanism.SHA_256, user, "nonce")
    salt, iterations = client.challenge(bytes(peer.authenticate(client.first()).auth_bytes))
    assert iterations == 4096
    wrong = salted_password(ScramMechanism.SHA_256, "wrong", salt, iterations)
    answer = peer.authenticate(client.final(wrong))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL"
        " mechanism SCRAM-SHA-256"
    )
    assert "does not fit" in peer.failure


def test_unknown_mechanism_is_answered_with_those_there_are():
    peer = Peer()
    answer = peer.handshake("GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == list(MECHANISMS)
    assert peer.authentication.is_failed


def test_unknown_version_of_api_versions_does_not_count():
    peer = Peer()
    frame = bytearray(peer.writer.frame(ApiVersionsRequest(), 0)[4:])
    frame[2:4] = (99).to_bytes(2, "big")
    step = peer.authentication.receive(bytes(frame), peer.now_ms)
    answer = decode_response(ApiKey.API_VERSIONS, 0, b"".join(step.response)[4:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    bad = ApiVersionsRequest(client_software_name="#", client_software_version="1")
    assert peer.ask(bad).error_code == ErrorCode.INVALID_REQUEST
    assert peer.authentication.state is AuthenticationState.INITIAL
    assert peer.log_in().error_code == 0


def test_second_api_versions_is_not_answered():
    peer = Peer()
    peer.ask(ApiVersionsRequest(), 0)
    assert peer.ask(ApiVersionsRequest(), 0) is None
    assert peer.authentication.is_failed


@pytest.mark.parametrize("api", [api for api in ApiKey if api not in (17, 18)])
def test_any_other_request_of_a_stranger_is_refused_unread(api):
    peer = Peer()
    for version in range(api.max_version + 1):
        stranger = Peer()
        header = int(api).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4)
        flexible = b"\0" if version >= api.flexible_from else b""
        client_id = b"" if api is ApiKey.CONTROLLED_SHUTDOWN and version == 0 else b"\xff\xff"
        frame = header + client_id + flexible + b"\xff" * 40
        step = stranger.authentication.receive(frame, peer.now_ms)
        assert step.response is None
        assert step.failure == f"{api.title} v{version} before authentication"


def test_token_without_a_handshake_is_refused():
    peer = Peer()
    assert peer.authenticate(ALICE) is None
    assert peer.authentication.is_failed


def test_request_between_tokens_is_refused():
    peer = Peer()
    peer.handshake()
    assert peer.ask(MetadataRequest(), 9) is None
    assert peer.authentication.is_failed


def test_nothing_follows_a_failure():
    peer = Peer()
    peer.log_in(b"\0alice\0wrong")
    with pytest.raises(RuntimeError):
        peer.handshake()
    assert LEGAL_MOVES[AuthenticationState.FAILED] == frozenset()


def test_session_ends_and_may_be_renewed_before():
    peer = Peer(LIFETIME_MS)
    assert peer.log_in().session_lifetime_ms == LIFETIME_MS
    metadata = peer.writer.frame(MetadataRequest(), 9)[4:]
    peer.now_ms += LIFETIME_MS - 1
    assert not peer.authentication.takes(metadata, peer.now_ms)
    assert peer.log_in().session_lifetime_ms == LIFETIME_MS
    peer.now_ms += LIFETIME_MS - 1
    assert not peer.authentication.takes(metadata, peer.now_ms)
    peer.now_ms += 1
    with pytest.raises(CorruptDataError, match="the session has expired"):
        peer.authentication.takes(metadata, peer.now_ms)
    assert peer.log_in().error_code == 0


def test_a_session_may_be_renewed_right_after_its_login():
    peer = Peer(LIFETIME_MS)
    peer.log_in()
    assert peer.log_in().session_lifetime_ms == LIFETIME_MS


def test_renewal_right_after_a_renewal_is_an_ordinary_request():
    peer = Peer(LIFETIME_MS)
    peer.log_in()
    peer.log_in()
    frame = peer.writer.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)[4:]
    assert not peer.authentication.takes(frame, peer.now_ms + 999)
    assert peer.authentication.takes(frame, peer.now_ms + 1_000)


def test_renewal_too_soon_in_a_session_that_has_expired_closes():
    peer = Peer(lifetime_ms=500)
    peer.log_in()
    peer.log_in()
    frame = peer.writer.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)[4:]
    with pytest.raises(CorruptDataError, match="the session has expired"):
        peer.authentication.takes(frame, peer.now_ms + 500)


def test_bare_tokens_renew_a_session():
    peer = Peer(LIFETIME_MS)
    peer.log_in()
    peer.now_ms += 2_000
    assert peer.handshake(version=0).error_code == 0
    assert peer.raw(ALICE) == bytes(4)
    assert peer.authentication.is_complete
    peer.now_ms += LIFETIME_MS - 1
    metadata = peer.writer.frame(MetadataRequest(), 9)[4:]
    assert not peer.authentication.takes(metadata, peer.now_ms)


def test_bare_tokens_of_another_user_end_the_session():
    peer = Peer(LIFETIME_MS)
    peer.log_in()
    assert peer.handshake(version=0).error_code == 0
    assert peer.raw(BOB) is None
    assert peer.authentication.is_failed


def test_renewal_is_as_small_as_a_login():
    peer = Peer(LIFETIME_MS)
    peer.log_in()
    peer.now_ms += 2_000
    peer.handshake()
    token = b"\0alice\0" + b"x" * UNAUTHENTICATED_BYTES_MAX
    with pytest.raises(CorruptDataError, match="bytes of authentication exceed"):
        peer.authenticate(token)
    assert peer.authentication.principal == "User:alice"


def test_renewal_is_by_the_same_principal_and_mechanism():
    peer = Peer(LIFETIME_MS)
    peer.log_in()
    peer.now_ms += 2_000
    answer = peer.log_in(BOB)
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert peer.authentication.principal == "User:alice"
    peer = Peer(LIFETIME_MS)
    peer.log_in()
    peer.now_ms += 2_000
    assert peer.handshake("SCRAM-SHA-256").error_code == 0
    answer = peer.authenticate(b"n,,n=alice,r=nonce")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "during re-authentication" in answer.error_message


# --- over a connection -------------------------------------------------------------------------


class Broker:
    """A listener with SASL; heartbeats are answered, by whom is kept."""

    def __init__(self, loop):
        self.loop = loop
        self.principals = []
        self.server = SocketServer(
            loop.runtime,
            [Endpoint("127.0.0.1", 0, "SASL_PLAINTEXT", "SASL_PLAINTEXT")],
            {int(key): (0, key.max_version) for key in ApiKey},
            self.handle,
            sasl={"SASL_PLAINTEXT": SaslListener(MECHANISMS, {"alice": "secret"}, {}, DELAY_MS)},
            credentials=Users(),
        )
        self.port = self.server.start()[0].port
        self.peer = connect(loop, self.port)
        self.writer = RequestWriter()

    def handle(self, request):
        self.principals.append(request.context.principal)
        request.reply(HeartbeatResponse())

    def send(self, message, version):
        self.peer.send(self.writer.frame(message, version))

    def ask(self, message, version):
        self.send(message, version)
        return decode_response(message.api, version, self.peer.receive_frame())


def test_requests_after_the_login_have_its_principal(loop):
    broker = Broker(loop)
    broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    # Requests may follow the last token at once.
    broker.send(SaslAuthenticateRequest(auth_bytes=ALICE), 1)
    broker.send(HeartbeatRequest(group_id="g"), 1)
    broker.peer.receive_frame()
    broker.peer.receive_frame()
    assert broker.principals == ["User:alice"]
    assert broker.server.counters.authentications == 1


def test_failure_is_answered_after_its_delay_and_closes(loop):
    broker = Broker(loop)
    broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    begun_ms = loop.runtime.clock.monotonic_ms()
    broker.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 1)
    broker.send(HeartbeatRequest(group_id="g"), 1)
    answer = decode_response(ApiKey.SASL_AUTHENTICATE, 1, broker.peer.receive_frame())
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert loop.runtime.clock.monotonic_ms() - begun_ms >= DELAY_MS
    loop.until(lambda: broker.server.connection_count == 0)
    assert broker.principals == []
    assert broker.server.counters.failed_authentications == 1
    [counters] = broker.server.counters.listeners.values()
    assert (counters.failed_authentications, counters.authentications) == (1, 0)


def test_stranger_may_not_send_much(loop):
    broker = Broker(loop)
    broker.peer.send((UNAUTHENTICATED_BYTES_MAX + 1).to_bytes(4, "big"))
    loop.until(lambda: broker.server.counters.bad_requests == 1)
    loop.until(lambda: broker.server.connection_count == 0)


def strange_frames():
    """Frames that announce more than they have, by name (T9)."""
    header = b"\x00\x12\x00\x03" + bytes(4) + b"\x00\x01c"
    return {
        "600 KiB": (600 * 1024).to_bytes(4, "big") + bytes(600 * 1024),
        "2^31 - 1 bytes": (2**31 - 1).to_bytes(4, "big"),
        "-1 bytes": b"\xff" * 4,
        "10,000 tags": framed(header + b"\x90\x4e" + b"\x00\x00" * 10_000),
        "a tag of 2^31 bytes": framed(header + b"\x01\x00\xff\xff\xff\xff\x07"),
        "a name of 2^31 bytes": framed(header + b"\x00\xff\xff\xff\xff\x07"),
        "a token of 2^31 - 1 bytes": framed(
            b"\x00\x24\x00\x00" + bytes(4) + b"\xff\xff" + b"\x7f\xff\xff\xff"
        ),
    }


def framed(data):
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("name", strange_frames())
def test_what_a_stranger_announces_is_not_allocated(loop, name):
    """T9: the connection is closed, and the broker's memory is what it was."""
    broker = Broker(loop)
    frame = strange_frames()[name]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with contextlib.suppress(OSError):
            broker.peer.send(frame)
        loop.until(lambda: broker.server.connection_count == 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 2 * 1024 * 1024
    assert broker.principals == []


def test_a_flood_of_failed_logins_is_logged_once_a_second(loop, monkeypatch):
    """T7: of many failures of one host within a second, one is logged."""
    lines = []
    broker = Broker(loop)
    monkeypatch.setattr(loop.runtime.trace, "warning", lines.append, raising=False)
    monkeypatch.setattr(loop.runtime.trace, "info", lines.append, raising=False)
    begun_ms = loop.runtime.clock.monotonic_ms()
    peers = [connect(loop, broker.port) for _ in range(50)]
    for peer in peers:
        for message in (
            SaslHandshakeRequest(mechanism="PLAIN"),
            SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"),
        ):
            peer.send(broker.writer.frame(message, 1))
    loop.until(lambda: broker.server.counters.failed_authentications == len(peers))
    seconds = (loop.runtime.clock.monotonic_ms() - begun_ms) // 1000 + 1
    about = [line for line in lines if "alice" in line or "authenticat" in line.lower()]
    assert 1 <= len(about) <= seconds + 1


# --- hostile messages --------------------------------------------------------------------------

MUTATIONS = 1_000
SLOW_MUTATIONS = 10_000


def mutated(data, random):
    """`data` with a byte changed, removed, inserted, or its end cut off."""
    changed = bytearray(data)
    position = random.randrange(len(changed))
    kind = random.randrange(4)
    if kind == 0:
        changed[position] ^= 1 << random.randrange(8)
    elif kind == 1:
        del changed[position]
    elif kind == 2:
        changed.insert(position, random.randrange(256))
    else:
        del changed[position:]
    return bytes(changed)


def scram_login(peer, change_first, change_final):
    """Whether alice is logged in, with messages that are changed on their way."""
    peer.handshake("SCRAM-SHA-256")
    client = ScramClient(ScramMechanism.SHA_256, "alice", "nonce")
    answer = peer.authenticate(change_first(client.first()))
    if answer.error_code:
        return False
    try:
        salt, iterations = client.challenge(bytes(answer.auth_bytes))
    except SaslFailure:
        salt, iterations = b"salt", 4096
    final = client.final(salted_secret(salt, iterations))
    return not peer.authenticate(change_final(final)).error_code


@cache
def salted_secret(salt, iterations):
    return salted_password(ScramMechanism.SHA_256, "secret", salt, iterations)


@pytest.mark.parametrize(
    "mutations", [MUTATIONS, pytest.param(SLOW_MUTATIONS, marks=pytest.mark.slow)]
)
def test_changed_scram_messages_do_not_log_in(mutations):
    """T3 and T4 of the security design: 10,000 mutations, no login by a changed final message."""
    random = Random(3)
    for _ in range(mutations // 2):
        assert not scram_login(Peer(), lambda message: mutated(message, random), bytes)
        assert not scram_login(Peer(), bytes, lambda message: mutated(message, random))


AUTHORIZATION_IDS = ["bob", "ALICE", "alice ", " alice", "alice\u0430", "al\u0131ce", "root", "a"]


@pytest.mark.parametrize("authorization_id", AUTHORIZATION_IDS)
def test_no_user_logs_in_as_another(authorization_id):
    """T6: an authorization id that is not the user is refused by every mechanism."""
    peer = Peer()
    answer = peer.log_in(f"{authorization_id}\0alice\0secret".encode())
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    peer = Peer()
    peer.handshake("SCRAM-SHA-256")
    answer = peer.authenticate(f"n,a={authorization_id},n=alice,r=nonce".encode())
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert peer.authentication.principal is None
