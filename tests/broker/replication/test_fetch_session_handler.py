"""FetchSessionHandler: the partitions that a follower names in its requests, and their order."""

from kctl.broker.replication.fetch_session_handler import FetchSessionHandler
from kctl.model import TopicPartition
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from kctl.work import at_once

A0, B0, A1 = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)


def wanted(*partitions, offset=0):
    return {tp: FetchPartition(partition=tp.partition, fetch_offset=offset) for tp in partitions}


def named(handler, partitions):
    request = FetchRequest()
    at_once(handler.fill(request, partitions))
    return [(topic.topic, [p.partition for p in topic.partitions]) for topic in request.topics]


def test_partitions_are_named_in_the_order_wanted_and_only_neighbours_share_a_topic():
    handler = FetchSessionHandler()
    assert named(handler, wanted(A0, B0, A1)) == [("a", [0]), ("b", [0]), ("a", [1])]
    assert named(FetchSessionHandler(), wanted(A0, A1, B0)) == [("a", [0, 1]), ("b", [0])]


def test_an_open_session_names_only_what_changed():
    handler = FetchSessionHandler()
    named(handler, wanted(A0, B0, A1))
    assert handler.on_response(FetchResponse(session_id=7))
    assert named(handler, wanted(A0, B0, A1)) == []
    assert named(handler, {**wanted(A0, B0), **wanted(A1, offset=5)}) == [("a", [1])]
