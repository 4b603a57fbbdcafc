"""Brokers for tests with real clients: the same test runs on kctl and on Apache Kafka 2.7.2."""

import time
import uuid

import pytest

from kctl.protocol.messages import create_topics, delete_topics, find_coordinator
from tests.support import apache_kafka
from tests.support.broker_client import Twins
from tests.support.kctl_process import KEEPS_OLD_RECORDS, KEEPS_OLD_RECORDS_FLAGS, KctlBroker
from tests.support.twin_requests import fetched, wait_for_topic
from tests.support.zookeeper import running_zookeeper

SETTINGS = ("-c", "group.initial.rebalance.delay.ms=0", *KEEPS_OLD_RECORDS_FLAGS)


@pytest.fixture(scope="session")
def kctl_broker(tmp_path_factory):
    """A `kctl serve` that all tests of the session share."""
    with KctlBroker(tmp_path_factory.mktemp("kctl"), *SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def apache_directory(tmp_path_factory):
    """The directory of `apache_broker`, with its server.log; other packages have others."""
    return tmp_path_factory.mktemp("apache")


@pytest.fixture(scope="session")
def apache_broker(tmp_path_factory, apache_directory):
    """A broker of Apache Kafka 2.7.2 that all tests of the session share."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        apache_kafka.apache_broker(
            apache_directory, zookeeper.address, settings=KEEPS_OLD_RECORDS
        ) as address,
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


@pytest.fixture(scope="module")
def second_kctl(tmp_path_factory):
    with KctlBroker(tmp_path_factory.mktemp("second"), *SETTINGS) as broker:
        yield broker.address


@pytest.fixture(
    params=["second_kctl", pytest.param("apache_broker", marks=pytest.mark.kafka)],
    ids=["kctl", "apache"],
    scope="module",
)
def twins(request, kctl_broker):
    pair = Twins(kctl_broker.address, request.getfixturevalue(request.param))
    yield pair
    pair.close()


@pytest.fixture
def new_topic(twins):
    """Create topics on both brokers, and delete them after the test."""
    made = []

    def make(partitions=1, **configs):
        name = f"t-{uuid.uuid4().hex[:12]}"
        made.append(name)
        answer = twins.ask(
            create_topics.CreateTopicsRequest(
                topics=[
                    create_topics.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            create_topics.CreateableTopicConfig(
                                name=key.replace("_", "."), value=value
                            )
                            for key, value in configs.items()
                        ],
                    )
                ]
            ),
            4,
        )
        assert answer["topics"][0]["error_code"] == 0, answer
        return name

    yield make
    twins.ask(delete_topics.DeleteTopicsRequest(topic_names=made, timeout_ms=20_000), 3)


@pytest.fixture
def group(twins):
    """A group that both brokers coordinate; __consumer_offsets is there."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    request = find_coordinator.FindCoordinatorRequest(key=name)
    deadline = time.monotonic() + 120
    while any(answer["error_code"] for answer in twins.both(request)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    wait_for_topic(twins, "__consumer_offsets")
    while fetched(twins, name, None, 7)["error_code"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return name
