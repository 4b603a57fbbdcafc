"""The controller decides on the states that it knows, and reads those that others changed."""

import pytest

from kctl.model import LeaderAndIsr, TopicPartition
from kctl.store import znodes
from tests.support.controller_cluster import running_cluster

TP = TopicPartition("orders", 0)
STATE = znodes.partition_state_path(TP)


@pytest.fixture
def cluster():
    with running_cluster() as cluster:
        cluster.start(1, 2, 3)
        yield cluster


def reads_of_the_active(cluster, monkeypatch):
    """The paths that the active controller reads from now on."""
    store = cluster.active.store.store
    read, paths = store.get, []

    def get(path, watch=None):
        paths.append(path)
        return read(path, watch)

    monkeypatch.setattr(store, "get", get)
    count_reads_of_many(store, paths, monkeypatch)
    return paths


def count_reads_of_many(store, paths, monkeypatch):
    read_each = store.get_each

    def get_each(wanted, watch=None):
        paths.extend(wanted)
        return read_each(wanted, watch)

    monkeypatch.setattr(store, "get_each", get_each)


def leader_changes_isr(cluster, *isr):
    """The leader writes its ISR itself, as below inter-broker protocol 2.7-IV2."""
    found = cluster.run(cluster.store.get_partition_states([TP]))[TP]
    current = found.leader_and_isr
    changed = LeaderAndIsr(current.leader, current.leader_epoch, isr, current.zk_version)
    assert cluster.run(cluster.store.update_isr(TP, changed, found.controller_epoch)) is not None


def test_known_states_are_not_read_again_when_brokers_fail(cluster, monkeypatch):
    cluster.create_topic("orders", [2, 1, 3])
    paths = reads_of_the_active(cluster, monkeypatch)
    cluster.brokers[3].kill()
    cluster.settle()
    assert cluster.state("orders") == (2, 1, (2, 1))
    assert STATE not in paths


def test_a_new_controller_reads_each_state_once(cluster, monkeypatch):
    cluster.create_topic("orders", [1, 2, 3])
    paths = []
    for broker_id in (2, 3):
        store = cluster.brokers[broker_id].store.store

        def get(path, watch=None, read=store.get):
            paths.append(path)
            return read(path, watch)

        monkeypatch.setattr(store, "get", get)
        count_reads_of_many(store, paths, monkeypatch)
    assert cluster.active.broker_id == 1
    cluster.brokers[1].kill()
    cluster.settle()
    assert cluster.state("orders") == (2, 2, (2, 3))
    assert paths.count(STATE) == 1


def test_an_isr_that_its_leader_reduced_is_read(cluster):
    cluster.create_topic("orders", [1, 2, 3])
    leader_changes_isr(cluster, 1, 3)
    cluster.brokers[3].kill()
    cluster.settle()
    # Not (1, 2), which follows from what the controller knew.
    assert cluster.state("orders") == (1, 1, (1,))


def test_a_broker_that_its_leader_added_is_removed_from_the_isr(cluster):
    cluster.create_topic("orders", [1, 2, 3])
    leader_changes_isr(cluster, 1, 2)
    # The controller learns of (1, 2), and not of what follows.
    cluster.brokers[2].kill()
    cluster.settle()
    assert cluster.state("orders") == (1, 1, (1,))
    leader_changes_isr(cluster, 1, 3)
    cluster.brokers[3].kill()
    cluster.settle()
    assert cluster.state("orders") == (1, 2, (1,))


def test_a_replica_that_its_leader_added_is_elected(cluster):
    cluster.create_topic("orders", [3, 2, 1])
    leader_changes_isr(cluster, 3)
    cluster.brokers[2].kill()
    cluster.settle()
    leader_changes_isr(cluster, 3, 1)
    cluster.brokers[3].kill()
    cluster.settle()
    leader, _, isr = cluster.state("orders")
    # No unclean election: what the controller knew has no live replica in sync.
    assert (leader, isr) == (1, (1,))
    assert cluster.events("unclean_election") == []
