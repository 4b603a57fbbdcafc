"""Groups with many members or offsets, and brokers with many groups, are shown over many turns."""

import pytest

from kctl.broker.coordinator.group import group_coordinator, offset_commits
from kctl.broker.handlers import groups, offsets
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.describe_groups import DescribeGroupsRequest
from kctl.protocol.messages.list_groups import ListGroupsRequest
from kctl.protocol.messages.offset_fetch import OffsetFetchRequest
from kctl.work import at_once
from tests.support.handler_world import HandlerWorld
from tests.support.turn_counter import BOUND, COUNT, TurnCounter


@pytest.fixture
def world():
    return HandlerWorld()


@pytest.fixture
def turns(world, monkeypatch):
    return TurnCounter(world, monkeypatch)


def test_groups_are_listed_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(group_coordinator, "LISTED_PER_TURN", BOUND)
    for number in range(COUNT):
        world.commit({("t", 0): 1}, group_id=f"g{number}")
    turns.watch(group_coordinator, "ListedGroup")
    (listed,) = world.ask(groups.handle_list_groups, ListGroupsRequest(), 3)
    turns.check(total=COUNT)
    assert [group.group_id for group in listed.groups] == [f"g{n}" for n in range(COUNT)]


def test_a_group_that_is_deleted_while_groups_are_listed_is_left_out(world, monkeypatch):
    monkeypatch.setattr(group_coordinator, "LISTED_PER_TURN", BOUND)
    for number in range(COUNT):
        world.commit({("t", 0): 1}, group_id=f"g{number}")
    listing = world.service.list_groups()
    next(listing)
    world.delete_groups(f"g{COUNT - 1}")
    _, listed = at_once(listing)
    assert [group.group_id for group in listed] == [f"g{n}" for n in range(COUNT - 1)]


def test_the_members_of_a_group_are_described_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(group_coordinator, "UNITS_PER_TURN", BOUND)
    ids, _ = world.form_group(COUNT)
    turns.watch(group_coordinator, "DescribedGroupMember")
    (described,) = world.ask(groups.handle_describe_groups, DescribeGroupsRequest(groups=["g"]), 5)
    turns.check(total=COUNT)
    assert [member.member_id for member in described.groups[0].members] == ids


def test_many_groups_are_described_over_many_turns_and_each_once(world, turns, monkeypatch):
    monkeypatch.setattr(groups, "DESCRIBED_PER_TURN", BOUND)
    names = [f"g{number}" for number in range(COUNT)]
    turns.watch(group_coordinator, "DescribedGroup")
    body = DescribeGroupsRequest(groups=names * 3)
    (described,) = world.ask(groups.handle_describe_groups, body, 5)
    turns.check(total=COUNT)
    assert [group.group_id for group in described.groups] == names


def test_all_offsets_of_a_group_are_read_over_many_turns(world, turns, monkeypatch):
    monkeypatch.setattr(offsets, "OFFSETS_PER_TURN", BOUND)
    world.commit({("t", number): number for number in range(COUNT)})
    turns.watch(offset_commits, "FetchedOffset")
    (response,) = world.ask(
        offsets.handle_offset_fetch, OffsetFetchRequest(group_id="g", topics=None), 7
    )
    turns.check(total=COUNT)
    (topic,) = response.topics
    assert [it.committed_offset for it in topic.partitions] == list(range(COUNT))


def test_whether_an_offset_is_stable_is_known_without_a_look_at_every_producer(world):
    """Reading 250 offsets looked at those of each of thousands of open transactions."""
    for producer_id in range(COUNT):
        world.commit({("t", 0): 1}, producer_id=producer_id)
    group = world.group()
    group.offsets.pending_by_producer = NotLookedAt(group.offsets.pending_by_producer)
    _, fetched = world.service.fetch_offsets("g", [TopicPartition("t", 0)], require_stable=True)
    assert fetched[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT


class NotLookedAt(dict):
    def values(self):
        raise AssertionError("every producer is looked at")
