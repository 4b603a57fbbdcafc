"""Requests with many elements: others get their turns, and the response is that of the whole
request."""

import pytest

from kctl.broker.network.slices import SLICE_WEIGHT
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetPartitionResponse,
    ListOffsetRequest,
    ListOffsetResponse,
    ListOffsetTopic,
    ListOffsetTopicResponse,
)
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kctl.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.broker.network.test_server import Broker, answer_with_group, heartbeat
from tests.support.raw_requests import decode_response


def list_request(counts):
    topics = [
        ListOffsetTopic(
            name=f"t{number}",
            partitions=[ListOffsetPartition(partition_index=n) for n in range(count)],
        )
        for number, count in enumerate(counts)
    ]
    return ListOffsetRequest(replica_id=-1, topics=topics)


def offsets_as_indexes(request):
    request.reply(
        ListOffsetResponse(
            topics=[
                ListOffsetTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetPartitionResponse(
                            partition_index=it.partition_index, offset=it.partition_index
                        )
                        for it in topic.partitions
                    ],
                )
                for topic in request.body.topics
            ]
        )
    )


@pytest.mark.parametrize("counts", [(3_000,), (0, 600, 1, 0, 900), (1,) * 2_000, (250, 249, 248)])
def test_elements_are_answered_in_order_each_once(loop, counts):
    broker = Broker(loop, offsets_as_indexes)
    peer = broker.connect()
    # Long enough not to count as a small frame.
    peer.send(broker.writer.frame(list_request((*counts, 1_500)), 1))
    answer = decode_response(ApiKey.LIST_OFFSETS, 1, peer.receive_frame())
    assert len(broker.seen) > 1
    for request in broker.seen:
        weight = sum(1 + len(topic.partitions) for topic in request.body.topics)
        assert weight <= SLICE_WEIGHT + 1
    assert [(it.name, len(it.partitions)) for it in answer.topics] == [
        (f"t{number}", count) for number, count in enumerate((*counts, 1_500))
    ]
    assert all(it.partition_index == it.offset for t in answer.topics for it in t.partitions)


def test_others_are_served_between_slices(loop):
    order = []

    def handle(request):
        order.append(request.api_key)
        if request.api_key == ApiKey.HEARTBEAT:
            answer_with_group(request)
            return
        names = request.body.topic_names
        request.reply(DeleteTopicsResponse(responses=[DeletableTopicResult(name=n) for n in names]))

    broker = Broker(loop, handle)
    heavy, light = broker.connect(), broker.connect()
    names = [f"topic-{number:04}" for number in range(5_000)]
    data = broker.writer.frame(DeleteTopicsRequest(topic_names=names), 3)
    heavy.send(data)
    loop.until(lambda: order)
    light.send(broker.writer.frame(heartbeat("1"), 1))
    light.receive_frame()
    answer = decode_response(ApiKey.DELETE_TOPICS, 3, heavy.receive_frame())
    assert [it.name for it in answer.responses] == names
    assert order.count(ApiKey.DELETE_TOPICS) == 20
    assert 0 < order.index(ApiKey.HEARTBEAT) < 20


def test_slices_of_produce_do_not_wait_for_each_other(loop):
    broker = Broker(loop)
    peer = broker.connect()
    parts = [PartitionProduceData(partition_index=n, records=bytes(900_000)) for n in range(12)]
    message = ProduceRequest(acks=-1, topics=[TopicProduceData(name="t", partitions=parts)])
    peer.send(broker.writer.frame(message, 7))
    loop.until(lambda: len(broker.requests) == 3)
    for request in reversed(broker.requests):
        (topic,) = request.body.topics
        answers = [PartitionProduceResponse(partition_index=it.partition_index)
                   for it in topic.partitions]  # fmt: skip
        request.reply(
            ProduceResponse(responses=[TopicProduceResponse(name="t", partitions=answers)])
        )
    (topic,) = decode_response(ApiKey.PRODUCE, 7, peer.receive_frame()).responses
    assert [it.partition_index for it in topic.partitions] == list(range(12))


def test_a_slice_that_is_refused_ends_the_connection_and_the_rest(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(list_request((3_000,)), 1))
    broker.next_request().close()
    peer.wait_for_close()
    loop.turns()
    assert len(broker.seen) == 1
    assert broker.counters.queued_request_bytes == 0


def test_a_slice_that_fails_ends_the_connection(loop):
    def fail_later(request):
        if len(broker.seen) == 3:
            raise ArithmeticError("third")
        offsets_as_indexes(request)

    broker = Broker(loop, fail_later)
    peer = broker.connect()
    peer.send(broker.writer.frame(list_request((3_000,)), 1))
    peer.wait_for_close()
    assert "third" in loop.trace.warnings[-1]


def test_offsets_of_a_transaction_are_committed_in_slices(loop):
    """Up to 30,000 of them were one append in one turn."""
    seen = []

    def handle(request):
        (topic,) = request.body.topics
        numbers = [it.partition_index for it in topic.partitions]
        seen.append(len(numbers))
        results = [TxnOffsetCommitResponsePartition(partition_index=n) for n in numbers]
        answer = TxnOffsetCommitResponseTopic(name=topic.name, partitions=results)
        request.reply(TxnOffsetCommitResponse(topics=[answer]))

    broker = Broker(loop, handle)
    peer = broker.connect()
    partitions = [TxnOffsetCommitRequestPartition(partition_index=n) for n in range(1_000)]
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    peer.send(broker.writer.frame(TxnOffsetCommitRequest(topics=topics), 2))
    (topic,) = decode_response(ApiKey.TXN_OFFSET_COMMIT, 2, peer.receive_frame()).topics
    assert [it.partition_index for it in topic.partitions] == list(range(1_000))
    assert max(seen) <= SLICE_WEIGHT
