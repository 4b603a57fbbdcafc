"""Whether this broker leads a partition, according to the store: for answers that are final."""

from types import SimpleNamespace

import pytest

from kctl.broker.assembly import _leads
from kctl.broker.replication.partition import Role
from kctl.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore
from kctl.store.znodes import LeaderIsrAndControllerEpoch
from tests.support.virtual_runtime import virtual_runtime

TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("role", "epoch", "leads"),
    [
        # Elected again since it became leader, in epoch 6 or so: it is the leader of epoch 8.
        (Role.LEADER, 8, True),
        (Role.LEADER, 7, False),
        (Role.FOLLOWER, 8, False),
        (None, 8, False),
    ],
)
def test_a_broker_leads_in_the_epoch_that_the_store_has(role, epoch, leads):
    runtime = virtual_runtime()
    store = ClusterStore(EmbeddedStore.in_memory(runtime))
    partition = SimpleNamespace(role=role, leader_epoch=epoch)
    services = SimpleNamespace(
        cluster_store=store,
        broker_id=4,
        replica_manager=SimpleNamespace(partitions={TP: partition} if role else {}),
    )

    async def story():
        await store.ensure_persistent_paths()
        controller_epoch, fence = await store.register_controller_and_increment_epoch(
            4, timestamp_ms=0
        )
        await store.create_topic_assignment("t", {0: ReplicaAssignment((4, 2))})
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(4, 8, (4, 2)), controller_epoch)
        await store.create_partition_states({TP: state}, fence)
        return await _leads(services, TP)

    task = runtime.scheduler.spawn(story())
    runtime.scheduler.settle()
    assert task.result() is leads
