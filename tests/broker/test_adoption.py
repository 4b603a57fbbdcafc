"""The adoption of topics in log directories by a new embedded store."""

import dataclasses

import pytest

from kctl.broker.adoption import adopt_topics, known_identity
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_manager import LogManager
from kctl.configs.broker_config import BrokerConfig
from kctl.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.runtime.real.disk import RealDisk
from kctl.storage.meta_properties import MetaProperties
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore
from tests.support import golden_logs
from tests.support.virtual_runtime import virtual_runtime

BROKER_ID = 0
CLUSTER_ID = "Q_r5DLx4Q6S6rdMT32SJpA"


class World:
    """An open log directory and an empty store."""

    def __init__(self, directory):
        self.runtime = dataclasses.replace(virtual_runtime(), disk=RealDisk())
        self.store = ClusterStore(EmbeddedStore.in_memory(self.runtime))
        self.run(self.store.ensure_persistent_paths())
        self.logs = LogManager(
            self.runtime, [str(directory)], LogConfig(), broker_id=BROKER_ID, cluster_id=CLUSTER_ID
        )
        self.logs.start()

    def run(self, coroutine):
        task = self.runtime.scheduler.spawn(coroutine)
        self.runtime.scheduler.settle()
        return task.result()

    def adopt(self):
        config = BrokerConfig.from_properties({})
        disk = self.runtime.disk
        return self.run(adopt_topics(disk, self.store, self.logs, BROKER_ID, config))

    def state(self, topic, partition):
        tp = TopicPartition(topic, partition)
        states = self.run(self.store.get_partition_states([tp]))
        return states[tp].leader_and_isr if tp in states else None


@pytest.fixture
def golden(tmp_path):
    return golden_logs.unpack("clean", tmp_path)


def test_topics_and_their_partitions_are_written_to_the_store(golden):
    world = World(golden)
    adoption = world.adopt()
    topics = world.run(world.store.get_all_topics())
    assert sorted(adoption.topics) == topics
    assert {"v0-none", "tx", "__consumer_offsets"} <= set(topics)
    assert not any(topic.startswith("to-be-deleted") for topic in topics)
    assignments = world.run(world.store.get_topic_assignments(["tx"]))
    assert assignments["tx"] == {n: ReplicaAssignment((BROKER_ID,)) for n in (0, 1)}


def test_the_next_epoch_is_above_those_in_the_log(golden):
    (golden / "epochs-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 30\n")
    world = World(golden)
    world.adopt()
    assert world.state("epochs", 0) == LeaderAndIsr(-1, 7, (BROKER_ID,))
    # Records of old formats have no epochs.
    assert world.state("v0-none", 0) == LeaderAndIsr(-1, 0, (BROKER_ID,))


def test_a_damaged_partition_is_part_of_its_topic(golden):
    segment = min((golden / "tx-1").glob("*.log"))
    segment.write_bytes(b"\xff" * 100 + segment.read_bytes()[100:])
    (golden / "tx-1" / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    (golden / ".kafka_cleanshutdown").unlink()
    # So that recovery examines the damaged part.
    for index in (golden / "tx-1").glob("*.index"):
        index.unlink()
    world = World(golden)
    assert TopicPartition("tx", 1) in world.logs.damaged
    world.adopt()
    assert world.state("tx", 1) == LeaderAndIsr(-1, 3, (BROKER_ID,))


def test_missing_partitions_are_created_empty_and_reported(tmp_path):
    world = World(tmp_path)
    world.logs.get_or_create_log(TopicPartition("gaps", 2))
    adoption = world.adopt()
    assert adoption.missing == [TopicPartition("gaps", 0), TopicPartition("gaps", 1)]
    assert "gaps-0, gaps-1" in str(adoption)
    assignments = world.run(world.store.get_topic_assignments(["gaps"]))
    assert list(assignments["gaps"]) == [0, 1, 2]
    # The controller creates them like any new partition.
    assert world.state("gaps", 0) is None


def test_topics_in_the_store_are_unchanged(golden):
    world = World(golden)
    world.run(world.store.create_topic_assignment("tx", {0: ReplicaAssignment((5,))}))
    adoption = world.adopt()
    assert "tx" not in adoption.topics
    assignments = world.run(world.store.get_topic_assignments(["tx"]))
    assert assignments["tx"] == {0: ReplicaAssignment((5,))}


def test_internal_topics_are_compacted_and_others_keep_everything(golden):
    world = World(golden)
    world.adopt()
    configs = world.run(world.store.get_entity_configs("topics", ["__consumer_offsets", "tx"]))
    assert configs["__consumer_offsets"]["cleanup.policy"] == "compact"
    assert configs["tx"] == {"retention.bytes": "-1", "retention.ms": "-1"}


def test_the_identity_comes_from_a_readable_directory(golden, tmp_path):
    disk = RealDisk()
    assert known_identity(disk, [str(tmp_path)]) is None
    dirs = [str(tmp_path), str(golden)]
    assert known_identity(disk, dirs) == MetaProperties(0, CLUSTER_ID)
    (tmp_path / "meta.properties").write_text("rubbish\n")
    assert known_identity(disk, dirs) == MetaProperties(0, CLUSTER_ID)
