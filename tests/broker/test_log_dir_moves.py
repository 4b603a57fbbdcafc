"""Replicas move between the directories of brokers that lead and follow them."""

from pathlib import Path

import pytest

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.topics import NewTopic
from kctl.client.producer import NewRecord, Producer
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from tests.support.broker_cluster import running_brokers

TP = TopicPartition("t", 0)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Brokers:
    """Brokers 1 to 3 with two log directories each; t-0 is led by 1, and followed by 2."""

    def __init__(self, cluster):
        self.cluster = cluster
        # A slice of the copy has the size of one batch of `produce`.
        for broker_id in (1, 2, 3):
            paths = ",".join(str(cluster.directory / f"{broker_id}-{n}") for n in (0, 1))
            cluster.start(broker_id, log_dirs=paths, replica_fetch_max_bytes=2000)
        self.admin = cluster.admin()
        new = NewTopic("t", assignment={0: [1, 2]})
        (result,) = cluster.run(self.admin.topics.create([new]))
        assert result.error is None
        cluster.until(lambda: sorted(cluster.state("t").isr) == [1, 2], "in sync")

    def produce(self, count=100):
        producer = Producer(self.cluster.router(), "t")
        records = [NewRecord(value=b"x" * 100) for n in range(count)]
        results = self.cluster.run(producer.send(records))
        assert [result.error for result in results] == [None] * count

    def log(self, broker_id):
        return self.cluster.partition(broker_id, "t").log

    def other_dir(self, broker_id):
        manager = self.cluster.brokers[broker_id].services.log_manager
        (found,) = set(manager.live_log_dirs) - {self.log(broker_id).log_directory}
        return found

    def send(self, broker_id, log_dir):
        """Return the error code of the request to move the replica."""
        (outcome,) = self.cluster.run(self.admin.log_dirs.move({(TP, broker_id): log_dir})).values()
        return 0 if outcome is None else outcome.code

    def until_at(self, broker_id, log_dir):
        self.cluster.until(lambda: self.log(broker_id).log_directory == log_dir, "moved")

    def throttle(self, broker_id, rate):
        resource = ConfigResource(ResourceType.BROKER, str(broker_id))
        changes = ConfigChanges(set={RATE: rate}) if rate else ConfigChanges(delete=[RATE])
        (result,) = self.cluster.run(self.admin.configs.alter({resource: changes}))
        assert result.error is None
        quota = self.cluster.brokers[broker_id].services.alter_log_dirs.quota
        self.cluster.until(lambda: quota.rate == (int(rate) if rate else None), "throttled")

    def bytes_of(self, broker_id):
        directory = Path(self.log(broker_id).directory)
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


@pytest.fixture
def brokers(tmp_path):
    with running_brokers(tmp_path) as cluster:
        yield Brokers(cluster)


def test_leader_and_follower_move_while_records_are_produced(brokers):
    """All replicas stay in sync and identical, byte for byte."""
    brokers.produce()
    wanted = {broker_id: brokers.other_dir(broker_id) for broker_id in (1, 2)}
    for broker_id, log_dir in wanted.items():
        assert brokers.send(broker_id, log_dir) == 0
        brokers.produce()
    for broker_id, log_dir in wanted.items():
        brokers.until_at(broker_id, log_dir)
    brokers.produce()
    assert [brokers.cluster.end(broker_id, "t") for broker_id in (1, 2)] == [400, 400]
    assert sorted(brokers.cluster.state("t").isr) == [1, 2]
    assert brokers.bytes_of(1) == brokers.bytes_of(2)


def test_a_throttled_move_is_reported_and_its_rate_is_a_broker_config(brokers):
    for _ in range(5):
        brokers.produce(20)
    brokers.throttle(2, "1")
    log_dir = brokers.other_dir(2)
    assert brokers.send(2, log_dir) == 0

    def shown():
        found = brokers.cluster.run(brokers.admin.log_dirs.describe([2], ["t"]))
        return {it.path: [(r.is_future, r.offset_lag) for r in it.replicas] for it in found}

    brokers.cluster.until(lambda: shown()[log_dir] != [], "begun")
    ((is_future, lag),) = shown()[log_dir]
    assert is_future
    assert 0 < lag <= 100
    brokers.throttle(2, None)
    brokers.until_at(2, log_dir)
    assert shown()[log_dir] == [(False, 0)]


def test_a_future_replica_is_created_in_the_chosen_directory(brokers):
    brokers.produce()
    log_dir = str(brokers.cluster.directory / "3-1")
    assert brokers.send(3, log_dir) == ErrorCode.REPLICA_NOT_AVAILABLE
    (outcome,) = brokers.cluster.run(brokers.admin.reassignments.alter({TP: (1, 3)})).values()
    assert outcome is None
    brokers.cluster.until(lambda: sorted(brokers.cluster.state("t").isr) == [1, 3], "moved")
    assert brokers.log(3).log_directory == log_dir


def test_the_copy_of_a_replica_that_moves_to_another_broker_is_deleted(brokers):
    brokers.produce()
    brokers.throttle(2, "1")
    assert brokers.send(2, brokers.other_dir(2)) == 0
    brokers.cluster.run(brokers.admin.reassignments.alter({TP: (1, 3)}))
    manager = brokers.cluster.brokers[2].services.log_manager
    brokers.cluster.until(lambda: manager.get_log(TP) is None, "moved away")
    assert manager.futures.all() == []
    brokers.throttle(2, None)
    brokers.produce()


def test_a_move_continues_when_the_leader_changes(brokers):
    brokers.produce()
    brokers.throttle(2, "1")
    log_dir = brokers.other_dir(2)
    assert brokers.send(2, log_dir) == 0
    brokers.cluster.stop(1)
    brokers.cluster.until(lambda: brokers.cluster.leader("t") == 2, "2 leads")
    brokers.admin = brokers.cluster.admin()
    brokers.produce()
    brokers.throttle(2, None)
    brokers.until_at(2, log_dir)
    brokers.produce()
    assert brokers.cluster.end(2, "t") == 300
