"""OAUTHBEARER with real clients: confluent-kafka, kafka-python, aiokafka, kctl's own and, marked
`kafka`, Apache Kafka's log in to kctl with signed and with unsecured tokens; kctl's client logs in
to Apache Kafka 2.7.2 with unsecured tokens, the only ones that it accepts."""

import asyncio
import time

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from kctl.admin.admin_client import AdminClient
from kctl.configs.broker_config import BrokerConfig, parse_properties
from kctl.errors import AuthenticationError, UsageError
from kctl.runtime.future import sleep
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support import apache_kafka
from tests.support.aiokafka_clients import started
from tests.support.apache_kafka import free_port
from tests.support.identity_provider import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    ISSUER,
    RsaKey,
    claims_of,
    now_s,
    running_identity_provider,
    token,
)
from tests.support.kctl_process import serve_to_end
from tests.support.secured_brokers import SaslApache, SaslKctl, sasl_settings
from tests.support.secured_clients import EXPECTED, PYTHON_STORIES, Login
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

TIMEOUT_S = 120
JAAS = "sasl_plaintext.oauthbearer.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
UNSECURED = f'{MODULE} required unsecuredLoginStringClaim_sub="alice";'

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def provider():
    with running_identity_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def signed(tmp_path_factory, provider):
    """A broker that accepts the provider's tokens."""
    prefix = "sasl_plaintext.oauthbearer.sasl.oauthbearer."
    settings = {
        JAAS: f"{MODULE} required;",
        f"{prefix}jwks.endpoint.url": f"{provider.url}/jwks",
        f"{prefix}expected.audience": AUDIENCE,
        f"{prefix}expected.issuer": ISSUER,
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    }
    with SaslKctl(tmp_path_factory.mktemp("signed"), **settings) as broker:
        yield broker


UNSECURED_SETTINGS = {
    JAAS: f'{MODULE} required unsecured="true" unsecuredValidatorAllowableClockSkewMs="3000";',
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
}


@pytest.fixture(scope="module")
def unsecured(tmp_path_factory):
    """A broker that accepts unsecured tokens."""
    with SaslKctl(tmp_path_factory.mktemp("unsecured"), **UNSECURED_SETTINGS) as broker:
        yield broker


def topics_of(address, properties):
    """The topics that kctl's client lists."""
    runtime = make_runtime(NullTrace())
    host, _, port = address.rpartition(":")
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    admin = AdminClient.connect(runtime, [(host, int(port))], 120_000, {**security, **properties})

    async def names():
        return [found.name for found in await admin.topics.list_topics()]

    try:
        return runtime.scheduler.run_until(runtime.scheduler.spawn(names()))
    finally:
        admin.close()
        runtime.scheduler.close()


def client_credentials(provider, secret=CLIENT_SECRET):
    return {
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.login.callback.handler.class": HANDLER,
        "sasl.jaas.config": f'{MODULE} required clientId="{CLIENT_ID}" clientSecret="{secret}"'
        ' scope="produce";',
    }


def test_kctl_gets_tokens_from_an_endpoint(signed, provider):
    assert isinstance(topics_of(signed.address, client_credentials(provider)), list)
    assert provider.grants[-1]["scope"] == ["produce"]
    by_other_names = {
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
    }
    count = len(provider.grants)
    assert isinstance(topics_of(signed.address, by_other_names), list)
    # All connections of a client share a token.
    assert len(provider.grants) == count + 1


def test_refused_grant_shows_no_secret(signed, provider):
    with pytest.raises(AuthenticationError, match="HTTP status 401") as raised:
        topics_of(signed.address, client_credentials(provider, "wrong"))
    assert "wrong" not in str(raised.value)
    assert "secret of the provider" not in str(raised.value)


def token_file(path, text):
    path.write_text(text + "\n")
    return {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}


