"""Leaders propose other in-sync replicas to the controller."""

import pytest

from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_isr import AlterIsrRequest, PartitionData, TopicData
from kctl.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.controller_cluster import running_cluster


@pytest.fixture
def cluster():
    with running_cluster() as cluster:
        cluster.start(1, 2, 3)
        cluster.create_topic("t", [1, 2, 3])
        yield cluster


def alter(cluster, isr, *, topic="t", leader=1, epoch=0, version=0, broker_epoch=None):
    """Return (top-level error code, the partition's result)."""
    if broker_epoch is None:
        broker_epoch = cluster.brokers[leader].controller.broker_epoch
    partition = PartitionData(
        partition_index=0, leader_epoch=epoch, new_isr=isr, current_isr_version=version
    )
    request = AlterIsrRequest(
        broker_id=leader,
        broker_epoch=broker_epoch,
        topics=[TopicData(name=topic, partitions=[partition])],
    )
    response = cluster.run(cluster.active.controller.ask(request))
    cluster.settle()
    answers = [p for t in response.topics for p in t.partitions]
    return response.error_code, answers[0] if answers else None


def test_the_leader_gets_the_new_state_and_all_brokers_are_informed(cluster):
    for broker in cluster.brokers.values():
        broker.take(UpdateMetadataRequest)
    code, answer = alter(cluster, [1, 2])
    assert (code, answer.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (answer.leader_id, answer.leader_epoch, answer.isr) == (1, 0, [1, 2])
    assert answer.current_isr_version == 1
    assert cluster.state("t") == (1, 0, (1, 2))
    for broker in cluster.brokers.values():
        (update,) = broker.take(UpdateMetadataRequest)
        assert update.topic_states[0].partition_states[0].isr == [1, 2]


def test_a_lost_response_is_repeated(cluster):
    alter(cluster, [1, 2])
    _, answer = alter(cluster, [1, 2], version=0)
    assert (answer.error_code, answer.isr, answer.current_isr_version) == (0, [1, 2], 1)


def test_a_leader_with_an_older_state_changes_nothing(cluster):
    alter(cluster, [1, 2])
    _, answer = alter(cluster, [1, 3], version=0)
    assert (answer.error_code, answer.isr, answer.current_isr_version) == (0, [1, 2], 1)
    _, answer = alter(cluster, [1, 3], epoch=-1, version=1)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    _, answer = alter(cluster, [1, 3], topic="unknown")
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code, answer = alter(cluster, [1, 3], version=1, broker_epoch=5)
    assert (code, answer) == (ErrorCode.STALE_BROKER_EPOCH, None)
    assert cluster.state("t") == (1, 0, (1, 2))


def test_a_broker_that_is_gone_or_leaving_does_not_join(cluster):
    """KAFKA-14140: its last fetch arrives late, and its leader believes that it keeps up."""
    alter(cluster, [1])
    cluster.run(cluster.active.controller.ask(ControlledShutdownRequest(broker_id=2)))
    cluster.settle()
    before = cluster.run(cluster.store.get_partition_states([TopicPartition("t", 0)]))
    version = before["t", 0].leader_and_isr.zk_version
    epoch = before["t", 0].leader_and_isr.leader_epoch
    _, answer = alter(cluster, [1, 2, 3], epoch=epoch, version=version)
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [1, 3])
    # The leader only accepts newer states than its own, so the state is written, too.
    _, answer = alter(cluster, [1, 3, 2], epoch=epoch, version=answer.current_isr_version)
    assert (answer.isr, answer.current_isr_version) == ([1, 3], version + 2)


def test_a_leader_that_missed_an_isr_without_its_broker_gets_it(cluster):
    """Found by simulation: the controller wrote the ISR without a broker that was away, and died
    before it responded. The leader sent its proposal again when that broker was back, learned that
    its state is too old, and waited: its ISR did not change until the next election."""
    _, missed = alter(cluster, [1, 2])
    assert (missed.error_code, missed.isr, missed.current_isr_version) == (0, [1, 2], 1)
    _, answer = alter(cluster, [1, 2, 3], version=0)
    assert (answer.error_code, answer.isr, answer.current_isr_version) == (0, [1, 2], 1)
    _, answer = alter(cluster, [1, 2, 3], version=1)
    assert (answer.error_code, answer.isr, answer.current_isr_version) == (0, [1, 2, 3], 2)


def test_a_former_leader_changes_nothing(cluster):
    """Found by simulation: the leader of a topic that was deleted and created again, in the same
    epoch and version, replaced the new leader."""
    _, answer = alter(cluster, [2], leader=2)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.state("t") == (1, 0, (1, 2, 3))


def test_a_replica_that_is_no_longer_assigned_is_not_in_sync(cluster):
    """Found by simulation: the controller stopped before it informed the leader."""
    cluster.start(4)
    _, answer = alter(cluster, [1, 2, 4])
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [1, 2])


def test_a_write_whose_response_was_lost_is_recognized(cluster):
    """Found by simulation: the leader learned that its state is too old and waited for a newer one,
    which was its own: its ISR did not change until the next election."""
    active = cluster.active

    async def write_twice(*arguments):
        await write(*arguments)
        return await write(*arguments)

    registry = active.store
    write = registry.update_leader_and_isr
    registry.update_leader_and_isr = write_twice
    _, answer = alter(cluster, [1, 2])
    assert (answer.error_code, answer.isr, answer.current_isr_version) == (0, [1, 2], 1)
    _, answer = alter(cluster, [1, 2, 3], version=1)
    assert (answer.error_code, answer.isr, answer.current_isr_version) == (0, [1, 2, 3], 2)
