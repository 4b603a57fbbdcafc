"""Links of many partitions take turns of the loop, and know what changes between two of them."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from kctl.broker.links import link_fetcher, link_manager, source_cluster
from kctl.broker.links.link_fetcher import Append, LinkFetcher
from kctl.broker.links.link_manager import LinkManager
from kctl.broker.links.linked_partition import NEXT_PHASES, LinkedPartition, PartitionPhase
from kctl.broker.links.source_cluster import SourceLeader
from kctl.broker.replication import fetch_session_handler, leader_requests
from kctl.broker.replication.partition import Role
from kctl.configs.link_configs import (
    RESUMES_MAX,
    STATUS_PARTITIONS,
    OnLoss,
    format_resumes,
    link_of,
    status_config,
)
from kctl.mirror.links import STATUSES_PER_REQUEST, _status_requests
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
from kctl.protocol.primitives import STRING_BYTES_MAX
from kctl.work import at_once
from tests.support.virtual_runtime import virtual_runtime

BOUND = 3
COUNT = 4 * BOUND
LINK = {"mirror.source": "west", "mirror.source.cluster": "c"}


@pytest.fixture(autouse=True)
def small_turns(monkeypatch):
    for module in (link_fetcher, leader_requests, fetch_session_handler, source_cluster):
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


def test_the_descriptions_of_partitions_fit_in_a_string():
    """Kafka's strings have at most 32,767 bytes, whatever a partition waits for."""
    most = (1 << 63) - 1
    log = SimpleNamespace(log_start_offset=most, log_end_offset=most)
    partition = SimpleNamespace(
        topic_partition=TopicPartition("t", (1 << 31) - 1), log=log, leader_epoch=(1 << 31) - 1
    )
    linked = LinkedPartition(
        partition, link_of(LINK), PartitionPhase.RESTARTING, "\x01 cannot be reached" * 100, most,
        truncated=(most, most), followed=SourceLeader(1, (1 << 31) - 1),
    )  # fmt: skip
    document = json.dumps(linked.document(most))
    assert "cannot be reached" in document
    assert len(document) * STATUS_PARTITIONS <= STRING_BYTES_MAX
    decisions = dict.fromkeys(range((1 << 31) - RESUMES_MAX, 1 << 31), OnLoss.RESTART)
    assert len(format_resumes(decisions)) <= STRING_BYTES_MAX


def test_requests_for_the_status_of_links_are_bounded():
    wanted = Counter((f"t{n // 2_000}", status_config(n % 2_000)) for n in range(10_000))
    wanted |= Counter({("small", status_config(0)): 1})
    requests = list(_status_requests(wanted))
    asked = [
        (it.resource_name, key)
        for request in requests
        for it in request.resources
        for key in it.configuration_keys
    ]
    assert asked == list(wanted)
    assert len(requests) == 11
    assert STATUSES_PER_REQUEST == 1_000


@pytest.mark.parametrize("before", PartitionPhase)
def test_an_illegal_move_of_a_copy_raises_and_changes_nothing(before):
    for after in set(PartitionPhase) - NEXT_PHASES[before]:
        linked = LinkedPartition(None, link_of(LINK), before, "because")
        with pytest.raises(RuntimeError, match=f"from {before.name} to {after.name}"):
            linked.move_to(after)
        assert (linked.phase, linked.detail) == (before, "because")


@pytest.mark.parametrize(
    "phase", [it for it in PartitionPhase if it is not PartitionPhase.FOLLOWING]
)
def test_what_a_loop_reports_of_a_partition_that_has_left_it_changes_nothing(phase):
    world = Linked()
    world.overrides = LINK
    world.manager.on_topic_change("t")
    linked = world.manager._linked[tp(0)]
    linked.phase = phase
    world.manager.stop(tp(0), "diverged")
    world.manager.find_leader(tp(0), "moved")
    assert (linked.phase, linked.detail) == (phase, "")