def test_kctl_reads_a_token_from_a_file(signed, provider, tmp_path):
    good = token(provider.keys[0], claims_of("alice"))
    assert isinstance(topics_of(signed.address, token_file(tmp_path / "good", good)), list)
    expired = token(provider.keys[0], claims_of("alice", iat=1, exp=2))
    with pytest.raises(AuthenticationError, match=r"rejects user alice: .*invalid_token") as raised:
        topics_of(signed.address, token_file(tmp_path / "expired", expired))
    assert expired not in str(raised.value)
    assert expired not in signed.errors


def test_new_key_of_the_provider_is_not_known_at_once(signed, provider, tmp_path):
    """The unknown key causes a fetch, but not within a minute of the last one."""
    other = token(RsaKey("second"), claims_of("alice"))
    with pytest.raises(AuthenticationError, match="invalid_token"):
        topics_of(signed.address, token_file(tmp_path / "token", other))


def librdkafka(address, text):
    """Settings of confluent-kafka with a callback that returns `text`."""
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (text, now_s() + 3600),
    }


def test_librdkafka_logs_in_by_callback(signed, provider, topic):
    good = token(provider.keys[0], claims_of("alice"))
    producer = Producer(librdkafka(signed.address, good))
    producer.produce(topic, b"x")
    assert producer.flush(TIMEOUT_S) == 0


def test_librdkafka_learns_that_its_token_is_rejected(signed, provider):
    errors = []
    bad = token(provider.keys[0], claims_of("alice", aud="mail"))
    producer = Producer({**librdkafka(signed.address, bad), "error_cb": errors.append})
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_librdkafka_logs_in_with_an_unsecured_token(unsecured, topic):
    producer = Producer(
        {
            "bootstrap.servers": unsecured.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=alice extension_traceId=123",
        }
    )
    producer.produce(topic, b"x")
    assert producer.flush(TIMEOUT_S) == 0


class KafkaPythonProvider(KafkaPythonTokenProvider):
    """The token of kafka-python."""

    text = ""

    def token(self):
        return self.text


def test_kafka_python_logs_in(signed, provider, topic):
    tokens = KafkaPythonProvider()
    tokens.text = token(provider.keys[0], claims_of("alice"))
    producer = KafkaProducer(
        bootstrap_servers=signed.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=tokens,
    )
    assert producer.send(topic, b"x").get(TIMEOUT_S).offset == 0
    producer.close()


class AiokafkaProvider(AbstractTokenProvider):
    """The token of aiokafka."""

    def __init__(self, text):
        self.text = text

    async def token(self):
        return self.text


def test_aiokafka_logs_in(signed, provider, topic):
    tokens = AiokafkaProvider(token(provider.keys[0], claims_of("alice")))

    async def story():
        producer = AIOKafkaProducer(
            bootstrap_servers=signed.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=tokens,
        )
        async with started(producer):
            return (await producer.send_and_wait(topic, b"x")).offset

    assert asyncio.run(asyncio.wait_for(story(), TIMEOUT_S)) == 0


@pytest.mark.parametrize("client", PYTHON_STORIES)
def test_clients_join_groups_and_transact(signed, provider, topic, client):
    """As in the cells of test_secured_clients.py, which are marked `kafka`."""
    login = Login(
        name=client, bootstrap=signed.address, protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER",
        user="alice", password="", token=token(provider.keys[0], claims_of("alice")),
        ca_file="", client_file="", topic=topic,
    )  # fmt: skip
    assert PYTHON_STORIES[client](login) == EXPECTED


# --- unsecured tokens, on demand only


def test_unsecured_tokens_are_announced_at_the_start(unsecured, signed):
    assert "any client can log in as any user" in unsecured.errors
    assert "any client can log in as any user" not in signed.errors


def test_kctl_logs_in_with_an_unsecured_token(unsecured):
    assert isinstance(topics_of(unsecured.address, {"sasl.jaas.config": UNSECURED}), list)
    by_other_names = {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=alice lifeSeconds=60 scope=a,b",
    }
    assert isinstance(topics_of(unsecured.address, by_other_names), list)


