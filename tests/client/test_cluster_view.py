"""ClusterView: what Metadata responses update, and what they must not."""

from kctl.client.cluster_view import BrokerAddress, ClusterView
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)


def response(*topics, brokers=(1, 2), controller=1):
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in brokers],
        cluster_id="c",
        controller_id=controller,
        topics=list(topics),
    )


def topic(leader=1, epoch=-1, error=0, name="t", partitions=1):
    return MetadataResponseTopic(
        name=name,
        error_code=error,
        partitions=[
            MetadataResponsePartition(
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1, 2],
                isr_nodes=[1],
            )
            for number in range(partitions)
        ],
    )


def view_of(*responses):
    view = ClusterView()
    for each in responses:
        view.update(each)
    return view


def test_brokers_controller_and_leaders_are_learnt():
    view = view_of(response(topic(leader=2, epoch=5, partitions=2)))
    assert view.leader(T0) == BrokerAddress(2, "b2", 9092)
    assert view.controller() == BrokerAddress(1, "b1", 9092)
    assert view.cluster_id == "c"
    assert view.leader_epoch(T0) == 5
    assert view.partitions_of("t") == [0, 1]
    assert view.partition(T0).replicas == (1, 2)


def test_what_a_response_does_not_mention_stays():
    view = view_of(response(topic(name="other")), response(topic()))
    assert view.leader(TopicPartition("other", 0)) is not None


def test_an_older_epoch_does_not_replace_a_newer_one():
    view = view_of(response(topic(leader=2, epoch=6)), response(topic(leader=1, epoch=5)))
    assert view.leader(T0).broker_id == 2


def test_an_equal_epoch_and_no_epoch_are_accepted():
    view = view_of(response(topic(leader=2, epoch=6)), response(topic(leader=-1, epoch=6)))
    assert view.leader(T0) is None
    view.update(response(topic(leader=1, epoch=-1)))
    assert view.leader(T0).broker_id == 1


def test_a_recreated_topic_is_accepted_once_the_old_one_is_forgotten():
    view = view_of(response(topic(leader=2, epoch=6)))
    view.forget(["t"])
    view.update(response(topic(leader=1, epoch=0)))
    assert view.leader(T0).broker_id == 1


def test_a_topic_that_is_gone_leaves_its_error():
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    view = view_of(response(topic()), response(topic(error=int(unknown), partitions=0)))
    assert view.partitions_of("t") == []
    assert view.error_of(T0) == unknown


def test_other_errors_of_topics_are_kept_as_they_are():
    view = view_of(response(topic(error=29, partitions=0)))
    assert view.error_of(T0) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_partition_without_a_leader_says_so():
    view = view_of(response(topic(leader=-1)))
    assert view.leader(T0) is None
    assert view.error_of(T0) == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_leader_that_is_not_a_known_broker_is_none():
    view = view_of(response(topic(leader=3)))
    assert view.leader(T0) is None
    assert view.error_of(T0) == ErrorCode.LEADER_NOT_AVAILABLE


def test_an_unmentioned_topic_is_unknown():
    view = view_of(response(topic()))
    assert view.error_of(TopicPartition("t", 9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert view.error_of(TopicPartition("u", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert view.error_of(T0) == ErrorCode.NONE
    assert view.leader_epoch(TopicPartition("u", 0)) == -1


def test_a_controller_that_is_not_known_is_none():
    assert view_of(response(controller=-1)).controller() is None
