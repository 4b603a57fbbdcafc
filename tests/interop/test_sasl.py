"""SASL with real clients: confluent-kafka, kafka-python, aiokafka and kctl's own log in to kctl
and, marked `kafka`, to Apache Kafka 2.7.2, by PLAIN and SCRAM; wrong passwords do not."""

import asyncio
import gc
import time
import warnings

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kctl.admin.admin_client import AdminClient as KctlAdmin
from kctl.errors import AuthenticationError
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support import apache_kafka
from tests.support.aiokafka_clients import started
from tests.support.secured_brokers import (
    MECHANISMS,
    USERS,
    SaslApache,
    SaslKctl,
    login_settings,
    logs_in,
    make_users,
)
from tests.support.zookeeper import running_zookeeper

TIMEOUT_S = 120
USER = "alice"

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.parametrize("mechanism", MECHANISMS),
]


@pytest.fixture(scope="module")
def kctl_with_sasl(tmp_path_factory):
    with SaslKctl(tmp_path_factory.mktemp("sasl")) as broker:
        make_users(broker.plain_address, broker.address)
        yield broker.address


@pytest.fixture(scope="module")
def apache_with_sasl(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        directory = tmp_path_factory.mktemp("apache")
        broker = SaslApache(directory, zookeeper.address).launch()
        try:
            broker.wait_until_ready()
            make_users(broker.address, broker.sasl_address)
            yield broker.sasl_address
        finally:
            broker.stop()


@pytest.fixture(params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)], scope="module")
def address(request):
    return request.getfixturevalue(f"{request.param}_with_sasl")


def librdkafka(address, mechanism, password=USERS[USER]):
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def python_settings(address, mechanism, password=USERS[USER]):
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


def test_librdkafka_produces_in_transactions_and_consumes_in_a_group(address, mechanism, topic):
    settings = librdkafka(address, mechanism)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    producer.commit_transaction(TIMEOUT_S)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, deadline = [], time.monotonic() + TIMEOUT_S
    while len(found) < 100 and time.monotonic() < deadline:
        found += [m.value() for m in consumer.consume(100, 0.2) if m.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert found == [b"%d" % number for number in range(100)]


def test_librdkafka_learns_that_its_password_is_wrong(address, mechanism):
    errors = []
    producer = Producer({**librdkafka(address, mechanism, "wrong"), "error_cb": errors.append})
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_kafka_python_produces_and_consumes(address, mechanism, topic):
    settings = python_settings(address, mechanism)
    producer = KafkaProducer(**settings)
    sent = [producer.send(topic, b"%d" % number) for number in range(20)]
    producer.flush(TIMEOUT_S)
    assert [future.get(TIMEOUT_S).offset for future in sent] == list(range(20))
    producer.close()
    # Assigned by hand: kafka-python 3.0 may not fetch after a second rebalance.
    consumer = KafkaConsumer(group_id=topic, auto_offset_reset="earliest", **settings)
    consumer.assign([TopicPartition(topic, 0)])
    found, deadline = [], time.monotonic() + TIMEOUT_S
    while len(found) < 20 and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            found += [record.value for record in records]
    consumer.commit()
    consumer.close()
    assert found == [b"%d" % number for number in range(20)]


def test_aiokafka_produces_and_consumes(address, mechanism, topic):
    settings = python_settings(address, mechanism)

    async def story():
        async with started(AIOKafkaProducer(**settings)) as producer:
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number)
        consumer = AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        async with started(consumer):
            return [(await consumer.getone()).value for _ in range(20)]

    found = asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))
    assert found == [b"%d" % number for number in range(20)]


def run_kctl(address, properties, ask):
    """The result of `ask(admin)` on a loop of its own."""
    runtime = make_runtime(NullTrace())
    host, _, port = address.rpartition(":")
    admin = KctlAdmin.connect(runtime, [(host, int(port))], 120_000, properties)
    try:
        return runtime.scheduler.run_until(runtime.scheduler.spawn(ask(admin)))
    finally:
        admin.close()
        runtime.scheduler.close()


def test_kctl_administers(address, mechanism, topic):
    properties = {**librdkafka(address, mechanism), "client.id": "kctl-test"}
    del properties["bootstrap.servers"]

    async def names(admin):
        return [found.name for found in await admin.topics.list_topics()]

    assert isinstance(run_kctl(address, properties, names), list)
    wrong = {**properties, "sasl.password": "wrong"}
    with pytest.raises(AuthenticationError, match="rejects user alice"):
        run_kctl(address, wrong, names)


def test_aiokafka_that_does_not_log_in_leaves_nothing_open(address, mechanism):
    settings = python_settings(address, mechanism, "wrong")

    async def story():
        for client in (AIOKafkaProducer(**settings), AIOKafkaConsumer(**settings)):
            with pytest.raises(KafkaConnectionError):
                async with started(client):
                    pass

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))
        gc.collect()
    assert [it.message for it in caught if issubclass(it.category, ResourceWarning)] == []


def test_a_user_logs_in_once_the_broker_knows_the_credential(address, mechanism):
    assert logs_in(address, login_settings(mechanism, USER, USERS[USER]))
    assert not logs_in(address, login_settings(mechanism, USER, "wrong"))
