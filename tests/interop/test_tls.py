"""TLS with real clients: confluent-kafka, kafka-python, aiokafka and kctl's own, over SSL, SASL_SSL
and with client certificates; wrong settings fail with their cause."""

import asyncio
import signal
import socket
import ssl
import stat
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kctl.admin.admin_client import AdminClient
from kctl.cli.serve.development_tls import development_tls
from kctl.errors import AuthenticationError, UnreachableError, UsageError
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.apache_kafka import free_port
from tests.support.certificates import TestCertificates
from tests.support.kctl_process import KctlBroker

TIMEOUT_S = 120
USERS = {"alice": "secret"}

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", params=["SSL", "SASL_SSL"])
def broker(request):
    pytest.importorskip("cryptography")
    users = USERS if request.param == "SASL_SSL" else None
    with KafkaBroker(topics=["orders"], users=users, security=request.param) as broker:
        yield broker


def consumed(config):
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                return message.value()
        return None
    finally:
        consumer.close()


def test_librdkafka_produces_transacts_and_joins_a_group(broker):
    config = broker.client_config()
    producer = Producer({**config, "transactional.id": "t"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"x" * 100_000)
    producer.commit_transaction(TIMEOUT_S)
    assert len(consumed(config)) > 0


def test_kafka_python(broker):
    config = broker.kafka_python_config()
    producer = KafkaProducer(**config)
    producer.send("orders", b"tea").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(**config, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    consumer.assign([TopicPartition("orders", 0)])
    assert next(iter(consumer)).value is not None
    consumer.close()


def test_aiokafka(broker):
    config = broker.kafka_python_config()
    context = ssl.create_default_context(cafile=config.pop("ssl_cafile"))

    async def run():
        producer = AIOKafkaProducer(**config, ssl_context=context)
        await producer.start()
        try:
            await producer.send_and_wait("orders", b"tea")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            "orders", **config, ssl_context=context, group_id="a", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            return (await consumer.getone()).value
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(run(), TIMEOUT_S)) is not None


def topics_of(config):
    """What kctl's own client lists."""
    runtime = make_runtime(NullTrace())
    config = dict(config)
    port = config.pop("bootstrap.servers").rpartition(":")[2]

    async def run():
        client = AdminClient.connect(
            runtime, [("127.0.0.1", int(port))], properties=config, timeout_ms=10_000
        )
        try:
            return [it.name for it in await client.topics.list_topics()]
        finally:
            client.close()

    try:
        return runtime.scheduler.run_until(runtime.scheduler.spawn(run()))
    finally:
        runtime.scheduler.close()


def test_kctls_client_with_the_settings_of_either_family(broker):
    assert "orders" in topics_of(broker.client_config())
    assert "orders" in topics_of(broker.java_properties())


def test_a_client_without_tls_learns_that_the_broker_speaks_it(broker):
    with pytest.raises(UnreachableError, match="TLS") as raised:
        topics_of({"bootstrap.servers": broker.bootstrap_servers})
    assert "security.protocol" in raised.value.hint


def test_a_client_with_tls_learns_that_the_broker_does_not_speak_it():
    with KafkaBroker() as plain:
        with pytest.raises(UnreachableError, match="TLS") as raised:
            topics_of({"bootstrap.servers": plain.bootstrap_servers, "security.protocol": "SSL"})
        assert "PLAINTEXT" in raised.value.hint
        assert any("speaks TLS, and listener PLAINTEXT" in line for line in plain.log_lines)


def test_a_broker_of_a_foreign_ca_is_not_trusted(broker, tmp_path):
    config = broker.client_config() | {"ssl.ca.location": TestCertificates(tmp_path).ca_file}
    with pytest.raises(AuthenticationError, match="CA that is not trusted"):
        topics_of(config)
    producer = Producer({**config, "error_cb": (errors := []).append})
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() in (
        KafkaError._SSL,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    )


def test_security_and_users_must_agree():
    with pytest.raises(UsageError, match="without users"):
        KafkaBroker(security="SASL_SSL")
    with pytest.raises(UsageError, match="with users"):
        KafkaBroker(security="SSL", users=USERS)
    with pytest.raises(UsageError, match="security='TLS'"):
        KafkaBroker(security="TLS")


class MutualTls(KctlBroker):
    """A `kctl serve` whose clients need certificates, between brokers as well."""

    def __init__(self, directory, certificates):
        super().__init__(directory)
        self.certificates = certificates
        self.tls_port = free_port()

    def _where(self):
        settings = {
            "listeners": f"SECURE://127.0.0.1:{self.tls_port}",
            "listener.security.protocol.map": "SECURE:SSL",
            "inter.broker.listener.name": "SECURE",
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/U,DEFAULT",
        }
        for name, value in {
            **self.certificates.broker_settings(),
            **self.certificates.client_settings(),
        }.items():
            settings[f"listener.name.secure.{name}"] = value
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={it}\n" for key, it in settings.items()))
        return ["--config", str(path)]


def test_client_certificates_and_reloaded_stores(tmp_path):
    # T18: a rotation of the broker's certificate, by SIGHUP.
    certificates = TestCertificates(tmp_path)
    with MutualTls(tmp_path, certificates) as broker:
        address = f"127.0.0.1:{broker.tls_port}"
        config = {
            "bootstrap.servers": address,
            "security.protocol": "SSL",
            "ssl.ca.location": certificates.ca_file,
        }
        with pytest.raises((AuthenticationError, UnreachableError)):
            topics_of(config)
        with_certificate = config | {
            "ssl.key.location": certificates.client_file,
            "ssl.certificate.location": certificates.client_file,
        }
        assert topics_of(with_certificate) == []
        producer = Producer(with_certificate)
        producer.produce("new", b"tea")
        assert producer.flush(TIMEOUT_S) == 0

        def served():
            context = ssl.create_default_context(cafile=certificates.ca_file)
            context.load_cert_chain(certificates.client_file)
            with (
                socket.create_connection(("127.0.0.1", broker.tls_port), TIMEOUT_S) as raw,
                context.wrap_socket(raw, server_hostname="localhost") as sock,
            ):
                return sock.getpeercert(binary_form=True)

        before = served()
        Path(certificates.broker_file).write_text("not a store")
        broker.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert served() == before
        certificates.issue("broker", "localhost", "127.0.0.1")
        broker.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT_S
        while served() == before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert served() != before


def test_serve_tls_makes_certificates_once_and_keeps_the_key_to_the_owner(tmp_path):
    # T37
    pytest.importorskip("cryptography")
    settings = development_tls(str(tmp_path))
    key_file = tmp_path / "tls" / "broker.pem"
    assert settings["ssl.keystore.location"] == str(key_file)
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(key_file.parent.stat().st_mode) == 0o700
    made = key_file.read_text()
    assert development_tls(str(tmp_path)) == settings
    assert key_file.read_text() == made
