"""Settings of a topic changed through each broker in turn: none is lost."""

import pytest

from kctl.protocol.messages import describe_configs, incremental_alter_configs
from tests.support import apache_kafka
from tests.support.broker_client import BrokerClient
from tests.support.mixed_cluster import MixedCluster
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPIC = 2
SETTINGS = (
    "retention.ms", "segment.ms", "flush.ms", "segment.jitter.ms", "file.delete.delay.ms",
    "delete.retention.ms", "retention.bytes", "flush.messages",
)  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        cluster = MixedCluster(tmp_path, zookeeper.address)
        try:
            yield cluster
        finally:
            cluster.close()


def set_one(client, name, value):
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[incremental_alter_configs.AlterableConfig(name=name, value=value)],
            )
        ]
    )
    assert client.ask(request).responses[0].error_code == 0


def described(client):
    resource = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=None
    )
    answer = client.ask(describe_configs.DescribeConfigsRequest(resources=[resource]))
    return {c.name: c.value for c in answer.results[0].configs if c.config_source == 1}


@pytest.mark.parametrize("brokers", [(1, 2), (1, 2, 3)], ids=["kctl", "mixed"])
def test_each_change_finds_the_configs_that_other_brokers_have_answered(cluster, brokers):
    cluster.start(*brokers)
    cluster.create("t", [1, 2])
    clients = [BrokerClient(cluster.addresses[broker_id]) for broker_id in brokers]
    for round_number in range(5):
        expected = {}
        for number, name in enumerate(SETTINGS):
            value = str(1000 * (round_number + 1) + number)
            set_one(clients[number % len(clients)], name, value)
            expected[name] = value
            # Described by the broker that hears of it last.
            assert described(clients[(number + 1) % len(clients)]).items() >= expected.items()
    for client in clients:
        client.close()
