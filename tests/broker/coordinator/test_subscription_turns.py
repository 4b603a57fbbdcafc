"""The topics that the members of a group subscribe to are read in turns of the loop."""

import pytest

from kctl.broker.coordinator.group import group_loader, subscriptions
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.consumer_protocol import ConsumerProtocolSubscription, encode_blob
from kctl.protocol.messages.leave_group import MemberIdentity
from tests.support.group_invariants import check_groups
from tests.support.group_world import DELAY_MS, REBALANCE_MS, GroupWorld
from tests.support.turn_counter import BOUND, COUNT, TurnCounter
from tests.support.turn_work import CALLS_PER_TURN_MAX, counted_calls


@pytest.fixture
def world():
    world = GroupWorld().elect()
    yield world
    check_groups(world.shard)


@pytest.fixture
def turns(world, monkeypatch):
    return TurnCounter(world, monkeypatch)


def subscription(*topics):
    return encode_blob(ConsumerProtocolSubscription(topics=list(topics)))


def test_subscriptions_are_read_over_many_turns(world, turns, monkeypatch):
    different = [subscription(f"topic{number:02}") for number in range(COUNT)]
    bytes_of_each = len(different[0]) + subscriptions.BYTES_OF_EACH
    monkeypatch.setattr(subscriptions, "BYTES_PER_TURN", BOUND * bytes_of_each)
    for metadata in different:
        world.enter(protocols={"range": metadata})
    turns.watch(subscriptions, "decoding")
    while world.group().generation_id == 0:
        world.advance(DELAY_MS)
    turns.check(total=COUNT)
    assert world.group().subscribed_topics == {f"topic{number:02}" for number in range(COUNT)}


def test_a_subscription_to_very_many_topics_is_read_over_many_turns(world, monkeypatch):
    """One of 14 MB kept all other clients waiting for four seconds."""
    names = [f"topic{number}" for number in range(CALLS_PER_TURN_MAX)]
    world.enter(protocols={"range": subscription(*names)})
    turn, calls = world.scheduler.turn, []

    def counted_turn():
        with counted_calls() as count:
            is_busy = turn()
        calls.append(count.calls)
        return is_busy

    monkeypatch.setattr(world.scheduler, "turn", counted_turn)
    world.advance(DELAY_MS)
    assert world.group().subscribed_topics == set(names)
    assert sum(calls) > CALLS_PER_TURN_MAX
    assert max(calls) < CALLS_PER_TURN_MAX // 2


@pytest.mark.parametrize("bound", ["METADATA_BYTES_MAX", "TOPICS_MAX"])
def test_a_group_of_too_many_topics_may_subscribe_to_all(world, monkeypatch, bound):
    monkeypatch.setattr(subscriptions, "TOPICS_PER_TURN", BOUND)
    names = [f"topic{number}" for number in range(COUNT)]
    protocols = {"range": subscription(*names)}
    holds = {"METADATA_BYTES_MAX": len(protocols["range"]), "TOPICS_MAX": COUNT}[bound]
    monkeypatch.setattr(subscriptions, bound, holds)
    (one, _), generation_id = world.form_group(2, protocols=protocols)
    world.commit({("other", 0): 5}, member_id=one, generation_id=generation_id)
    assert world.delete_offsets(("other", 0)).response == (0, [0])
    monkeypatch.setattr(subscriptions, bound, holds - 1)
    (one, _), generation_id = world.form_group(2, protocols=protocols, group_id="h")
    world.commit({("other", 0): 5}, member_id=one, generation_id=generation_id, group_id="h")
    refused = world.delete_offsets(("other", 0), group_id="h")
    assert refused.response == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])


def test_the_topics_of_a_generation_that_ended_are_not_read_further(world, turns, monkeypatch):
    monkeypatch.setattr(subscriptions, "BYTES_PER_TURN", 1)
    first, second = (
        world.enter(protocols={"range": subscription(topic)})[0] for topic in ("t", "u")
    )
    turns.watch(subscriptions, "decoding")
    while not turns.total:
        world.advance(DELAY_MS - 1)
        world.clock.now_ms += 1
        world.scheduler.turn()
    world.service.leave("g", [MemberIdentity(member_id=second)], lambda _: None)
    assert world.join(first, protocols={"range": subscription("v")}).response.generation_id == 2
    assert turns.total == 2
    assert world.group().subscribed_topics == {"v"}


def test_the_topics_of_many_groups_are_read_over_many_turns(world, turns, monkeypatch):
    protocols = {"range": subscription("topic")}
    for number in range(COUNT):
        world.form_group(
            1, group_id=f"g{number}", protocols=protocols, session_ms=10 * REBALANCE_MS
        )
    units_of_each = 2 + len(protocols["range"])
    monkeypatch.setattr(group_loader, "METADATA_BYTES_PER_UNIT", 1)
    monkeypatch.setattr(group_loader, "UNITS_PER_TURN", BOUND * units_of_each)
    turns.watch(subscriptions, "decoding")
    world.elect(epoch=1)
    turns.check(total=COUNT)
    assert world.group("g0").subscribed_topics == {"topic"}
