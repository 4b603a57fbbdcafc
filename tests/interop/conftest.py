"""Brokers for tests with real clients: the same test runs on kctl and on Apache Kafka 2.7.2."""

import uuid

import pytest

from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

SETTINGS = ("-c", "group.initial.rebalance.delay.ms=0")


@pytest.fixture(scope="session")
def kctl_broker(tmp_path_factory):
    """A `kctl serve` that all tests of the session share."""
    with KctlBroker(tmp_path_factory.mktemp("kctl"), *SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def apache_broker(tmp_path_factory):
    """A broker of Apache Kafka 2.7.2 that all tests of the session share."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        apache_kafka.apache_broker(tmp_path_factory.mktemp("apache"), zookeeper.address) as address,
    ):
        yield address


@pytest.fixture(params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)], scope="session")
def bootstrap(request):
    """The address of a kctl broker, then of an Apache Kafka 2.7.2 broker."""
    if request.param == "kctl":
        return request.getfixturevalue("kctl_broker").address
    return request.getfixturevalue("apache_broker")


@pytest.fixture
def topic(request):
    """A topic name of the test's own."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:8]}"[:200]
