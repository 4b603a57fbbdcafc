"""The controller over an embedded store: elections, topics, deletions, failures."""

from typing import get_args

import pytest

from kctl.broker.controller import events
from kctl.broker.controller.channel_manager import RETRY_PAUSE_MS, ResponseReceived
from kctl.broker.controller.partition_state_machine import PartitionState
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest
from kctl.runtime.future import sleep
from kctl.store.errors import NodeExistsError
from tests.support.controller_cluster import StubBroker


def test_the_first_broker_becomes_controller_and_updates_its_own_metadata(cluster):
    broker = cluster.start(1)
    assert broker.controller.is_active
    assert broker.controller.context.epoch == 1
    assert broker.cache.controller_id == 1
    assert [b.broker_id for b in broker.cache.alive_brokers()] == [1]
    assert cluster.exists("/feature")


def test_the_second_broker_is_on_standby_and_gets_the_metadata(cluster):
    cluster.start(1)
    cluster.create_topic("orders", [1], [1])
    second = cluster.start(2)
    assert not second.controller.is_active
    assert second.controller.active_controller_id == 1
    assert second.cache.controller_id == 1
    assert second.cache.partition_count("orders") == 2
    assert [b.broker_id for b in cluster.brokers[1].cache.alive_brokers()] == [1, 2]


def test_a_new_topic_gets_leaders_by_one_leader_and_isr_per_broker(cluster):
    cluster.start(1, 2)
    for broker in cluster.brokers.values():
        broker.requests.clear()
    cluster.create_topic("orders", [1, 2], [2, 1], [1, 2])
    assert cluster.state("orders", 0) == (1, 0, (1, 2))
    assert cluster.state("orders", 1) == (2, 0, (2, 1))
    for broker in cluster.brokers.values():
        (request,) = broker.take(LeaderAndIsrRequest)
        (topic,) = request.topic_states
        assert [(s.partition_index, s.leader, s.is_new) for s in topic.partition_states] == [
            (0, 1, True),
            (1, 2, True),
            (2, 1, True),
        ]
        assert sorted(live.broker_id for live in request.live_leaders) == [1, 2]
        assert request.broker_epoch == broker.controller.broker_epoch
        assert len(broker.take(UpdateMetadataRequest)) == 1
        assert broker.cache.has_leader(TopicPartition("orders", 2))


def test_added_partitions_are_announced_alone(cluster):
    broker = cluster.start(1)
    cluster.create_topic("orders", [1])
    broker.requests.clear()
    grown = {p: ReplicaAssignment((1,)) for p in range(3)}
    cluster.run(cluster.store.set_topic_assignment("orders", grown))
    cluster.settle()
    (request,) = broker.take(LeaderAndIsrRequest)
    assert [s.partition_index for s in request.topic_states[0].partition_states] == [1, 2]
    assert broker.cache.partition_count("orders") == 3


def test_a_deleted_topic_leaves_nothing_behind(cluster):
    broker = cluster.start(1)
    cluster.create_topic("orders", [1], [1])
    cluster.run(cluster.store.set_entity_config("topics", "orders", {"retention.ms": "1"}))
    broker.requests.clear()
    cluster.delete_topic("orders")
    for path in ("/brokers/topics/orders", "/config/topics/orders", "/admin/delete_topics/orders"):
        assert not cluster.exists(path)
    (stop,) = broker.take(StopReplicaRequest)
    assert [
        (p.partition_index, p.delete_partition, p.leader_epoch)
        for p in stop.topic_states[0].partition_states
    ] == [(0, True, -2), (1, True, -2)]
    assert not broker.cache.contains("orders")
    assert "orders" not in broker.controller.context.topics
    # The name is free again.
    cluster.create_topic("orders", [1])
    assert cluster.state("orders") == (1, 0, (1,))


def test_deletion_of_an_unknown_topic_is_dropped(cluster):
    cluster.start(1)
    cluster.delete_topic("never")
    assert not cluster.exists("/admin/delete_topics/never")


