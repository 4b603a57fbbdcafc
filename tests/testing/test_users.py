"""Brokers whose clients log in: the settings of each client work, and wrong ones fail."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaProducer

from kctl.errors import UsageError
from kctl.protocol.sasl.jaas import parse_jaas_config
from kctl.testing.kafka_broker import KafkaBroker

TIMEOUT_S = 120
USERS = {"alice": 'a "b" \\c', "bob": "secret"}


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker(topics=["orders"], users=USERS) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", USERS)
def test_users_log_in_by_any_mechanism(broker, user, mechanism):
    with broker.assert_produces("orders", count=1):
        producer = Producer(broker.client_config(user, mechanism=mechanism))
        producer.produce("orders", f"{user} by {mechanism}")
        assert producer.flush(TIMEOUT_S) == 0


def test_users_stay_after_a_restart():
    with KafkaBroker(topics=["orders"], users=USERS) as broker:
        broker.restart()
        producer = Producer(broker.client_config("bob", mechanism="SCRAM-SHA-512"))
        producer.produce("orders", b"x")
        assert producer.flush(TIMEOUT_S) == 0


def test_clients_without_a_login_get_nowhere(broker):
    errors = []
    consumer = Consumer(
        {
            **broker.client_config("bob"),
            "sasl.password": "wrong",
            "group.id": "g",
            "error_cb": errors.append,
        }
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        consumer.poll(0.1)
    consumer.close()
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_settings_of_other_clients(broker):
    producer = KafkaProducer(**broker.kafka_python_config("alice"))
    assert producer.send("orders", b"x").get(TIMEOUT_S).partition == 0
    producer.close()
    properties = broker.java_properties("alice", mechanism="SCRAM-SHA-256")
    assert properties["security.protocol"] == "SASL_PLAINTEXT"
    options = parse_jaas_config(properties["sasl.jaas.config"]).options
    assert options == {"username": "alice", "password": USERS["alice"]}


def test_settings_of_a_broker_without_users():
    broker = KafkaBroker()
    with broker:
        assert broker.client_config() == {"bootstrap.servers": broker.bootstrap_servers}
        with pytest.raises(UsageError, match="not a user"):
            broker.client_config("alice")


@pytest.mark.parametrize("users", [{}, {"": "x"}, {"a": ""}, {"a b": "x"}, {"a=b": "x"}])
def test_users_that_cannot_be_configured(users):
    with pytest.raises(UsageError):
        KafkaBroker(users=users)


def test_unknown_user_and_mechanism(broker):
    with pytest.raises(UsageError, match="not a user of this broker"):
        broker.client_config("eve")
    with pytest.raises(UsageError, match="not a user of this broker"):
        broker.client_config()
    with pytest.raises(UsageError, match="mechanism='GSSAPI'"):
        broker.client_config("bob", mechanism="GSSAPI")


def test_factory_takes_users(kafka_broker_factory):
    broker = kafka_broker_factory(users={"carol": "x"})
    assert broker.client_config()["sasl.username"] == "carol"
