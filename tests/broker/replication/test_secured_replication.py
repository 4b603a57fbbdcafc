"""Replication between brokers over TLS and SASL, where nothing but the brokers' principal may act
as one: brokers leave and return, and one that cannot log in says why."""

import pytest

pytest.importorskip("cryptography")

from kctl.admin.topics import NewTopic
from kctl.client.producer import NewRecord, Producer
from kctl.runtime.recurring_warnings import RecurringWarnings
from tests.support.broker_cluster import running_brokers
from tests.support.certificates import TestCertificates
from tests.support.secured_brokers import jaas

SCRAM = "SCRAM-SHA-512"
PASSWORD = "the brokers' own"
PROTOCOLS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")


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