def test_deletion_is_rejected_if_delete_topic_enable_is_false(cluster):
    cluster.start(1, delete_topic_enable="false")
    cluster.create_topic("orders", [1])
    cluster.delete_topic("orders")
    assert not cluster.exists("/admin/delete_topics/orders")
    assert cluster.state("orders") == (1, 0, (1,))


def test_a_topic_with_a_replica_on_a_dead_broker_is_deleted_when_it_is_back(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [1, 2])
    cluster.brokers[2].kill()
    cluster.settle()
    cluster.delete_topic("orders")
    assert cluster.exists("/brokers/topics/orders/partitions/0/state")
    assert cluster.state("orders")[0] == -1
    cluster.start(2)
    assert not cluster.exists("/brokers/topics/orders")
    assert not cluster.exists("/admin/delete_topics/orders")


def test_a_failed_stop_replica_is_retried_by_the_next_controller(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [2])
    tp = TopicPartition("orders", 0)
    cluster.brokers[2].errors[StopReplicaRequest, tp] = ErrorCode.KAFKA_STORAGE_ERROR
    cluster.delete_topic("orders")
    assert cluster.exists("/brokers/topics/orders")
    cluster.brokers[2].errors.clear()
    cluster.brokers[1].kill()
    cluster.settle()
    assert cluster.active.broker_id == 2
    assert not cluster.exists("/brokers/topics/orders")


def test_a_response_of_a_previous_registration_blocks_nothing(cluster):
    """Found by simulation: broker 2 restarts, rejects the deletion that was sent to its previous
    registration, and the rejection arrives after the new registration. (Apache Kafka 2.7.2 waits
    until the next restart.)"""
    cluster.start(1, 2)
    cluster.create_topic("orders", [2])
    old_epoch = cluster.brokers[2].controller.broker_epoch
    cluster.brokers[2].is_up = False
    cluster.delete_topic("orders")
    cluster.run(cluster.brokers[2].store.store.close())
    back = StubBroker(cluster, 2, {})
    # It is registered, but does not listen yet.
    back.is_up = False
    cluster.brokers[2] = back
    cluster.run(back.controller.register_broker())
    cluster.settle()
    states = [StopReplicaPartitionState(partition_index=0, delete_partition=True)]
    late = StopReplicaRequest(
        broker_epoch=old_epoch,
        topic_states=[StopReplicaTopicState(topic_name="orders", partition_states=states)],
    )
    refusal = StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    cluster.active.controller._put(ResponseReceived(2, late, refusal))
    cluster.settle()
    assert cluster.exists("/brokers/topics/orders")
    back.is_up = True
    cluster.run(sleep(cluster.runtime.scheduler, 2 * RETRY_PAUSE_MS))
    cluster.settle()
    assert not cluster.exists("/brokers/topics/orders")


def test_partitions_added_during_a_deletion_are_removed_again(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [2])
    tp = TopicPartition("orders", 0)
    cluster.brokers[2].errors[StopReplicaRequest, tp] = ErrorCode.KAFKA_STORAGE_ERROR
    cluster.delete_topic("orders")
    grown = {p: ReplicaAssignment((2,)) for p in range(2)}
    cluster.run(cluster.store.set_topic_assignment("orders", grown))
    cluster.settle()
    assignments = cluster.run(cluster.store.get_topic_assignments(["orders"]))
    assert list(assignments["orders"]) == [0]


def test_leadership_moves_to_the_replica_in_sync_when_a_broker_dies(cluster):
    cluster.start(1, 2, 3)
    cluster.create_topic("orders", [2, 3, 1])
    cluster.brokers[2].kill()
    cluster.settle()
    assert cluster.state("orders") == (3, 1, (3, 1))
    state = cluster.brokers[1].cache.partition(TopicPartition("orders", 0))
    assert (state.leader, state.isr, state.offline_replicas) == (3, [3, 1], [2])


def test_every_event_has_a_procedure_in_the_one_table(cluster):
    controller = cluster.start(1).controller
    assert set(get_args(events.ControllerEvent)) <= controller._procedure_of.keys()
    requests = controller._procedure_of.keys() - set(get_args(events.ControllerEvent))
    assert all(request.api is not None for request in requests), "the rest are requests"


