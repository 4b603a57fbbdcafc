"""kctl and Apache Kafka 2.7.2 in one cluster with SASL_SSL, SCRAM and ACLs, restarted in turn under
load: nothing acknowledged is lost, and ACLs written by one kind bind the other (T25).

KCTL_SECURED_ROUNDS=5 goes round more often, kills brokers (`kill -9`) in every second round, and
does it all with an Apache controller, too.
"""

import os

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

pytest.importorskip("cryptography")

from tests.support.mixed_cluster import Load
from tests.support.secured_brokers import TIMEOUT_S, allow_all
from tests.support.secured_mixed_cluster import SecuredMixedCluster
from tests.support.zookeeper import running_zookeeper

ROUNDS = int(os.environ.get("KCTL_SECURED_ROUNDS", "1"))
CONTROLLERS = ("kctl", "apache") if ROUNDS > 1 else ("kctl",)
BROKERS = (1, 3, 4)
DENIED = "TOPIC_AUTHORIZATION_FAILED"
RECORDS_A_STEP = 300

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        cluster = SecuredMixedCluster(tmp_path, zookeeper.address)
        cluster.make_users()
        try:
            yield cluster
        finally:
            cluster.close()


def through(cluster, broker_id, user):
    """The settings of a client of one broker."""
    address = {"bootstrap.servers": cluster.address_of(broker_id)}
    return cluster.client_settings(user) | address


def produced(cluster, broker_id, user, topic):
    """The name of the error with which a record fails that the broker leads; None if it does not.

    A topic has a partition for each of BROKERS, in this order."""
    outcomes = []
    producer = Producer(through(cluster, broker_id, user) | {"message.timeout.ms": 20_000})
    producer.produce(
        topic, b"-1", partition=BROKERS.index(broker_id),
        on_delivery=lambda error, _: outcomes.append(error),
    )  # fmt: skip
    producer.flush(TIMEOUT_S)
    return outcomes[0] and outcomes[0].name()


def forbid(cluster, broker_id, user, topic):
    """Add a Deny through one broker."""
    admin = AdminClient(through(cluster, broker_id, "admin"))
    binding = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL,
        f"User:{user}", "*", AclOperation.WRITE, AclPermissionType.DENY,
    )  # fmt: skip
    for future in admin.create_acls([binding]).values():
        future.result(TIMEOUT_S)


def leave_and_return(cluster, load, broker_id, *, is_killed):
    before = load.count
    cluster.until(lambda: load.count > before + RECORDS_A_STEP, "load")
    (cluster.kill if is_killed else cluster.stop)(broker_id)
    cluster.until(
        lambda: all(
            leader not in (broker_id, -1) and broker_id not in isr
            for leader, isr in cluster.metadata("t").values()
        ),
        f"{broker_id} replaced",
    )
    count = load.count
    cluster.until(lambda: load.count > count + RECORDS_A_STEP, "load continues")
    cluster.start(broker_id)
    cluster.until_in_sync(BROKERS, "t")


@pytest.mark.parametrize("first", CONTROLLERS)
def test_secured_cluster_is_restarted_in_turn_under_load(cluster, first):
    """
    controller: `first`; partitions led by kctl 1, Apache 3 and 4, each on all three
    alice produces without end; mallory may not, at any broker
    each broker stops and returns; a Deny that one kind wrote binds the other kind
    """
    cluster.start(*(BROKERS if first == "kctl" else (3, 1, 4)))
    cluster.create("t", [1, 3, 4], [3, 4, 1], [4, 1, 3])
    cluster.create("u", [1, 3, 4], [3, 4, 1], [4, 1, 3])
    allow_all(cluster.client_settings(), "alice")
    for broker_id in BROKERS:
        cluster.until(lambda it=broker_id: produced(cluster, it, "alice", "u") is None, "alice may")
        assert produced(cluster, broker_id, "mallory", "t") == DENIED
    with Load(cluster.client_settings("alice"), "t", 3) as load:
        for turn in range(ROUNDS):
            for broker_id in BROKERS:
                leave_and_return(cluster, load, broker_id, is_killed=turn % 2 == 1)
                assert produced(cluster, broker_id, "mallory", "t") == DENIED
    assert load.failed == []
    writer = 1 if first == "kctl" else 3
    forbid(cluster, writer, "alice", "u")
    for broker_id in BROKERS:
        cluster.until(lambda it=broker_id: produced(cluster, it, "alice", "u") == DENIED, DENIED)
    found = cluster.partitions("t", 3)
    for partition, acknowledged in load.acknowledged.items():
        assert found[partition] == sorted(set(found[partition]))
        assert set(acknowledged) <= set(found[partition])
    cluster.close()
    for partition in range(3):
        assert len({cluster.digest(broker_id, "t", partition) for broker_id in BROKERS}) == 1
