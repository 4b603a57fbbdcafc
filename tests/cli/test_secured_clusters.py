"""kctl's commands and its admin client on secured clusters: every mechanism of SASL with and
without TLS, client certificates, and TLS alone, on kctl and on Apache Kafka 2.7.2 and 3.9."""

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic

from kctl.admin.admin_client import AdminClient
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support import apache_kafka
from tests.support.zookeeper import running_zookeeper

pytest.importorskip("cryptography")

from tests.support.secured_brokers import TIMEOUT_S, USERS, allow_all, make_users
from tests.support.secured_cells import (
    CELLS,
    OAUTHBEARER,
    ONE_WAY_TLS,
    UNSECURED_LOGIN,
    USER,
    Secrets,
    SecuredApache,
    SecuredKctl,
    in_properties,
)

KINDS = ("kctl", "2.7.2", "3.9.1")

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    return Secrets(tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="module", params=KINDS)
def broker(request, tmp_path_factory, secrets):
    directory = tmp_path_factory.mktemp("broker")
    kind = request.param
    if kind == "kctl":
        with SecuredKctl(directory, secrets) as broker:
            yield with_users(broker, kind)
        return
    if apache_kafka.libs(kind) is None:
        pytest.skip(f"no jars: python tests/support/apache_kafka.py {kind}")
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        broker = SecuredApache(directory, zookeeper.address, secrets, kind).launch()
        try:
            yield with_users(broker.wait_until_ready(), kind)
        finally:
            broker.stop()


def with_users(broker, kind):
    make_users(broker.address_of("PLAINTEXT"), broker.address_of("SASL_PLAINTEXT"))
    plain = {"bootstrap.servers": broker.address_of("PLAINTEXT")}
    allow_all(plain, USER)
    broker.kind = kind
    admin = ConfluentAdmin(plain)
    admin.create_topics([NewTopic("known", 1, 1)])["known"].result(TIMEOUT_S)
    return broker


@pytest.fixture(params=(*CELLS, ONE_WAY_TLS), ids=str)
def cell(request):
    return request.param


def java_properties(broker, cell, secrets):
    """The properties of Java's clients."""
    settings = secrets.java_settings(cell)
    if cell.has_signed_tokens and secrets.accepts_signed_tokens(broker.kind):
        settings["sasl.oauthbearer.token.endpoint.url"] = secrets.token_file.as_uri()
    elif cell.mechanism == OAUTHBEARER:
        settings["sasl.jaas.config"] = UNSECURED_LOGIN
    return settings


def librdkafka_properties(broker, cell, secrets):
    """The same in librdkafka's names."""
    settings = {"security.protocol": cell.protocol.lower()}
    if cell.protocol != "SASL_PLAINTEXT":
        settings["ssl.ca.location"] = secrets.ca_file
    if cell.has_certificate:
        settings["ssl.key.location"] = settings["ssl.certificate.location"] = secrets.client_file
    if not cell.mechanism:
        return settings
    settings["sasl.mechanisms"] = cell.mechanism
    if cell.mechanism != OAUTHBEARER:
        return settings | {"sasl.username": USER, "sasl.password": USERS[USER]}
    if cell.has_signed_tokens and secrets.accepts_signed_tokens(broker.kind):
        return settings | {"sasl.oauthbearer.token.endpoint.url": secrets.token_file.as_uri()}
    return settings | {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={USER}",
    }


def test_commands_with_the_file_of_javas_tools(kctl, broker, cell, secrets, tmp_path):
    path = tmp_path / "client.properties"
    settings = java_properties(broker, cell, secrets)
    settings["bootstrap.servers"] = broker.address_of(cell.listener)
    path.write_text("".join(f"{name}={in_properties(it)}\n" for name, it in settings.items()))
    topic = f"t-{cell}"
    values = tmp_path / "values"

    def ran(*arguments):
        done = kctl(*arguments, "--command-config", path)
        assert done.status == 0, done.err
        return done

    ran("topic", "create", topic, "-p", "1")
    values.write_text("plain\n")
    ran("produce", topic, "--file", values)
    values.write_text("in a transaction\n")
    ran("produce", topic, "--file", values, "--transactional-id", topic)
    found = ran("consume", topic, "--group", topic, "--exit", "--read-committed")
    assert found.lines == ["plain", "in a transaction"]
    (group,) = [it for it in ran("group", "list", "-o", "json").documents if it["group"] == topic]
    assert group["state"] == "Empty"
    bindings = ran("acl", "list", "-o", "json").documents
    assert any(it["principal"] == f"User:{USER}" for it in bindings)
    ran("user", "list", "-o", "json")


def test_admin_client_with_the_names_of_librdkafka(broker, cell, secrets):
    properties = librdkafka_properties(broker, cell, secrets)
    runtime = make_runtime(NullTrace())
    host, _, port = broker.address_of(cell.listener).rpartition(":")
    admin = AdminClient.connect(runtime, [(host, int(port))], 20_000, properties)
    try:
        story = admin.topics.list_topics()
        names = [it.name for it in runtime.scheduler.run_until(runtime.scheduler.spawn(story))]
    finally:
        admin.close()
        runtime.scheduler.close()
    assert "known" in names
