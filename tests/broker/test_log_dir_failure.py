"""A log directory of a broker fails (KIP-112): others lead its partitions, the rest is served."""

from pathlib import Path

import pytest

from kctl.admin.topics import NewTopic
from kctl.broker.replication.log_dirs import describe_log_dirs
from kctl.broker.replication.partition import Role
from kctl.client.producer import NewRecord, Producer
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.work import at_once
from tests.support.broker_cluster import running_brokers

SETTINGS = {"replica_high_watermark_checkpoint_interval_ms": 50, "log_roll_ms": 10**9}


class TwoDirs:
    """Brokers 1 to 3, each with two log directories."""

    def __init__(self, cluster):
        self.cluster = cluster

    def start(self, *broker_ids):
        for broker_id in broker_ids:
            paths = [str(self.cluster.directory / f"{broker_id}-{n}") for n in (0, 1)]
            self.cluster.start(broker_id, log_dirs=",".join(paths), **SETTINGS)

    def create(self, topic, *assignment):
        replicas = {number: list(it) for number, it in enumerate(assignment)}
        admin = self.cluster.admin()
        (result,) = self.cluster.run(admin.topics.create([NewTopic(topic, assignment=replicas)]))
        assert result.error is None
        self.until_in_sync(topic, assignment)

    def until_in_sync(self, topic, assignment):
        self.cluster.until(
            lambda: all(
                sorted(self.cluster.state(topic, number).isr) == sorted(it)
                for number, it in enumerate(assignment)
            ),
            "all in sync",
        )

    def produce(self, topic, count, partition=None):
        producer = Producer(self.cluster.router(), topic)
        records = [NewRecord(value=b"%d" % n, partition=partition) for n in range(count)]
        results = self.cluster.run(producer.send(records))
        assert [result.error for result in results] == [None] * count

    def directory_of(self, broker_id, topic, number=0):
        return Path(self.cluster.partition(broker_id, topic, number).log.log_directory)

    def fail(self, path):
        """Make the next checkpoint fail: the directory is missing."""
        path.rename(path.with_suffix(".gone"))

    def restore(self, path):
        path.with_suffix(".gone").rename(path)

    def role(self, broker_id, topic, number=0):
        return self.cluster.partition(broker_id, topic, number).role


@pytest.fixture
def brokers(tmp_path):
    with running_brokers(tmp_path) as cluster:
        brokers = TwoDirs(cluster)
        brokers.start(1, 2)
        yield brokers


def test_a_leader_whose_directory_fails_is_replaced_and_still_leads_other_partitions(brokers):
    cluster = brokers.cluster
    assignment = [(1, 2), (1, 2)]
    brokers.create("t", *assignment)
    brokers.produce("t", 50)
    lost = brokers.directory_of(1, "t", 0)
    assert brokers.directory_of(1, "t", 1) != lost
    brokers.fail(lost)
    brokers.produce("t", 1, partition=0)
    cluster.until(lambda: cluster.state("t", 0).leader == 2, "a new leader")
    assert list(cluster.state("t", 0).isr) == [2]
    assert brokers.role(1, "t", 0) is Role.OFFLINE
    brokers.produce("t", 50)
    assert brokers.role(1, "t", 1) is Role.LEADER
    services = cluster.brokers[1].services
    notices = {it.path: it.error_code for it in at_once(describe_log_dirs(services.log_manager))}
    assert notices.pop(str(lost)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(notices.values()) == [0]
    assert cluster.run(services.cluster_store.get_log_dir_event_names()) == []

    cluster.stop(1)
    brokers.restore(lost)
    brokers.start(1)
    brokers.until_in_sync("t", assignment)
    for number in (0, 1):
        cluster.until(
            lambda number=number: cluster.end(1, "t", number) == cluster.end(2, "t", number),
            "caught up",
        )


def test_a_follower_whose_directory_fails_leaves_the_isr_at_once(brokers):
    """Not only after replica.lag.time.max.ms: acks=all does not wait for a replica that cannot
    fetch."""
    cluster = brokers.cluster
    brokers.create("t", (1, 2), (1, 2))
    brokers.fail(brokers.directory_of(2, "t", 0))
    brokers.produce("t", 50, partition=0)
    cluster.until(lambda: list(cluster.state("t", 0).isr) == [1], "alone in sync")
    assert brokers.role(2, "t", 0) is Role.OFFLINE
    brokers.produce("t", 50)


def test_the_only_replica_in_a_failed_directory_leaves_its_partition_without_a_leader(brokers):
    cluster = brokers.cluster
    brokers.create("t", (2,), (2,))
    brokers.produce("t", 10)
    lost = brokers.directory_of(2, "t", 0)
    brokers.fail(lost)
    cluster.brokers[2].services.log_manager.handle_log_dir_failure(str(lost))
    cluster.until(lambda: cluster.state("t", 0).leader == -1, "offline")
    assert list(cluster.state("t", 0).isr) == [2]
    brokers.produce("t", 10, partition=1)
    cluster.stop(2)
    brokers.restore(lost)
    brokers.start(2)
    cluster.until(lambda: cluster.state("t", 0).leader == 2, "back")
    brokers.produce("t", 10)


def test_the_controllers_own_directory_may_fail(brokers):
    """It informs itself through the same znode."""
    cluster = brokers.cluster
    assert cluster.brokers[1].services.controller.is_active
    brokers.create("t", (1, 2))
    brokers.fail(brokers.directory_of(1, "t"))
    brokers.produce("t", 1)
    cluster.until(lambda: cluster.state("t").leader == 2, "a new leader")
    assert cluster.brokers[1].services.controller.is_active


def test_new_topics_are_created_in_the_remaining_directories(brokers):
    cluster = brokers.cluster
    brokers.create("t", (1, 2), (1, 2))
    lost = brokers.directory_of(1, "t", 0)
    left = brokers.directory_of(1, "t", 1)
    brokers.fail(lost)
    brokers.produce("t", 1, partition=0)
    cluster.until(lambda: brokers.role(1, "t", 0) is Role.OFFLINE, "offline")
    brokers.create("later", (1, 2), (2, 1))
    assert {brokers.directory_of(1, "later", n) for n in (0, 1)} == {left}
    brokers.produce("later", 20)


def test_a_coordinator_without_its_log_releases_its_groups(brokers):
    """Otherwise their members would stay with it and could not commit."""
    cluster = brokers.cluster
    services = [cluster.brokers[broker_id].services for broker_id in (1, 2)]
    brokers.create("__consumer_offsets", (1, 2))

    def answers():
        request = HeartbeatRequest(group_id="g", member_id="m")
        return [it.group_coordinator.heartbeat(request) for it in services]

    is_here, is_not = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR
    cluster.until(lambda: answers() == [is_here, is_not], "coordinated by 1")
    lost = brokers.directory_of(1, "__consumer_offsets")
    brokers.fail(lost)
    services[0].log_manager.handle_log_dir_failure(str(lost))
    cluster.until(lambda: answers() == [is_not, is_here], "coordinated by 2")
