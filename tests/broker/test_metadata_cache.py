"""The metadata cache: snapshots that never change under a reader."""

from kctl.broker.metadata_cache import MetadataCache
from kctl.model import TopicPartition
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)


def state(partition, leader, isr=(1,)):
    return UpdateMetadataPartitionState(
        partition_index=partition, leader=leader, isr=list(isr), replicas=[1, 2]
    )


def update(brokers=(1,), controller_id=1, **topics):
    return UpdateMetadataRequest(
        controller_id=controller_id,
        topic_states=[
            UpdateMetadataTopicState(topic_name=name, partition_states=states)
            for name, states in topics.items()
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataEndpoint(port=9000 + broker, host="h", listener="PLAINTEXT")
                ],
            )
            for broker in brokers
        ],
    )


def test_brokers_are_replaced_and_topics_are_merged():
    cache = MetadataCache(1)
    cache.update(update((1, 2), orders=[state(0, 1), state(1, 2)]))
    cache.update(update((2, 3), controller_id=3, orders=[state(1, 3)], more=[state(0, 2)]))
    assert [broker.broker_id for broker in cache.alive_brokers()] == [2, 3]
    assert cache.controller_id == 3
    assert cache.topics() == ["more", "orders"]
    assert cache.partition_count("orders") == 2
    assert cache.leader_endpoint(TopicPartition("orders", 1), "PLAINTEXT")[0] == 3
    # Its leader is gone.
    assert cache.leader_endpoint(TopicPartition("orders", 0), "PLAINTEXT") is None


def test_a_reader_keeps_its_snapshot():
    cache = MetadataCache(1)
    cache.update(update(orders=[state(0, 1)]))
    before = cache.snapshot
    cache.update(update(orders=[state(0, -1), state(1, 1)]))
    assert list(before.topics["orders"]) == [0]
    assert before.topics["orders"][0].leader == 1
    assert cache.snapshot.version == before.version + 1


def test_partitions_being_deleted_leave_the_cache():
    cache = MetadataCache(1)
    cache.update(update(orders=[state(0, 1), state(1, 1)]))
    assert cache.update(update(orders=[state(0, -2)])) == [TopicPartition("orders", 0)]
    assert cache.partitions_of("orders") == [1]
    cache.update(update(orders=[state(1, -2)]))
    assert not cache.contains("orders")
    assert cache.partition_count("orders") is None


def test_listeners_get_the_topics_of_an_update():
    cache = MetadataCache(1)
    heard = []
    cache.on_topics_updated(heard.append)
    cache.update(update())
    cache.update(update(orders=[state(0, 1)], more=[state(0, 1)]))
    assert heard == [["orders", "more"]]


def test_a_cache_without_controller_returns_none():
    cache = MetadataCache(1)
    assert cache.controller_id is None
    cache.update(update(controller_id=-1))
    assert cache.controller_id is None


def test_partitions_lack_a_leader_until_it_is_known():
    cache = MetadataCache(1)
    assert cache.lacks_leader("orders", 2)
    assert not cache.have_leaders("orders", [0])
    cache.update(update(orders=[state(0, 1), state(1, -1)]))
    assert cache.lacks_leader("orders", 2)
    assert not cache.lacks_leader("orders", 1)
    assert cache.have_leaders("orders", [0])
    assert not cache.have_leaders("orders", [0, 1])
