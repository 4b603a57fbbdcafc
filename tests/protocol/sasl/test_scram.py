"""SCRAM against the RFCs' vectors, against scramp, and against messages that are not right."""

import base64

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import CorruptDataError
from kctl.protocol.sasl.mechanism import InvalidCredentials, SaslFailure
from kctl.protocol.sasl.scram import (
    ITERATIONS_MIN,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    credential_of,
    decode_credential,
    encode_credential,
    imaginary_credential,
    salted_password,
)

# RFC 7677, section 3, with the client's password "pencil".
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_FIRST = f"r={NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = (
    f"c=biws,r={NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

MECHANISMS = list(ScramMechanism)


def credential(mechanism, password="pencil", iterations=ITERATIONS_MIN):
    salted = salted_password(mechanism, password, SALT, iterations)
    return credential_of(mechanism, salted, SALT, iterations)


def server_after(client_first, mechanism=ScramMechanism.SHA_256, **options):
    server = ScramServer(mechanism)
    server.parse_first(client_first)
    return server, server.first(credential(mechanism, **options), SERVER_NONCE)


def test_client_sends_the_messages_of_rfc_7677():
    client = ScramClient(ScramMechanism.SHA_256, "user", NONCE)
    assert client.first() == f"n,,n=user,r={NONCE}".encode()
    salt, iterations = client.challenge(SERVER_FIRST)
    assert (salt, iterations) == (SALT, 4096)
    salted = salted_password(ScramMechanism.SHA_256, "pencil", salt, iterations)
    assert client.final(salted) == CLIENT_FINAL
    client.finish(SERVER_FINAL)


def test_server_sends_the_messages_of_rfc_7677():
    server, first = server_after(f"n,,n=user,r={NONCE}".encode())
    assert first == SERVER_FIRST
    assert server.final(CLIENT_FINAL) == SERVER_FINAL


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scramp_logs_in(mechanism):
    client = scramp.ScramClient([mechanism.value], "alice", "secret")
    server, first = server_after(
        client.get_client_first().encode(), mechanism, password="secret", iterations=8192
    )
    client.set_server_first(first.decode())
    final = client.get_client_final().encode()
    client.set_server_final(server.final(final).decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_client_logs_in_to_scramp(mechanism):
    theirs = scramp.ScramMechanism(mechanism.value)
    stored = theirs.make_auth_info("secret", iteration_count=4096)
    server = theirs.make_server(lambda _user: stored)
    client = ScramClient(mechanism, "alice", NONCE)
    server.set_client_first(client.first().decode())
    salt, iterations = client.challenge(server.get_server_first().encode())
    salted = salted_password(mechanism, "secret", salt, iterations)
    server.set_client_final(client.final(salted).decode())
    client.finish(server.get_server_final().encode())


def test_wrong_password_is_refused():
    client = ScramClient(ScramMechanism.SHA_256, "user", NONCE)
    server, first = server_after(client.first())
    salt, iterations = client.challenge(first)
    final = client.final(salted_password(ScramMechanism.SHA_256, "other", salt, iterations))
    with pytest.raises(InvalidCredentials):
        server.final(final)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.replace(b"%hvY", b"%hvX"), "does not repeat the nonce"),
        (lambda m: m.replace(SERVER_NONCE.encode(), b""), "does not repeat the nonce"),
        (lambda m: m.replace(b"c=biws", b"c=eSws"), "channel binding"),
        (lambda m: m[: m.index(b",p=")] + b",p=" + base64.b64encode(b"x" * 31), "wrong length"),
        (lambda m: m[: m.index(b",p=")] + b",p=", "wrong length"),
        (lambda m: m[: m.index(b",p=")] + b",p=" + base64.b64encode(b"x" * 32), "does not fit"),
    ],
)
def test_final_message_that_is_not_right_is_refused(change, reason):
    server, _ = server_after(f"n,,n=user,r={NONCE}".encode())
    with pytest.raises(InvalidCredentials, match=reason):
        server.final(change(CLIENT_FINAL))


def test_final_message_is_accepted_once():
    server, _ = server_after(f"n,,n=user,r={NONCE}".encode())
    server.final(CLIENT_FINAL)
    with pytest.raises(AssertionError):
        server.final(CLIENT_FINAL)


