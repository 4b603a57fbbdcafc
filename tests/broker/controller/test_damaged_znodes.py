"""The controller over znodes that cannot be read: the rest of the cluster goes on, and what is
repaired takes part again."""

import pytest

from kctl.broker.controller import controller as controller_module
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.runtime.future import sleep
from kctl.store import znodes

DAMAGED = "/brokers/topics/bad"
NEVER_MS = 3_600_000


def damage(cluster, path, data=b"{}"):
    cluster.run(cluster.store.create_recursive(path, data))
    cluster.settle()


def repair(cluster):
    assignment = {0: ReplicaAssignment((1, 2))}
    cluster.run(cluster.store.set_topic_assignment("bad", assignment))
    cluster.settle()


def warnings_about(cluster, path):
    return [line for line in cluster.trace.warnings if path in line]


@pytest.mark.parametrize("data", [b"{}", b"", b"[1]", b'{"partitions":{"x":[1]}}'])
def test_topics_get_leaders_beside_one_that_cannot_be_read(cluster, data):
    """No topic that was created later had a leader."""
    cluster.start(1, 2)
    damage(cluster, DAMAGED, data)
    cluster.create_topic("later", [1, 2])
    assert cluster.state("later") == (1, 0, (1, 2))
    assert len(warnings_about(cluster, DAMAGED)) == 1
    repair(cluster)
    assert cluster.state("bad") == (1, 0, (1, 2))


def test_a_controller_takes_over_beside_a_topic_that_cannot_be_read(cluster):
    """/controller was deleted, and no broker stood for election again."""
    cluster.start(1, 2)
    cluster.create_topic("orders", [1, 2])
    damage(cluster, DAMAGED)
    cluster.brokers[1].kill()
    cluster.settle()
    assert cluster.active.broker_id == 2
    assert cluster.state("orders")[0] == 2
    repair(cluster)
    assert cluster.state("bad") == (2, 0, (2,))


def test_a_topic_that_cannot_be_read_is_deleted(cluster):
    cluster.start(1)
    damage(cluster, DAMAGED)
    cluster.delete_topic("bad")
    assert not cluster.exists(DAMAGED)
    cluster.create_topic("bad", [1])
    assert cluster.state("bad") == (1, 0, (1,))


def test_a_partition_whose_state_cannot_be_read_stays_as_it_is_beside_others(cluster):
    cluster.start(1, 2, 3)
    cluster.create_topic("orders", [1, 2], [1, 2])
    path = znodes.partition_state_path(TopicPartition("orders", 0))
    cluster.run(cluster.store.store.set(path, b"damaged"))
    cluster.brokers[1].kill()
    cluster.settle()
    assert cluster.state("orders", 1)[0] == 2
    cluster.brokers[2].kill()
    cluster.settle()
    assert cluster.active.broker_id == 3
    assert cluster.run(cluster.store.get(path))[0] == b"damaged"
    assert warnings_about(cluster, path)


@pytest.mark.parametrize("parent", [znodes.ISR_CHANGE_NOTIFICATIONS, znodes.LOG_DIR_EVENTS])
def test_a_notification_that_cannot_be_read_is_dropped(cluster, parent):
    """It stayed, and none after it was read."""
    cluster.start(1)
    damage(cluster, f"{parent}/any_0000000000", b"damaged")
    assert cluster.run(cluster.store.children(parent)) == []
    assert len(warnings_about(cluster, parent)) == 1


def test_a_broker_that_could_not_take_over_stands_for_election_again(cluster, monkeypatch):
    """As in Kafka, a broker that cannot be read lets no controller take over."""
    monkeypatch.setattr(controller_module, "ELECTION_RETRY_MS", NEVER_MS)
    path = znodes.broker_path(9)
    damage(cluster, path)
    broker = cluster.start(1)
    assert not cluster.exists(znodes.CONTROLLER)
    cluster.run(cluster.store.delete_recursive(path))
    cluster.settle()
    assert not broker.controller.is_active
    timer = broker.controller._election_retry
    timer.cancel()
    broker.controller._stand_again()
    cluster.settle()
    assert broker.controller.is_active


def test_brokers_that_cannot_take_over_do_not_pass_the_office_on_without_a_pause(
    cluster, monkeypatch
):
    monkeypatch.setattr(controller_module, "ELECTION_RETRY_MS", NEVER_MS)
    damage(cluster, znodes.broker_path(9))
    cluster.start(1, 2, 3)
    assert len(cluster.events("controller_elected")) == 3


def test_the_pause_before_the_next_election_ends_by_itself(cluster, monkeypatch):
    monkeypatch.setattr(controller_module, "ELECTION_RETRY_MS", 200)
    path = znodes.broker_path(9)
    damage(cluster, path)
    broker = cluster.start(1)
    cluster.run(cluster.store.delete_recursive(path))
    while not broker.controller.is_active:
        cluster.run(sleep(cluster.runtime.scheduler, 1))


def test_a_session_that_ends_as_a_replaced_controller_resigns_is_renewed(cluster, monkeypatch):
    """Its events were left in the queue for ever."""
    cluster.start(1, 2)
    broker = cluster.brokers[1]
    sleeper, old_epoch = broker.controller, broker.controller.broker_epoch
    # Broker 2 was elected meanwhile; the watch of the old controller is lost.
    monkeypatch.setattr(sleeper, "_stopped", True)
    cluster.run(cluster.store.delete_controller())
    cluster.run(cluster.store.register_controller_and_increment_epoch(2, timestamp_ms=0))
    cluster.settle()
    monkeypatch.undo()
    read = broker.store.get_controller_id

    async def read_after_the_session():
        monkeypatch.undo()
        cluster.database.expire_session(broker.store.store.session_id)
        while not sleeper._queue:
            await sleep(cluster.runtime.scheduler, 0)
        return await read()

    monkeypatch.setattr(broker.store, "get_controller_id", read_after_the_session)
    cluster.run(cluster.store.create_topic_assignment("orders", {0: ReplicaAssignment((1,))}))
    while sleeper.broker_epoch == old_epoch and not (sleeper._queue and sleeper._runner.done):
        cluster.run(sleep(cluster.runtime.scheduler, 1))
    assert sleeper.broker_epoch > old_epoch
    cluster.settle()
    assert sleeper.active_controller_id == 2