def test_unsecured_token_is_rejected_where_tokens_are_signed(signed):
    """T38."""
    with pytest.raises(AuthenticationError, match="invalid_token"):
        topics_of(signed.address, {"sasl.jaas.config": UNSECURED})


# --- Apache Kafka


@pytest.fixture(scope="module")
def apache(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    settings = {**UNSECURED_SETTINGS, JAAS: UNSECURED}
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        broker = SaslApache(tmp_path_factory.mktemp("apache"), zookeeper.address, **settings)
        broker.launch()
        try:
            broker.wait_until_ready()
            yield broker
        finally:
            broker.stop()


@pytest.mark.kafka
def test_kctl_logs_in_to_apache(apache):
    assert isinstance(topics_of(apache.sasl_address, {"sasl.jaas.config": UNSECURED}), list)
    expired = f"{UNSECURED[:-1]} unsecuredLoginLifetimeSeconds=0.001;"

    def is_rejected():
        """Whether the token, which lives for a millisecond, has arrived too late."""
        try:
            topics_of(apache.sasl_address, {"sasl.jaas.config": expired})
        except AuthenticationError as error:
            return '"status":"invalid_token"' in str(error)
        return False

    wait_for(is_rejected, lambda: "no expired token is rejected")


@pytest.mark.kafka
def test_apache_logs_in_to_kctl(unsecured, tmp_path):
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={UNSECURED}\n"
    )
    apache_kafka.run_tool(
        "kafka.admin.TopicCommand", "--bootstrap-server", unsecured.address,
        "--command-config", properties, "--create", "--topic", "by-java",
    )  # fmt: skip
    assert "by-java" in topics_of(unsecured.address, {"sasl.jaas.config": UNSECURED})


# --- sessions


@pytest.mark.slow
def test_sessions_end_with_their_tokens_and_are_renewed(tmp_path, provider):
    """T19: a producer keeps its connection over several lives of its tokens."""
    settings = {
        **UNSECURED_SETTINGS,
        "sasl_plaintext.oauthbearer.connections.max.reauth.ms": 60_000,
    }
    with SaslKctl(tmp_path, **settings) as broker:
        runtime = make_runtime(NullTrace())
        host, _, port = broker.address.rpartition(":")
        jaas_config = f"{UNSECURED[:-1]} unsecuredLoginLifetimeSeconds=2;"
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": jaas_config,
        }
        admin = AdminClient.connect(runtime, [(host, int(port))], 120_000, properties)

        async def story():
            deadline_ms = runtime.clock.monotonic_ms() + 5_000
            while runtime.clock.monotonic_ms() < deadline_ms:
                await admin.topics.list_topics()
                await sleep(runtime.scheduler, 50)

        try:
            runtime.scheduler.run_until(runtime.scheduler.spawn(story()))
        finally:
            admin.close()
            runtime.scheduler.close()


# --- refusals at the start


@pytest.mark.parametrize(
    "options",
    [
        {},
        {JAAS: f"{MODULE} required;"},
        {
            JAAS: f'{MODULE} required unsecured="true";',
            "sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://idp/jwks",
        },
        {"sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "http://idp/jwks"},
    ],
)
def test_broker_without_a_rule_for_tokens_does_not_start(options):
    settings = {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", **options}
    values = sasl_settings(free_port(), free_port(), **settings)
    properties = parse_properties("".join(f"{name}={it}\n" for name, it in values.items()))
    with pytest.raises(UsageError, match=r"OAUTHBEARER|jwks"):
        BrokerConfig.from_properties(properties)


def test_broker_without_its_keys_does_not_start(tmp_path):
    """T38: the JWKS is down."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (
            f"http://127.0.0.1:{free_port()}/jwks"
        ),
    }
    path = tmp_path / "server.properties"
    values = sasl_settings(free_port(), free_port(), **settings)
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    ended = serve_to_end("--config", path, "--data-dir", tmp_path / "data")
    assert ended.returncode != 0
    assert "jwks.endpoint.url" in ended.stderr