def test_a_partition_without_a_live_in_sync_replica_waits_for_one(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [2])
    cluster.brokers[2].kill()
    cluster.settle()
    tp = TopicPartition("orders", 0)
    controller = cluster.brokers[1].controller
    assert cluster.state("orders") == (-1, 1, (2,))
    assert controller._procedures.transitions.partitions.state(tp) is PartitionState.OFFLINE
    cluster.start(2)
    assert cluster.state("orders") == (2, 2, (2,))
    assert controller._procedures.transitions.partitions.state(tp) is PartitionState.ONLINE


def test_an_unclean_leader_is_elected_only_where_the_topic_allows_it(cluster):
    cluster.start(1, 2, 3)
    for topic, config in (("strict", {}), ("loose", {"unclean.leader.election.enable": "true"})):
        cluster.run(cluster.store.set_entity_config("topics", topic, config))
        cluster.create_topic(topic, [2, 3])
    cluster.brokers[3].kill()
    cluster.settle()
    cluster.brokers[2].kill()
    cluster.settle()
    cluster.start(3)
    assert cluster.state("strict") == (-1, 2, (2,))
    assert cluster.state("loose") == (3, 3, (3,))


def test_a_new_topic_on_a_dead_broker_gets_a_leader_when_the_broker_starts(cluster):
    cluster.start(1)
    cluster.create_topic("orders", [2])
    assert not cluster.exists("/brokers/topics/orders/partitions/0/state")
    cluster.start(2)
    assert cluster.state("orders") == (2, 0, (2,))


def test_another_broker_takes_over_with_a_higher_epoch(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [1, 2])
    cluster.brokers[1].kill()
    cluster.settle()
    heir = cluster.active
    assert (heir.broker_id, heir.controller.context.epoch) == (2, 2)
    # As in Kafka at failover: removal from the ISR first, then the election, each with its own
    # epoch.
    assert cluster.state("orders") == (2, 2, (2,))
    assert heir.cache.controller_id == 2
    cluster.create_topic("more", [2])
    assert cluster.state("more") == (2, 0, (2,))


def test_a_leader_that_restarted_without_a_controller_gets_a_new_epoch(cluster):
    # Followers may have records of its epoch that were lost with its machine.
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [2, 3, 1])
    cluster.create_topic("alone", [2])
    for broker in cluster.brokers.values():
        broker.controller._stopped = True
    for broker in cluster.brokers.values():
        broker.kill()
    for broker_id in (1, 2, 3):
        cluster.register(broker_id)
    cluster.brokers[1].controller.start()
    cluster.settle()
    assert cluster.state("t") == (2, 1, (2, 3, 1))
    assert cluster.state("alone") == (2, 0, (2,))


def test_a_controller_that_was_replaced_unnoticed_changes_nothing(cluster):
    cluster.start(1, 2)
    sleeper = cluster.brokers[1].controller
    stale_epoch = sleeper.context.epoch
    # Broker 2 was elected meanwhile; the watch of the old controller has not fired yet.
    cluster.run(cluster.store.delete_controller())
    epoch = cluster.run(cluster.store.register_controller_and_increment_epoch(2, timestamp_ms=0))
    assert epoch[0] == stale_epoch + 1
    sleeper._queue.clear()
    cluster.create_topic("orders", [1])
    assert not cluster.exists("/brokers/topics/orders/partitions")
    assert not sleeper.is_active
    assert sleeper.active_controller_id == 2
    assert sleeper.context.topics == {}


def test_shutdown_transfers_the_controllership_before_the_session_ends(cluster):
    first = cluster.start(1, 2)
    cluster.run(first.controller.shutdown())
    first.is_up = False
    cluster.settle()
    assert cluster.active.broker_id == 2
    assert first.controller.context.epoch == 0


def test_an_expired_session_is_renewed_with_a_new_broker_epoch(cluster):
    broker = cluster.start(1)
    cluster.create_topic("orders", [1])
    old_epoch = broker.controller.broker_epoch
    cluster.database.expire_session(broker.store.store.session_id)
    cluster.settle()
    assert broker.controller.is_active
    assert broker.controller.broker_epoch > old_epoch
    assert broker.controller.context.epoch == 2
    cluster.create_topic("more", [1])
    assert cluster.state("more") == (1, 0, (1,))


