"""Throttles are applied and removed and restore the settings, on the znodes of an embedded
store."""

import pytest

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.reassignment_znodes import ZnodeReassignments
from kctl.admin.replication_throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Copying,
    ReplicationThrottle,
    Throttle,
    ThrottleRecord,
    joined,
)
from kctl.errors import CorruptDataError, KctlError, UsageError
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore

BROKERS = [ConfigResource(ResourceType.BROKER, name) for name in "123"]
TOPIC = ConfigResource(ResourceType.TOPIC, "t")
COPIES = {TopicPartition("t", 0): Copying((1, 2), (3,))}


@pytest.fixture
def store(loop):
    return ClusterStore(EmbeddedStore(loop.runtime, ZnodeDatabase.in_memory(loop.runtime)))


@pytest.fixture
def configs(store):
    return ZnodeReassignments(store)


@pytest.fixture
def throttle(configs):
    return ReplicationThrottle(configs)


@pytest.fixture
def settings(run, configs):
    """Return all throttle settings of the cluster."""

    def read():
        names = [LEADER_RATE, FOLLOWER_RATE, LEADER_REPLICAS, FOLLOWER_REPLICAS]
        found = run(configs.overrides([*BROKERS, TOPIC], names))
        return {
            (resource.name, name): it.value
            for resource, values in found.items()
            for name, it in values.items()
        }

    return read


def put(run, configs, resource, **values):
    named = {name.replace("_", "."): value for name, value in values.items()}
    run(configs.alter_overrides({resource: ConfigChanges(set=named)}))


def test_brokers_get_a_rate_and_the_topic_lists_its_replicas(run, throttle, settings):
    record = run(throttle.prepare("c", Throttle(COPIES, 500)))
    assert settings() == {}
    run(throttle.apply(record))
    assert settings() == {
        **{(broker, name): "500" for broker in "123" for name in (LEADER_RATE, FOLLOWER_RATE)},
        ("t", LEADER_REPLICAS): "0:1,0:2",
        ("t", FOLLOWER_REPLICAS): "0:3",
    }
    run(throttle.restore(record))
    assert settings() == {}


def test_previous_settings_are_restored_after_a_crash_and_a_change_of_rate(
    run, throttle, configs, settings
):
    put(run, configs, BROKERS[0], leader_replication_throttled_rate="77")
    put(run, configs, TOPIC, follower_replication_throttled_replicas="9:9")
    before = settings()
    record = run(throttle.prepare("c", Throttle(COPIES, 500)))
    run(throttle.apply(record))
    assert settings()["t", FOLLOWER_REPLICAS] == "9:9,0:3"
    record = run(throttle.change_rate(record, 900))
    run(throttle.apply(record))
    assert settings()["1", LEADER_RATE] == "900"

    kept = ThrottleRecord.from_json(record.to_json())
    assert kept == record
    for _ in range(2):  # a second time has no effect
        assert [it.error for it in run(throttle.restore(kept))] == [None] * len(kept.changes)
        assert settings() == before


def test_settings_that_others_changed_since_stay(run, throttle, configs, settings):
    record = run(throttle.prepare("c", Throttle(COPIES, 500)))
    run(throttle.apply(record))
    put(run, configs, BROKERS[1], leader_replication_throttled_rate="123")
    restored = run(throttle.restore(record))
    assert [(it.change.resource.name, it.change.name) for it in restored if it.is_foreign] == [
        ("2", LEADER_RATE)
    ]
    assert settings() == {("2", LEADER_RATE): "123"}


def test_leftovers_are_found_and_removed(run, throttle, configs, settings):
    put(run, configs, BROKERS[2], follower_replication_throttled_rate="5")
    put(run, configs, TOPIC, retention_ms="1000")
    [found] = run(throttle.leftovers())
    assert (found.resource, found.values) == (BROKERS[2], {FOLLOWER_RATE: "5"})
    run(throttle.remove([found]))
    assert settings() == {}


def test_a_wildcard_already_includes_all_replicas():
    assert joined("*", "0:1") == "*"
    assert joined("1:1,0:2", "0:2,0:3") == "1:1,0:2,0:3"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"changes": [{"type": 99}]}'])
def test_an_invalid_record_is_rejected(text):
    with pytest.raises(CorruptDataError, match="not a throttle record"):
        ThrottleRecord.from_json(text)


def test_znodes_allow_one_reassignment_at_a_time_and_no_cancellation(run, store, configs):
    tp = TopicPartition("t", 0)
    run(store.create_topic_assignment("t", {0: ReplicaAssignment((1, 2))}))
    assert run(configs.alter({tp: (2, 3)})) == {tp: None}
    assert run(configs.ongoing()) == {tp: ReplicaAssignment((2, 3, 1), (3,), (1,))}
    assert run(configs.layout()).assignment == {tp: (2, 3)}
    with pytest.raises(KctlError, match="ZooKeeper accepts one at a time"):
        run(configs.alter({tp: (1, 2)}))
    with pytest.raises(UsageError, match="cannot be cancelled through ZooKeeper"):
        run(configs.alter({tp: None}))