def test_authorization_id_is_the_user():
    server = ScramServer(ScramMechanism.SHA_256)
    first = server.parse_first(f"n,a=user,n=user,r={NONCE},tokenauth=true".encode())
    assert (first.user, first.authorization_id) == ("user", "user")
    assert first.extensions == {"tokenauth": "true"}
    with pytest.raises(SaslFailure, match="authorization id"):
        server.parse_first(f"n,a=admin,n=user,r={NONCE}".encode())


def test_extensions_are_part_of_what_is_signed():
    client = ScramClient(ScramMechanism.SHA_256, "user", NONCE, {"tokenauth": "true"})
    server, first = server_after(client.first())
    salt, iterations = client.challenge(first)
    salted = salted_password(ScramMechanism.SHA_256, "pencil", salt, iterations)
    client.finish(server.final(client.final(salted)))


def test_names_are_quoted():
    client = ScramClient(ScramMechanism.SHA_256, "a=b,c", NONCE)
    assert client.first().startswith(b"n,,n=a=3Db=2Cc,")
    assert ScramServer(ScramMechanism.SHA_256).parse_first(client.first()).user == "a=b,c"


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"y,,n=a,r=b", b"p=tls,,n=a,r=b", b"n,,r=b,n=a", b"n,,n=,r=b", b"n,,n=a,r=",
     b"n,,n=a=4Fb,r=c", b"n,,m=x,n=a,r=b", b"n,,n=a,r=b,", b"\xff\xfe"],
)  # fmt: skip
def test_first_message_that_is_malformed_is_refused(message):
    with pytest.raises(SaslFailure, match="malformed"):
        ScramServer(ScramMechanism.SHA_256).parse_first(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (SERVER_FIRST.replace(b"rOpr", b"sOpr"), "nonce"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"1000001"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"99999999999"), "malformed"),
        (b"e=other-error", "malformed"),
    ],
)
def test_client_refuses_servers_that_are_not_right(message, reason):
    client = ScramClient(ScramMechanism.SHA_256, "user", NONCE)
    with pytest.raises(SaslFailure, match=reason):
        client.challenge(message)


def test_client_refuses_a_server_that_does_not_know_the_password():
    client = ScramClient(ScramMechanism.SHA_256, "user", NONCE)
    salt, iterations = client.challenge(SERVER_FIRST)
    client.final(salted_password(ScramMechanism.SHA_256, "pencil", salt, iterations))
    with pytest.raises(SaslFailure, match="signature"):
        client.finish(b"v=" + base64.b64encode(b"x" * 32))
    with pytest.raises(SaslFailure, match="invalid-proof"):
        client.finish(b"e=invalid-proof")


@given(st.binary(max_size=80))
def test_any_bytes_are_refused_without_a_crash(data):
    server, _ = server_after(f"n,,n=user,r={NONCE}".encode())
    with pytest.raises(SaslFailure):
        server.final(data)
    client = ScramClient(ScramMechanism.SHA_256, "user", NONCE)
    with pytest.raises(SaslFailure):
        client.challenge(data)


def test_unknown_users_have_a_salt_of_their_own_that_stays():
    mechanism = ScramMechanism.SHA_256
    alice, bob = (imaginary_credential(mechanism, name, b"secret") for name in ("alice", "bob"))
    assert alice.salt != bob.salt
    assert alice == imaginary_credential(mechanism, "alice", b"secret")
    assert len(alice.stored_key) == mechanism.digest_bytes


def test_stored_credential_is_kafkas_text():
    stored = ScramCredential(b"salt", b"key", b"server", 4096)
    text = encode_credential(stored)
    assert text == "salt=c2FsdA==,stored_key=a2V5,server_key=c2VydmVy,iterations=4096"
    assert decode_credential(text) == stored
    for bad in ("", "salt=c2FsdA==", text + ",x=y", text.replace("4096", "x")):
        with pytest.raises(CorruptDataError):
            decode_credential(bad)


def test_weak_stored_credential_is_refused():
    server = ScramServer(ScramMechanism.SHA_256)
    server.parse_first(f"n,,n=user,r={NONCE}".encode())
    with pytest.raises(SaslFailure, match="less than the minimum"):
        server.first(ScramCredential(b"s", b"k", b"k", 4095), SERVER_NONCE)


def test_repr_shows_no_key():
    assert "key" not in repr(ScramCredential(b"salt", b"key", b"key", 4096))
