"""The keys of signed tokens: fetched over https from an identity provider whose CA is a test's, and
in virtual time from one that the test scripts."""

import ssl
from dataclasses import replace

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("trustme")

from kctl.broker.bearer_tokens import UNKNOWN_KEY_INTERVAL_MS, BearerTokens
from kctl.configs.oauthbearer_configs import BearerConfig
from kctl.errors import UnreachableError, UsageError
from kctl.protocol.sasl.bearer_token import TokenRules
from kctl.protocol.sasl.oauthbearer import RejectedToken
from tests.support.certificates import TestCertificates
from tests.support.identity_provider import (
    RsaKey,
    claims_of,
    jwks,
    running_identity_provider,
    token,
)
from tests.support.real_loop import real_loop
from tests.support.virtual_runtime import virtual_runtime

REFRESH_MS = 3_600_000
URL = "https://idp.example/jwks"


@pytest.fixture(scope="module")
def first():
    return RsaKey("first")


@pytest.fixture(scope="module")
def second():
    return RsaKey("second")


# --- https


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop


@pytest.fixture
def certificates(tmp_path):
    return TestCertificates(tmp_path)


def server_context(certificates, *identities):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue("idp", *identities))
    return context


def started(loop, url):
    """Return tokens whose keys come from `url`, and their config."""
    config = BearerConfig(TokenRules(), url)
    tokens = BearerTokens(loop.runtime)
    try:
        loop.run(tokens.accept([config]))
    finally:
        tokens.close()
    return tokens, config


def test_keys_are_fetched_over_https(loop, certificates, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca_file)
    with running_identity_provider(server_context(certificates, "127.0.0.1")) as provider:
        tokens, config = started(loop, f"{provider.url}/jwks")

        identity = tokens.identity(config, token(provider.keys[0], claims_of("alice")))

    assert identity.user == "alice"


@pytest.mark.parametrize("identity", ["localhost", "127.0.0.2"])
def test_provider_with_a_certificate_of_another_host_is_not_trusted(
    loop, certificates, monkeypatch, identity
):
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca_file)
    with (
        running_identity_provider(server_context(certificates, identity)) as provider,
        pytest.raises(UsageError, match=r"jwks\.endpoint\.url: .*certificate is not valid for"),
    ):
        started(loop, f"{provider.url}/jwks")


def test_provider_of_an_unknown_ca_is_not_trusted(loop, certificates, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", TestCertificates(tmp_path / "other").ca_file)
    with (
        running_identity_provider(server_context(certificates, "127.0.0.1")) as provider,
        pytest.raises(UsageError, match=r"jwks\.endpoint\.url: .*certificate verify failed"),
    ):
        started(loop, f"{provider.url}/jwks")


def test_provider_that_speaks_no_tls(loop, certificates, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca_file)
    with (
        running_identity_provider() as provider,
        pytest.raises(UsageError, match=r"jwks\.endpoint\.url: cannot fetch https"),
    ):
        started(loop, f"{provider.url}/jwks".replace("http:", "https:"))


def test_provider_that_refuses(loop, certificates, monkeypatch):
    """The body of its response is not shown."""
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca_file)
    with (
        running_identity_provider(server_context(certificates, "127.0.0.1")) as provider,
        pytest.raises(UsageError, match="HTTP status 401") as raised,
    ):
        started(loop, f"{provider.url}/other")
    assert "secret of the provider" not in str(raised.value)


# --- when keys are fetched


class ScriptedWeb:
    """Serves `document`; None: it cannot be reached."""

    def __init__(self, runtime, document):
        self.runtime = runtime
        self.document = document
        self.fetches = 0

    def fetch(self, url, *_request):
        assert url == URL
        self.fetches += 1
        future = self.runtime.scheduler.future()
        if self.document is None:
            future.set_error(UnreachableError("the provider is down"))
        else:
            future.set_result(self.document)
        return future


class World:
    """Bearer tokens in virtual time."""

    def __init__(self, *keys):
        runtime = virtual_runtime()
        self.web = ScriptedWeb(runtime, jwks(*keys))
        self.runtime = replace(runtime, web=self.web)
        self.config = BearerConfig(TokenRules(), URL, REFRESH_MS)
        self.tokens = BearerTokens(self.runtime)
        task = self.runtime.scheduler.spawn(self.tokens.accept([self.config]))
        self.runtime.scheduler.settle()
        task.result()

    def advance(self, delay_ms):
        self.runtime.scheduler.advance(delay_ms)

    def accepts(self, key, **claims):
        """Return whether a token is accepted; what that causes is done afterwards."""
        now_s = self.runtime.clock.wall_ms() // 1000
        text = token(key, claims_of("alice", iat=now_s, exp=now_s + 3600, **claims))
        try:
            self.tokens.identity(self.config, text)
        except RejectedToken:
            return False
        finally:
            self.runtime.scheduler.settle()
        return True


def test_keys_are_fetched_periodically(first, second):
    world = World(first)
    assert (world.accepts(first), world.accepts(second)) == (True, False)
    world.web.document = jwks(second)
    world.advance(REFRESH_MS)

    assert (world.accepts(first), world.accepts(second)) == (False, True)


def test_unknown_key_causes_a_fetch_at_most_once_a_minute(first, second):
    world = World(first)
    world.web.document = jwks(first, second)
    assert not any(world.accepts(second) for _ in range(5))
    assert world.web.fetches == 1
    world.advance(UNKNOWN_KEY_INTERVAL_MS)

    assert not world.accepts(second)
    assert world.accepts(second)
    assert world.web.fetches == 2
    stranger = RsaKey("stranger")
    assert not any(world.accepts(stranger) for _ in range(5))
    assert world.web.fetches == 2


@pytest.mark.parametrize("document", [None, b"{", b'{"keys": []}', b"[]"])
def test_failed_fetch_keeps_the_keys(first, document):
    world = World(first)
    world.web.document = document
    world.advance(REFRESH_MS)

    assert world.accepts(first)
    assert world.web.fetches == 2
    (warning,) = world.runtime.trace.warnings
    assert "the keys of OAUTHBEARER stay as they are" in warning


def test_closed_source_fetches_no_more(first):
    world = World(first)
    world.tokens.close()
    world.advance(3 * REFRESH_MS)

    assert world.web.fetches == 1


def test_token_of_a_known_key_id_by_another_key_causes_no_fetch(first):
    world = World(first)
    world.advance(UNKNOWN_KEY_INTERVAL_MS)

    assert not world.accepts(RsaKey("first"))
    assert world.web.fetches == 1
