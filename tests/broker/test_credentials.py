"""What a broker looks up for a login costs the same for users that exist and for others (T5)."""

import sys
from collections import Counter

import pytest

from kctl.broker.credentials import Credentials
from kctl.protocol.sasl.mechanism import Identity
from kctl.protocol.sasl.scram import (
    ScramMechanism,
    TokenCredential,
    credential_of_password,
    encode_credential,
)
from tests.support.virtual_runtime import virtual_runtime

STORED = {it: credential_of_password(it, "secret", bytes(range(24)), 4096) for it in ScramMechanism}


class Users:
    """The configs of users in the store."""

    def __init__(self):
        self._configs = {
            "alice": {it.value: encode_credential(STORED[it]) for it in ScramMechanism},
            "ozzie": {it.value: "odd" for it in ScramMechanism},
        }

    def overrides(self, _entity_type, name):
        return self._configs.get(name, {})


class Tokens:
    def __init__(self, mechanism):
        self.known = TokenCredential(STORED[mechanism], Identity("alice"))

    def credential(self, _mechanism, token_id):
        return self.known if token_id == "token" else None


def credentials(mechanism):
    return Credentials(virtual_runtime(), Users(), Tokens(mechanism))


def calls_of(work):
    """How often `work` calls each function."""
    calls = Counter()

    def count(frame, event, argument):
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls[argument.__qualname__] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    del calls["setprofile"]
    return calls


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_same_is_computed_for_a_user_that_does_not_exist(mechanism):
    it = credentials(mechanism)
    assert it.scram(mechanism, "alice") == STORED[mechanism]
    assert it.scram(mechanism, "ellen") not in STORED.values()

    known = calls_of(lambda: it.scram(mechanism, "alice"))
    assert known == calls_of(lambda: it.scram(mechanism, "ellen"))
    assert known["_hmac"] > 0


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_same_is_computed_for_a_token_that_does_not_exist(mechanism):
    it = credentials(mechanism)
    known = calls_of(lambda: it.delegation_token(mechanism, "token"))
    unknown = calls_of(lambda: it.delegation_token(mechanism, "other"))
    assert it.delegation_token(mechanism, "token").credential == STORED[mechanism]
    assert known["_hmac"] == unknown["_hmac"] > 0


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_no_password_fits_a_stored_credential_that_is_malformed(mechanism):
    it = credentials(mechanism)
    assert it.scram(mechanism, "ozzie") not in STORED.values()
