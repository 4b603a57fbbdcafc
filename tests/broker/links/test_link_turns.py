"""Links of many partitions take turns of the loop, and know what changes between two of them."""

from types import SimpleNamespace

import pytest

from kctl.broker.links import link_fetcher, link_manager, source_cluster
from kctl.broker.links.link_fetcher import Append, LinkFetcher
from kctl.broker.links.link_manager import LinkManager
from kctl.broker.replication import fetch_session_handler
from kctl.broker.replication.partition import Role
from kctl.configs.link_configs import link_of
from kctl.model import TopicPartition
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.work import at_once
from tests.support.virtual_runtime import virtual_runtime

BOUND = 3
COUNT = 4 * BOUND
LINK = {"mirror.source": "west", "mirror.source.cluster": "c"}


@pytest.fixture(autouse=True)
def small_turns(monkeypatch):
    for module in (link_fetcher, fetch_session_handler, source_cluster):
        monkeypatch.setattr(module, "PARTITIONS_PER_TURN", BOUND)
    monkeypatch.setattr(link_manager, "CHANGED_PER_TURN", BOUND)


def tp(number):
    return TopicPartition("t", number)


def empty_log():
    return SimpleNamespace(log_start_offset=0, log_end_offset=0, high_watermark=0, latest_epoch=-1)


@pytest.fixture
def logs():
    return [empty_log() for _ in range(COUNT)]


@pytest.fixture
def fetcher(logs):
    fetcher = LinkFetcher()
    for number, log in enumerate(logs):
        fetcher.add(tp(number), 0, log, is_compacted=False)
    return fetcher


def finished(work, between=lambda turn: None):
    """Return the result of `work` and its turns, with a call of `between` after each."""
    turns = 0
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value, turns
        turns += 1
        between(turns)


def response(numbers):
    answers = [
        FetchablePartitionResponse(partition=number, high_watermark=9, record_set=b"records")
        for number in numbers
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partition_responses=answers)])


def test_a_request_is_made_in_turns(fetcher):
    request, turns = finished(fetcher.next_request(0))
    assert [it.partition for it in request.topics[0].partitions] == list(range(COUNT))
    assert turns >= 2 * COUNT // BOUND


def test_what_changed_while_a_request_was_made_is_not_appended_to(fetcher, logs):
    def change(turn):
        if turn == 1:
            fetcher.remove(tp(0))
            logs[1].log_end_offset = logs[COUNT - 1].log_end_offset = 7

    request, _ = finished(fetcher.next_request(0), change)
    offsets = {it.partition: it.fetch_offset for it in request.topics[0].partitions}
    # Asked for after the change, and as of then.
    assert offsets[COUNT - 1] == 7
    logs[1].log_end_offset = 8
    actions = [it for it in fetcher.on_response(response(range(COUNT)), 0) if it is not None]
    assert [it.topic_partition.partition for it in actions] == list(range(2, COUNT))


def test_a_response_is_applied_in_turns(fetcher):
    at_once(fetcher.next_request(0))
    since_turn = most = 0
    for action in fetcher.on_response(response(range(COUNT)), 0):
        assert action is None or isinstance(action, Append)
        since_turn = 0 if action is None else since_turn + 1
        most = max(most, since_turn)
    assert most == BOUND


def test_metadata_of_the_source_is_read_in_turns():
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=5)
        for number in range(COUNT)
    ]
    topics = [
        MetadataResponseTopic(name="t", partitions=partitions),
        MetadataResponseTopic(name="gone", error_code=3),
    ]
    view, turns = finished(source_cluster._view(MetadataResponse(topics=topics)))
    assert turns >= COUNT // BOUND
    assert (view.partition_counts, view.errors) == ({"t": COUNT}, {"gone": 3})
    assert set(view.leaders) == {tp(number) for number in range(COUNT)}


class Linked:
    """A manager, and the partitions of a topic that this broker leads."""

    def __init__(self):
        self.overrides = {}
        self.runtime = virtual_runtime()
        self.partitions = {
            tp(number): SimpleNamespace(
                topic_partition=tp(number), role=Role.LEADER, read_only=None, log=None,
                leader_epoch=0, become_writable=lambda number=number: self.opened(number),
            )
            for number in range(COUNT)
        }  # fmt: skip
        self.manager = LinkManager(
            self.runtime, SimpleNamespace(given={}),
            SimpleNamespace(partitions=self.partitions), None,
            SimpleNamespace(topic=lambda _: self.overrides),
            SimpleNamespace(partition_count=lambda _: COUNT), None,
        )  # fmt: skip

    def opened(self, number):
        self.partitions[tp(number)].read_only = None

    def refusing(self):
        return sum(it.read_only is not None for it in self.partitions.values())


def test_a_changed_link_is_applied_to_its_partitions_in_turns():
    world = Linked()
    world.overrides = LINK
    world.manager.on_topic_change("t")
    assert world.refusing() == BOUND
    world.runtime.scheduler.advance(0)
    assert world.refusing() == COUNT


def test_a_link_that_changes_again_meanwhile_is_applied_as_it_is_last():
    world = Linked()
    world.overrides = LINK
    world.manager.on_topic_change("t")
    world.overrides = {**LINK, "mirror.state": "failover"}
    world.manager.on_topic_change("t")
    world.runtime.scheduler.advance(0)
    links = [it.link for it in world.manager._linked.values()]
    assert links == [link_of(world.overrides)] * COUNT
