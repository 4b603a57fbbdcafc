"""GroupConsumer against a scripted coordinator: what it reads while something fails."""

import pytest

from kctl.client.assignment import encode_assignment
from kctl.client.consumer import FetchedRecord
from kctl.client.group_consumer import GroupConsumer
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import LATEST_TIMESTAMP
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchResponse
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from kctl.protocol.messages.join_group import JoinGroupResponse
from kctl.protocol.messages.leave_group import LeaveGroupResponse
from kctl.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.protocol.messages.sync_group import SyncGroupResponse
from kctl.records.record import Record
from tests.support.offset_answers import committed, partition_log

P0, P1 = (TopicPartition("t", number) for number in range(2))
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def broker(make_broker):
    """A coordinator that assigns partition 0, of which the group has committed offset 5."""
    broker = make_broker({"t": 2})
    joined = JoinGroupResponse(
        generation_id=3, protocol_type="consumer", protocol_name="range", leader="other",
        member_id="m1",
    )  # fmt: skip
    broker.answer(ApiKey.JOIN_GROUP, joined)
    broker.answer(ApiKey.SYNC_GROUP, SyncGroupResponse(assignment=encode_assignment([P0])))
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5))
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(0, 9))
    broker.answer(ApiKey.FETCH, FetchResponse())
    broker.answer(ApiKey.OFFSET_COMMIT, OffsetCommitResponse())
    broker.answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    broker.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    return broker


@pytest.fixture
def consumer(broker, router_of, run):
    start = Position(PositionKind.EARLIEST)
    consumer = GroupConsumer(router_of(broker), "g", ["t"], start, until_end=True)
    yield consumer
    run(consumer.close())


def refused_offsets():
    response = committed(t0=-1)
    response.topics[0].partitions[0].error_code = int(REFUSED)
    return response


def refused_ends(request):
    response = partition_log(0, 9)(request)
    if request.body.topics[0].partitions[0].timestamp == LATEST_TIMESTAMP:
        response.topics[0].partitions[0].error_code = int(REFUSED)
    return response


@pytest.mark.parametrize(
    ("api", "answer"),
    [(ApiKey.OFFSET_FETCH, refused_offsets()), (ApiKey.LIST_OFFSETS, refused_ends)],
    ids=["committed", "ends"],
)
def test_without_its_positions_and_ends_nothing_is_read(broker, consumer, run, api, answer):
    broker.answer(api, answer)

    with pytest.raises(ApiError) as caught:
        run(consumer.poll())

    assert caught.value.code == REFUSED
    assert not consumer.is_done
    assert broker.requests(ApiKey.FETCH) == []


def test_a_commit_that_shows_a_rebalance_comes_before_the_next_records(broker, consumer, run):
    run(consumer.poll())
    fetches = len(broker.requests(ApiKey.FETCH))
    consumer.processed(
        [FetchedRecord("t", 0, Record(offset=5, timestamp=0, key=None, value=b""), 0)]
    )
    consumer._next_commit_ms = 0
    item = OffsetCommitResponsePartition(error_code=int(ErrorCode.UNKNOWN_MEMBER_ID))
    topics = [OffsetCommitResponseTopic(name="t", partitions=[item])]
    broker.answer(ApiKey.OFFSET_COMMIT, OffsetCommitResponse(topics=topics))
    broker.answer(ApiKey.OFFSET_FETCH, committed(t1=7))
    broker.answer(ApiKey.SYNC_GROUP, SyncGroupResponse(assignment=encode_assignment([P1])))

    run(consumer.poll())

    [request] = broker.requests(ApiKey.FETCH)[fetches:]
    assert [it.partition for it in request.body.topics[0].partitions] == [1]


def test_after_a_join_that_could_not_begin_the_old_assignment_is_not_read(broker, consumer, run):
    run(consumer.poll())
    fetches = len(broker.requests(ApiKey.FETCH))
    consumer._member.rejoin()
    broker.answer(ApiKey.OFFSET_FETCH, refused_offsets(), committed(t1=7))
    broker.answer(ApiKey.SYNC_GROUP, SyncGroupResponse(assignment=encode_assignment([P1])))

    with pytest.raises(ApiError):
        run(consumer.poll())
    run(consumer.poll())

    asked = [it.body.topics[0].partitions for it in broker.requests(ApiKey.FETCH)[fetches:]]
    assert [[(it.partition, it.fetch_offset) for it in items] for items in asked] == [[(1, 7)]]
