"""Metadata of topics with many partitions, and of many topics, is made over many turns."""

import pytest

from kctl.broker.handlers import metadata
from kctl.model import TopicPartition
from kctl.protocol.messages.metadata import MetadataRequest
from tests.support.handler_world import BROKER_ID, HandlerWorld
from tests.support.turn_counter import BOUND, COUNT, TurnCounter


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(metadata, "PARTITIONS_PER_TURN", BOUND)
    world = HandlerWorld()
    world.services.cluster_id = "cluster"
    return world


def test_a_topic_with_many_partitions(world, monkeypatch):
    world.learn({TopicPartition("wide", number): BROKER_ID for number in range(COUNT)})
    turns = TurnCounter(world, monkeypatch)
    turns.watch(metadata, "MetadataResponsePartition")
    (response,) = world.ask(metadata.handle_metadata, MetadataRequest(topics=None), 9)
    # The other topics have three.
    turns.check(total=COUNT + 3, bound=BOUND + 3)
    (topic,) = [topic for topic in response.topics if topic.name == "wide"]
    assert [it.partition_index for it in topic.partitions] == list(range(COUNT))


def test_many_topics(world, monkeypatch):
    world.learn({TopicPartition(f"t{number}", 0): BROKER_ID for number in range(COUNT)})
    turns = TurnCounter(world, monkeypatch)
    turns.watch(metadata, "MetadataResponseTopic")
    (response,) = world.ask(metadata.handle_metadata, MetadataRequest(topics=None), 9)
    turns.check(total=COUNT + 2)
    assert len(response.topics) == COUNT + 2
