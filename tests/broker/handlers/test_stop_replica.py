"""StopReplica: a deletion that was confirmed outlives a power loss."""

import dataclasses
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest

from kctl.broker.handlers.leader_and_isr import handle_stop_replica
from kctl.errors import StorageError
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kctl.runtime.turns import fail_loudly
from kctl.simulation.disk import NameOrder, SimDisk
from tests.broker.replication.conftest import BROKER_EPOCH, ReplicationWorld
from tests.support.log_world import batch
from tests.support.virtual_runtime import virtual_runtime


class World(ReplicationWorld):
    """Broker 1 with a replica of t-0 that has a durable record, on a simulated disk."""

    def __init__(self, order):
        self.disk = SimDisk(order)
        super().__init__(
            dataclasses.replace(virtual_runtime(), disk=self.disk), PurePosixPath("/data"),
            flush_messages=1,
        )  # fmt: skip
        assert self.lead() == ErrorCode.NONE
        self.produce(batch(b"a"), acks=1)
        self.logs.manager.flush_soon(self.partition.log)
        self.runtime.scheduler.settle()
        self.log_dir = self.partition.log.log_directory

    def stop_replica(self):
        """Return the responses to a StopReplica that deletes t-0."""
        responses = []
        state = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
        body = StopReplicaRequest(
            controller_epoch=1, broker_epoch=BROKER_EPOCH,
            topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[state])],
        )  # fmt: skip
        request = SimpleNamespace(body=body, reply=responses.append, fail=fail_loudly)
        services = SimpleNamespace(
            runtime=self.runtime, leadership=self.leadership, replica_manager=self.manager
        )
        handle_stop_replica(services, request)
        self.runtime.scheduler.settle()
        return responses


@pytest.mark.parametrize("order", NameOrder)
def test_a_power_loss_does_not_bring_a_deleted_replica_back(order):
    """Found by simulation (seed 60528): its directory kept its records for a topic of that name."""
    world = World(order)
    assert world.disk.is_directory(f"{world.log_dir}/t-0")
    (response,) = world.stop_replica()
    assert [it.error_code for it in response.partition_errors] == [ErrorCode.NONE]
    for seed in range(20):
        after = world.disk.power_loss(virtual_runtime(seed).entropy)
        assert not after.is_directory(f"{world.log_dir}/t-0")


def test_a_deletion_that_may_not_last_is_not_confirmed(monkeypatch):
    world = World(NameOrder.JOURNAL)

    def fail(path):
        raise StorageError("Input/output error")

    monkeypatch.setattr(world.disk, "fsync_directory", fail)
    (response,) = world.stop_replica()
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.logs.manager.offline_log_dirs == [world.log_dir]
    # The next one has nothing to make durable.
    (response,) = world.stop_replica()
    assert response.error_code == ErrorCode.NONE
