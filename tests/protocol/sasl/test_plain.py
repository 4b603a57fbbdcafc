"""PLAIN: what a message authenticates, and Kafka's reasons for refusing it."""

import pytest

from kctl.protocol.sasl.mechanism import SaslFailure
from kctl.protocol.sasl.plain import plain_message, plain_user

USERS = {"alice": "pässword", "bob": "x"}


@pytest.mark.parametrize("user", USERS)
def test_known_users_log_in(user):
    assert plain_user(plain_message(user, USERS[user]), USERS) == user


def test_authorization_id_is_the_user():
    assert plain_user(b"bob\0bob\0x", USERS) == "bob"
    with pytest.raises(SaslFailure, match="different from username"):
        plain_user(b"alice\0bob\0x", USERS)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"bob\0x", "expected 3 tokens, got 2"),
        (b"\0bob\0x\0", "expected 3 tokens, got 4"),
        (b"\0\0x", "username not specified"),
        (b"\0bob\0", "password not specified"),
        (b"\0bob\0y", "Invalid username or password"),
        (b"\0eve\0x", "Invalid username or password"),
        (b"\0eve\0\x00", "expected 3 tokens, got 4"),
        (b"\0eve\0\xff", "not UTF-8"),
    ],
)
def test_anything_else_is_refused(message, reason):
    with pytest.raises(SaslFailure, match=reason):
        plain_user(message, USERS)