def test_a_session_that_ends_right_after_the_registration_is_renewed(cluster):
    """Found by simulation: there was no listener yet, and the broker waited for a controller
    forever."""
    broker = cluster.register(1)
    cluster.database.expire_session(broker.store.store.session_id)
    broker.controller.start()
    cluster.settle()
    assert broker.controller.is_active
    assert [info.broker_id for info in broker.cache.alive_brokers()] == [1]


def test_a_restarted_broker_is_handled_as_failed_and_then_started(cluster):
    cluster.start(1, 2, 3)
    cluster.create_topic("orders", [2, 3])
    bounced = cluster.brokers[2]
    # Its session ends and it registers again before the controller reads the store.
    cluster.run(bounced.store.store.close())
    cluster.start(2)
    assert cluster.state("orders") == (3, 1, (3,))
    assert [2] in [fields["bounced"] for fields in cluster.events("brokers_changed")]


def test_replicas_in_a_failed_log_directory_lose_their_leadership(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [2, 1])
    tp = TopicPartition("orders", 0)
    cluster.brokers[2].errors[LeaderAndIsrRequest, tp] = ErrorCode.KAFKA_STORAGE_ERROR
    cluster.run(cluster.store.propagate_log_dir_event(2))
    cluster.settle()
    assert cluster.state("orders") == (1, 1, (1,))
    state = cluster.brokers[1].cache.partition(tp)
    assert state.offline_replicas == [2]
    assert cluster.run(cluster.store.get_log_dir_event_names()) == []


def test_isr_changes_of_old_brokers_reach_every_cache(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [1, 2])
    tp = TopicPartition("orders", 0)
    states = cluster.run(cluster.store.get_partition_states([tp]))
    shrunk = states[tp].leader_and_isr._replace(isr=(1,))
    cluster.run(cluster.store.update_isr(tp, shrunk, states[tp].controller_epoch))
    cluster.run(cluster.store.propagate_isr_changes([tp]))
    cluster.settle()
    assert cluster.brokers[2].cache.partition(tp).isr == [1]
    assert cluster.run(cluster.store.get_isr_change_names()) == []


def test_leadership_returns_to_preferred_replicas(cluster):
    cluster.start(1, 2)
    cluster.create_topic("orders", [2, 1])
    cluster.brokers[2].kill()
    cluster.settle()
    cluster.start(2)
    tp = TopicPartition("orders", 0)
    states = cluster.run(cluster.store.get_partition_states([tp]))
    caught_up = states[tp].leader_and_isr._replace(isr=(1, 2))
    cluster.run(cluster.store.update_isr(tp, caught_up, states[tp].controller_epoch))
    cluster.run(cluster.store.propagate_isr_changes([tp]))
    cluster.settle()
    cluster.active.controller._put(events.AutoPreferredElection())
    cluster.settle()
    assert cluster.state("orders") == (2, 2, (1, 2))


def test_a_broker_that_restarts_waits_for_the_end_of_its_old_session(cluster):
    broker = cluster.start(1)
    # The session of a killed process continues until its timeout.
    old_session = broker.store.store.session_id
    broker.controller._stopped = True
    successor = cluster.brokers[1] = StubBroker(cluster, 1, {})
    registered = cluster.runtime.scheduler.spawn(successor.controller.register_broker())
    cluster.settle()
    assert not registered.done
    cluster.database.expire_session(old_session)
    assert cluster.run(registered) > broker.controller.broker_epoch
    successor.controller.start()
    cluster.settle()
    assert successor.controller.is_active


def test_a_second_broker_with_the_same_id_fails_in_the_end(cluster):
    cluster.start(1)
    impostor = StubBroker(cluster, 1, {"zookeeper.session.timeout.ms": "-900"})
    with pytest.raises(NodeExistsError):
        cluster.run(impostor.controller.register_broker())
