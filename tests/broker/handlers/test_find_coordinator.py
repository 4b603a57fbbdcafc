"""FindCoordinator."""

import pytest

from kctl.broker.handlers.find_coordinator import TOPIC_WAIT_MS_MAX, handle_find_coordinator
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.handler_world import BROKER_ID, PORT, HandlerWorld


def find(world, version=3, **options):
    return world.answer(
        handle_find_coordinator, FindCoordinatorRequest(key="g", **options), version
    )


@pytest.mark.parametrize("version", range(4))
def test_the_coordinator_is_the_leader_of_the_groups_partition(version):
    response = find(HandlerWorld(), version)
    assert response.error_code == 0
    assert response.error_message in (None, "", "NONE")  # v1 and later say NONE
    assert (response.node_id, response.host, response.port) == (BROKER_ID, "kctl", PORT)


def test_the_first_request_creates_the_topic_and_waits_for_it():
    world = HandlerWorld(topics=["t"])
    answers = world.ask(handle_find_coordinator, FindCoordinatorRequest(key="g"), 3)
    assert world.topics.wanted == ["__consumer_offsets"]
    assert answers == []
    world.learn({TopicPartition("__consumer_offsets", 0): -1})
    assert answers == []
    world.learn({TopicPartition("__consumer_offsets", 0): BROKER_ID})
    world.scheduler.settle()
    assert [answer.error_code for answer in answers] == [0]


@pytest.mark.parametrize("version", range(4))
def test_the_wait_for_a_topic_is_short(version):
    world = HandlerWorld(topics=["t"])
    answers = world.ask(handle_find_coordinator, FindCoordinatorRequest(key="g"), version)
    world.advance(TOPIC_WAIT_MS_MAX)
    (response,) = answers
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (response.node_id, response.host, response.port) == (-1, "", -1)


def test_a_topic_that_cannot_be_created_is_not_waited_for():
    world = HandlerWorld(topics=["t"])
    world.topics.outcome = ErrorCode.INVALID_REPLICATION_FACTOR
    assert find(world).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("leader", [-1, 5])
def test_without_a_live_leader_there_is_no_coordinator(leader):
    world = HandlerWorld()
    world.learn({TopicPartition("__consumer_offsets", 0): leader})
    assert find(world).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.topics.wanted == []


def test_an_unknown_coordinator_type_is_rejected():
    assert find(HandlerWorld(), key_type=7).error_code == ErrorCode.INVALID_REQUEST
