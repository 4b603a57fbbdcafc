"""Elections on request, and brokers in controlled shutdown."""

import pytest

from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kctl.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kctl.protocol.messages.stop_replica import StopReplicaRequest
from kctl.store import znodes
from tests.support.controller_cluster import running_cluster

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster():
    with running_cluster() as cluster:
        yield cluster


def elect(cluster, election_type, *partitions):
    """Return {partition: error code}; without partitions: all."""
    asked = [TopicPartitions(topic="t", partition_id=list(partitions))] if partitions else None
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=asked)
    response = cluster.run(cluster.active.controller.ask(request))
    cluster.settle()
    return {
        result.partition_id: result.error_code
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def shut_down(cluster, broker_id, **fields):
    """Return (error code, partitions that still have only this leader)."""
    request = ControlledShutdownRequest(broker_id=broker_id, **fields)
    response = cluster.run(cluster.active.controller.ask(request))
    cluster.settle()
    remaining = [(p.topic_name, p.partition_index) for p in response.remaining_partitions]
    return response.error_code, remaining


def bounced(cluster, broker_id):
    """Restart the broker: its replicas are alive, but others lead."""
    cluster.brokers[broker_id].kill()
    cluster.settle()
    cluster.start(broker_id)


def test_a_preferred_election_gives_leadership_back(cluster):
    cluster.start(3, 1, 2)
    cluster.create_topic("t", [1, 2], [2, 1])
    bounced(cluster, 1)
    assert cluster.state("t", 0)[0] == 2
    # Outside the ISR the preferred replica does not lead.
    assert elect(cluster, PREFERRED, 0) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    join_isr(cluster, 0, 2, 1)
    codes = elect(cluster, PREFERRED, 0, 1, 7)
    assert codes == {
        0: ErrorCode.NONE,
        1: ErrorCode.ELECTION_NOT_NEEDED,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.state("t", 0)[0] == 1


def join_isr(cluster, number, *isr):
    """Change the ISR as a leader would (inter-broker protocol below 2.7-IV2)."""
    tp = TopicPartition("t", number)
    state = cluster.run(cluster.store.get_partition_states([tp]))[tp]
    current = state.leader_and_isr
    changed = type(current)(current.leader, current.leader_epoch, isr, current.zk_version)
    cluster.run(cluster.store.update_isr(tp, changed, state.controller_epoch))
    cluster.run(cluster.store.propagate_isr_changes([tp]))
    cluster.settle()


def test_an_election_without_partitions_is_for_all(cluster):
    cluster.start(3, 1, 2)
    cluster.create_topic("t", [1, 2], [2, 1], [1])
    bounced(cluster, 1)
    join_isr(cluster, 0, 2, 1)
    codes = elect(cluster, PREFERRED)
    assert codes[0] == ErrorCode.NONE
    assert codes[1] == ErrorCode.ELECTION_NOT_NEEDED
    assert cluster.state("t", 0)[0] == 1


def test_an_unclean_election_is_for_partitions_without_a_leader(cluster):
    cluster.start(3, 1, 2)
    cluster.create_topic("t", [1, 2], [2])
    cluster.brokers[1].kill()
    cluster.settle()
    cluster.brokers[2].kill()
    cluster.settle()
    assert elect(cluster, UNCLEAN, 0) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    cluster.start(1)
    assert cluster.state("t", 0)[0] == -1, "1 is not in sync"
    assert elect(cluster, UNCLEAN, 0) == {0: ErrorCode.NONE}
    assert cluster.state("t", 0)[::2] == (1, (1,))
    assert elect(cluster, UNCLEAN, 0) == {0: ErrorCode.ELECTION_NOT_NEEDED}


def test_the_old_znode_requests_preferred_elections_too(cluster):
    cluster.start(3, 1, 2)
    cluster.create_topic("t", [1, 2])
    for _ in range(2):
        bounced(cluster, 1)
        join_isr(cluster, 0, 2, 1)
        cluster.run(cluster.store.create_preferred_replica_election([TopicPartition("t", 0)]))
        cluster.settle()
        assert cluster.state("t")[0] == 1
        assert not cluster.exists(znodes.PREFERRED_REPLICA_ELECTION)


def test_invalid_data_in_the_old_znode_is_removed(cluster):
    cluster.start(1)
    cluster.run(cluster.store.create_recursive(znodes.PREFERRED_REPLICA_ELECTION, b"[]"))
    cluster.settle()
    assert not cluster.exists(znodes.PREFERRED_REPLICA_ELECTION)


def test_a_broker_in_controlled_shutdown_transfers_its_partitions(cluster):
    cluster.start(3, 1, 2)
    cluster.create_topic("t", [1, 2], [2, 1], [1])
    assert shut_down(cluster, 1) == (ErrorCode.NONE, [])
    assert cluster.state("t", 0)[::2] == (2, (2,))
    assert cluster.state("t", 1)[::2] == (2, (2,))
    # It has the only replica, so the partition stays with it.
    assert cluster.state("t", 2)[0] == 1
    stops = cluster.brokers[1].take(StopReplicaRequest)
    stopped = [s for stop in stops for t in stop.topic_states for s in t.partition_states]
    assert [(s.partition_index, s.delete_partition) for s in stopped] == [(1, False)]


def test_partitions_without_another_in_sync_replica_stay_and_are_reported(cluster):
    cluster.start(3, 1, 2)
    cluster.create_topic("t", [1, 2])
    bounced(cluster, 2)
    assert cluster.state("t") == (1, 1, (1,))
    assert shut_down(cluster, 1) == (ErrorCode.NONE, [("t", 0)])
    assert cluster.state("t")[0] == 1


def test_a_broker_in_controlled_shutdown_gets_no_new_leadership(cluster):
    cluster.start(3, 1, 2)
    shut_down(cluster, 1)
    cluster.create_topic("t", [1, 2])
    assert cluster.state("t")[0] == 2


def test_a_previous_registration_of_a_broker_cannot_shut_it_down(cluster):
    cluster.start(3, 1, 2)
    cluster.create_topic("t", [1, 2])
    old_epoch = cluster.brokers[1].controller.broker_epoch
    bounced(cluster, 1)
    assert shut_down(cluster, 1, broker_epoch=old_epoch) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert shut_down(cluster, 9) == (ErrorCode.BROKER_NOT_AVAILABLE, [])


def test_only_the_controller_handles_requests(cluster):
    cluster.start(3, 1)
    answer = cluster.run(cluster.brokers[1].controller.ask(ControlledShutdownRequest(broker_id=1)))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
