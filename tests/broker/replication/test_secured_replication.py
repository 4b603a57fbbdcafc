"""Replication between brokers over TLS and SASL, where nothing but the brokers' principal may act
as one: brokers leave and return, and one that cannot log in says why."""

from dataclasses import replace

import pytest

pytest.importorskip("cryptography")

from kctl.admin.topics import NewTopic
from kctl.client.producer import NewRecord, Producer
from kctl.runtime.recurring_warnings import RecurringWarnings
from tests.support.broker_cluster import running_brokers
from tests.support.certificates import TestCertificates
from tests.support.identity_provider import AUDIENCE, RsaKey, claims_of, jwks, now_s, token
from tests.support.secured_brokers import jaas

SCRAM = "SCRAM-SHA-512"
HOUR_S = 3600
PASSWORD = "the brokers' own"
PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture
def cluster(tmp_path):
    with running_brokers(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def certificates(tmp_path):
    made = TestCertificates(tmp_path)
    made.issue("broker", "localhost", "127.0.0.1", common_name="admin")
    return made


def settings_of(protocol, certificates, password=PASSWORD):
    """Listener SECURE is the brokers'; PLAINTEXT, the first, is the clients' in this test."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,SECURE:{protocol}",
        "inter.broker.listener.name": "SECURE",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
    }
    listener = {}
    if protocol != "SASL_PLAINTEXT":
        listener = certificates.broker_settings() | certificates.client_settings()
    if protocol == "SSL":
        listener["ssl.client.auth"] = "required"
    else:
        settings["sasl.mechanism.inter.broker.protocol"] = SCRAM
        listener["sasl.enabled.mechanisms"] = SCRAM
        listener["scram-sha-512.sasl.jaas.config"] = jaas(SCRAM, "admin", password)
    return settings | {f"listener.name.secure.{name}": it for name, it in listener.items()}


def start_first(cluster, protocol, certificates):
    """Start broker 1; it stores the password that all brokers log in with."""
    cluster.start(1, **settings_of(protocol, certificates))
    if protocol != "SSL":
        cluster.run(cluster.brokers[1].set_passwords({"admin": PASSWORD}))


def create(cluster, topic, *replicas):
    new = NewTopic(topic, assignment={0: list(replicas)})
    (result,) = cluster.run(cluster.admin().topics.create([new]))
    assert result.error is None


def produce(cluster, count):
    records = [NewRecord(key=None, value=b"v" * 1000) for _ in range(count)]
    results = cluster.run(Producer(cluster.router(), "t").send(records))
    assert [result.error for result in results] == [None] * count


def wait_in_sync(cluster, *broker_ids):
    cluster.until(lambda: set(cluster.state("t").isr) == set(broker_ids), f"{broker_ids} in sync")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_brokers_replicate_leave_and_return(cluster, certificates, protocol):
    start_first(cluster, protocol, certificates)
    cluster.start(2, **settings_of(protocol, certificates))
    create(cluster, "t", 1, 2)
    produce(cluster, 300)
    assert [cluster.end(broker_id, "t") for broker_id in (1, 2)] == [300, 300]
    cluster.stop(2)
    wait_in_sync(cluster, 1)
    produce(cluster, 100)
    cluster.start(2, **settings_of(protocol, certificates))
    wait_in_sync(cluster, 1, 2)
    cluster.stop(1)
    cluster.until(lambda: cluster.leader("t") == 2, "the other leads")
    produce(cluster, 100)
    assert cluster.end(2, "t") == 500
    cluster.start(1, **settings_of(protocol, certificates))
    wait_in_sync(cluster, 1, 2)
    assert cluster.end(1, "t") == 500


def test_broker_with_a_wrong_password_replicates_when_it_has_the_right_one(
    cluster, certificates, monkeypatch
):
    # A condition that may be normal during a start is reported at once, not after ten seconds.
    monkeypatch.setattr(RecurringWarnings.__init__, "__defaults__", (0,))
    start_first(cluster, "SASL_SSL", certificates)
    cluster.start(2, **settings_of("SASL_SSL", certificates))
    create(cluster, "t", 1, 2)
    produce(cluster, 10)
    cluster.stop(2)
    wait_in_sync(cluster, 1)
    produce(cluster, 10)
    cluster.start(2, **settings_of("SASL_SSL", certificates, password="wrong"))
    cluster.until(
        lambda: any("rejects user admin" in it for it in cluster.trace.warnings), "the reason"
    )
    assert set(cluster.state("t").isr) == {1}
    cluster.stop(2)
    cluster.start(2, **settings_of("SASL_SSL", certificates))
    wait_in_sync(cluster, 1, 2)
    assert cluster.end(2, "t") == 20


# --- OAUTHBEARER


@pytest.fixture
def key():
    return RsaKey()


def bearer_settings(
    tmp_path, key, bearer_token, protocol="SASL_PLAINTEXT", file_name="token", **listener
):
    """Settings of a broker that checks signed tokens, and logs in at others with `bearer_token`."""
    keys, own = tmp_path / "jwks.json", tmp_path / file_name
    keys.write_bytes(jwks(key))
    own.write_text(bearer_token)
    configs = {
        "sasl.jaas.config": f"{BEARER_MODULE} required;",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.token.endpoint.url": own.as_uri(),
    }
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,SECURE:{protocol}",
        "inter.broker.listener.name": "SECURE",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.secure.sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    settings |= {f"listener.name.secure.oauthbearer.{name}": it for name, it in configs.items()}
    return settings | {f"listener.name.secure.{name}": it for name, it in listener.items()}


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_brokers_replicate_by_oauthbearer(cluster, certificates, key, tmp_path, protocol):
    listener = {}
    if protocol == "SASL_SSL":
        listener = certificates.broker_settings() | certificates.client_settings()
    good = token(key, claims_of("admin"))
    settings = bearer_settings(tmp_path, key, good, protocol, **listener)
    cluster.start(1, 2, **settings)
    create(cluster, "t", 1, 2)
    produce(cluster, 100)
    assert [cluster.end(broker_id, "t") for broker_id in (1, 2)] == [100, 100]
    cluster.stop(1)
    cluster.until(lambda: cluster.leader("t") == 2, "the other leads")
    produce(cluster, 100)
    cluster.start(1, **settings)
    wait_in_sync(cluster, 1, 2)
    assert cluster.end(1, "t") == 200


class AheadClock:
    """The clock of this machine, whose wall may be set ahead."""

    def __init__(self, clock):
        self.clock = clock
        self.ahead_ms = 0

    def monotonic_ms(self):
        return self.clock.monotonic_ms()

    def monotonic_ns(self):
        return self.clock.monotonic_ns()

    def wall_ms(self):
        return self.clock.wall_ms() + self.ahead_ms


def test_brokers_get_other_tokens_when_theirs_have_expired(cluster, key, tmp_path):
    clock = AheadClock(cluster.runtime.clock)
    cluster.runtime = replace(cluster.runtime, clock=clock)
    first = token(key, claims_of("admin"))
    lifetime = {"oauthbearer.connections.max.reauth.ms": "500"}
    cluster.start(1, 2, **bearer_settings(tmp_path, key, first, **lifetime))
    create(cluster, "t", 1, 2)

    (tmp_path / "token").write_text(token(key, claims_of("admin", exp=now_s() + 4 * HOUR_S)))
    clock.ahead_ms = 2 * HOUR_S * 1000
    sessions_end_ms = clock.monotonic_ms() + 600
    cluster.until(lambda: clock.monotonic_ms() > sessions_end_ms, "the sessions have ended")

    produce(cluster, 100)
    assert [cluster.end(broker_id, "t") for broker_id in (1, 2)] == [100, 100]
    assert set(cluster.state("t").isr) == {1, 2}
    assert not any("invalid_token" in it for it in cluster.trace.warnings)


def test_broker_with_an_expired_token_replicates_when_it_has_a_good_one(
    cluster, key, tmp_path, monkeypatch
):
    monkeypatch.setattr(RecurringWarnings.__init__, "__defaults__", (0,))
    good = token(key, claims_of("admin"))
    cluster.start(1, 2, **bearer_settings(tmp_path, key, good))
    create(cluster, "t", 1, 2)
    produce(cluster, 10)
    cluster.stop(2)
    wait_in_sync(cluster, 1)
    produce(cluster, 10)
    expired = token(key, claims_of("admin", iat=1, exp=2))
    cluster.start(2, **bearer_settings(tmp_path, key, expired, file_name="bad"))
    cluster.until(lambda: any("invalid_token" in it for it in cluster.trace.warnings), "the reason")
    assert not any(expired in it for it in cluster.trace.warnings)
    assert set(cluster.state("t").isr) == {1}
    (tmp_path / "bad").write_text(good)
    wait_in_sync(cluster, 1, 2)
    assert cluster.end(2, "t") == 20
