"""What a link asks its source, and what it makes of the responses."""

import pytest

from kctl.broker.links.link_fetcher import (
    BACKOFF_MS,
    NEXT_PHASES,
    Append,
    Compare,
    FindLeader,
    Linked,
    LinkFetcher,
    Phase,
    StartAt,
    Stop,
    Truncate,
)
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartitionResponse,
    ListOffsetRequest,
    ListOffsetResponse,
    ListOffsetTopicResponse,
)
from kctl.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)
from kctl.work import at_once

TP = TopicPartition("orders", 0)


class Log:
    """A copy's log, by its epochs: epoch -> first offset."""

    def __init__(self, end, epochs=None, start=0):
        self.log_start_offset = start
        self.log_end_offset = end
        self.high_watermark = end
        self.epochs = epochs or {}

    @property
    def latest_epoch(self):
        return max(self.epochs, default=-1)

    def end_offset_for_epoch(self, leader_epoch):
        if not self.epochs or leader_epoch > self.latest_epoch:
            return None
        later = [first for epoch, first in self.epochs.items() if epoch > leader_epoch]
        known = [epoch for epoch in self.epochs if epoch <= leader_epoch]
        return max(known, default=leader_epoch), min(later, default=self.log_end_offset)


class Story:
    """A fetcher with one partition."""

    def __init__(self, log, leader_epoch, *, is_compacted=False):
        self.log = log
        self.fetcher = LinkFetcher()
        self.fetcher.add(TP, leader_epoch, log, is_compacted=is_compacted)

    def asks(self, now_ms=0):
        return at_once(self.fetcher.next_request(now_ms))

    def gets(self, response, now_ms=0):
        return list(self.fetcher.on_response(response, now_ms))

    def epoch_ends(self, epoch, end_offset, error_code=0):
        found = OffsetForLeaderPartitionResult(
            partition_index=0, leader_epoch=epoch, end_offset=end_offset, error_code=error_code
        )
        topic = OffsetForLeaderTopicResult(name="orders", partitions=[found])
        return self.gets(OffsetForLeaderEpochResponse(topics=[topic]))

    def fetched(self, records=None, error_code=0, start=0, end=0):
        answer = FetchablePartitionResponse(
            partition=0, error_code=error_code, high_watermark=end, log_start_offset=start,
            record_set=records,
        )  # fmt: skip
        topic = FetchableTopicResponse(topic="orders", partition_responses=[answer])
        return self.gets(FetchResponse(responses=[topic]))

    def begins_at(self, offset):
        answer = ListOffsetPartitionResponse(partition_index=0, offset=offset)
        topic = ListOffsetTopicResponse(name="orders", partitions=[answer])
        return self.gets(ListOffsetResponse(topics=[topic]))


def test_a_new_copy_is_fetched_from_its_end_as_a_consumer():
    story = Story(Log(0), 4)
    request = story.asks()
    assert isinstance(request, FetchRequest)
    [partition] = request.topics[0].partitions
    assert (request.replica_id, partition.fetch_offset, partition.current_leader_epoch) == (
        -1,
        0,
        4,
    )
    assert story.fetched(b"records", end=7) == [Append(TP, b"records", 7, 0)]


def test_a_new_copy_begins_where_its_source_begins():
    story = Story(Log(0), 0)
    story.asks()
    assert story.fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE) == []
    assert isinstance(story.asks(), ListOffsetRequest)
    assert story.begins_at(80) == [StartAt(TP, 80)]
    assert story.fetcher.phase(TP) is Phase.FETCHING


def test_a_copy_goes_on_once_epochs_and_the_last_batch_agree():
    story = Story(Log(100, {0: 0, 2: 60}), 5)
    request = story.asks()
    assert isinstance(request, OffsetForLeaderEpochRequest)
    assert request.topics[0].partitions[0].leader_epoch == 2
    assert story.epoch_ends(2, 100) == [Truncate(TP, 100)]
    request = story.asks()
    assert isinstance(request, FetchRequest)
    assert (request.session_epoch, request.topics[0].partitions[0].fetch_offset) == (-1, 99)
    assert story.fetched(b"last batch") == [Compare(TP, b"last batch")]
    story.fetcher.agreed(TP)
    assert story.asks().topics[0].partitions[0].fetch_offset == 100


