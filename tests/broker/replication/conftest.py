import dataclasses

import pytest

from kctl.broker.log.log_config import LogConfig
from kctl.broker.replication.leadership import Leadership
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.configs.broker_config import BrokerConfig
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.runtime.real.disk import RealDisk
from kctl.work import at_once
from tests.support.log_world import LogWorld
from tests.support.virtual_runtime import virtual_runtime

ME = 1
BROKER_EPOCH = 7


class ReplicationWorld:
    """Broker 1's replicas on real files in virtual time; the test acts as the controller."""

    def __init__(
        self, runtime, directory, log_dirs=1, config=None, is_alive=lambda _: True, **settings
    ):
        self.runtime = runtime
        self.logs = LogWorld(runtime, directory, LogConfig(**settings), log_dirs)
        self.manager = ReplicaManager(
            runtime, BrokerConfig(config or {}), ME, self.logs.manager, is_alive=is_alive
        )
        self.leadership = Leadership(
            self.manager, runtime.clock, lambda _: self.logs.config, lambda: BROKER_EPOCH
        )
        self.changes = []
        self.leadership.on_role_change(self.changes.extend)

    def lead(self, *, leader=ME, epoch=0, isr=(ME,), replicas=(ME,), controller_epoch=1):
        """Send LeaderAndIsr for partition t-0; return the error code of the partition or the
        request."""
        state = LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=controller_epoch, leader=leader,
            leader_epoch=epoch, isr=list(isr), replicas=list(replicas),
        )  # fmt: skip
        body = LeaderAndIsrRequest(
            controller_epoch=controller_epoch,
            broker_epoch=BROKER_EPOCH,
            topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=[state])],
        )
        answer = at_once(self.leadership.become_leader_or_follower(body))
        return answer.error_code or answer.partition_errors[0].error_code

    @property
    def partition(self):
        return self.manager.partition("t", 0)

    def produce(self, records, *, acks, timeout_ms=1000):
        """Return the results, in a list that fills when the request is complete."""
        answered = []
        self.manager.append_records([("t", 0, records)], acks, timeout_ms, answered.extend)
        return answered


@pytest.fixture
def make_world(tmp_path):
    """Create a ReplicationWorld; keyword arguments are topic configs, or `log_dirs`, `config`."""

    def make(**settings):
        runtime = dataclasses.replace(virtual_runtime(), disk=RealDisk())
        return ReplicationWorld(runtime, tmp_path / "logs", **settings)

    return make