def test_what_an_unclean_election_removed_at_the_source_is_truncated():
    story = Story(Log(100, {2: 0}), 3)
    story.asks()
    assert story.epoch_ends(2, 90) == [Truncate(TP, 90)]


def test_epochs_are_compared_again_until_one_is_shared():
    log = Log(100, {0: 0, 2: 60, 3: 80})
    story = Story(log, 5)
    story.asks()
    assert story.epoch_ends(1, 70) == [Truncate(TP, 60)]
    log.log_end_offset, log.epochs = 60, {0: 0}
    assert isinstance(story.asks(), OffsetForLeaderEpochRequest)
    assert story.epoch_ends(0, 65) == [Truncate(TP, 60)]
    assert story.fetcher.phase(TP) is Phase.COMPARING


@pytest.mark.parametrize(
    ("epoch", "end", "leader_epoch", "why"),
    [
        (-1, -1, 0, "does not know leader epoch 2"),
        (2, 90, 2, "in the same leader epoch"),
        (0, 0, 7, "no record of the copy"),
    ],
)
def test_a_copy_stops_that_is_not_one_of_this_source(epoch, end, leader_epoch, why):
    story = Story(Log(100, {2: 0}), leader_epoch)
    story.asks()
    [stop] = story.epoch_ends(epoch, end)
    assert isinstance(stop, Stop)
    assert why in stop.why


def test_records_that_were_deleted_before_they_were_copied_stop_the_copy():
    story = Story(Log(100, {2: 0}), 2)
    story.asks()
    story.epoch_ends(2, 400)
    story.asks()
    # The source has deleted the last batch of the copy, too: there is nothing to compare.
    assert story.fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE) == []
    story.asks()
    assert story.fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE) == []
    story.asks()
    [stop] = story.begins_at(130)
    assert "deleted 30 offsets" in stop.why


def test_a_source_that_ends_earlier_within_one_epoch_stops_the_copy():
    story = Story(Log(100, {2: 0}, start=100), 2)
    story.asks()
    story.fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    story.asks()
    [stop] = story.begins_at(0)
    assert "ends before" in stop.why


def test_a_compacted_batch_is_not_compared():
    story = Story(Log(100, {2: 0}), 2, is_compacted=True)
    story.asks()
    story.epoch_ends(2, 100)
    story.asks()
    assert story.fetched(b"compacted") == []
    assert story.fetcher.phase(TP) is Phase.FETCHING


def test_a_leader_whose_high_watermark_lags_is_asked_again_later():
    story = Story(Log(100, {2: 0}), 2)
    story.asks()
    story.epoch_ends(2, 100)
    story.asks()
    assert story.fetched(None) == []
    assert story.asks(BACKOFF_MS - 1) is None
    assert isinstance(story.asks(BACKOFF_MS), FetchRequest)


def test_another_leader_is_looked_for():
    story = Story(Log(0), 2)
    story.asks()
    code = ErrorCode.FENCED_LEADER_EPOCH
    assert story.fetched(error_code=code) == [FindLeader(TP, code)]
    assert TP not in story.fetcher


def test_a_lost_connection_has_everything_compared_again():
    story = Story(Log(100, {2: 0}), 2)
    story.asks()
    story.epoch_ends(2, 100)
    story.asks()
    story.fetched(b"last batch")
    story.fetcher.agreed(TP)
    story.asks()
    story.fetcher.on_error(0)
    assert isinstance(story.asks(BACKOFF_MS), OffsetForLeaderEpochRequest)


def test_a_response_for_another_state_of_the_log_is_ignored():
    log = Log(0)
    story = Story(log, 2)
    story.asks()
    log.log_end_offset = 5
    assert story.fetched(b"records") == []


@pytest.mark.parametrize("before", Phase)
def test_an_illegal_move_raises_and_changes_nothing(before):
    for after in set(Phase) - NEXT_PHASES[before]:
        linked = Linked(Log(5), 1, is_compacted=False, phase=before)
        with pytest.raises(RuntimeError, match=f"from {before.name} to {after.name}"):
            linked.move_to(after)
        assert linked.phase is before
