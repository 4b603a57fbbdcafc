"""GroupOffsets: the later record in the log wins."""

import pytest

from kctl.broker.coordinator.group import offsets as group_offsets
from kctl.broker.coordinator.group.offsets import CommittedOffset, GroupOffsets
from kctl.model import TopicPartition
from kctl.work import at_once

TP = TopicPartition("t", 0)
OTHER = TopicPartition("u", 1)
PRODUCER = 7


def offset(number, commit_ms=0, expire_ms=-1):
    return CommittedOffset(number, -1, "", commit_ms, expire_ms)


def committed(offsets):
    return {tp: logged.committed.offset for tp, logged in offsets.committed.items()}


def test_the_later_record_wins_in_any_order_of_replay():
    offsets = GroupOffsets()
    offsets.replay(TP, offset(5), 11, b"k")
    offsets.replay(TP, offset(4), 10, b"k")
    assert committed(offsets) == {TP: 5}


def test_a_tombstone_removes_what_was_before_it_only():
    offsets = GroupOffsets()
    offsets.replay(TP, offset(5), 11, b"k")
    offsets.replay(TP, None, 10, b"k")
    assert committed(offsets) == {TP: 5}
    offsets.replay(TP, None, 12, b"k")
    assert offsets.is_empty


def test_offsets_of_a_transaction_count_when_it_commits():
    offsets = GroupOffsets()
    offsets.mark_in_flight_in_transaction(PRODUCER, [TP])
    offsets.replay_in_transaction(PRODUCER, TP, offset(5), 10, b"k")
    assert committed(offsets) == {}
    assert offsets.is_unstable(TP)
    offsets.end_transaction(PRODUCER, is_commit=True)
    assert committed(offsets) == {TP: 5}
    assert not offsets.is_unstable(TP)


def test_offsets_of_an_aborted_transaction_never_count():
    offsets = GroupOffsets()
    offsets.replay_in_transaction(PRODUCER, TP, offset(5), 10, b"k")
    offsets.end_transaction(PRODUCER, is_commit=False)
    assert offsets.is_empty


def test_a_transaction_that_commits_late_does_not_undo_a_later_commit():
    offsets = GroupOffsets()
    offsets.replay_in_transaction(PRODUCER, TP, offset(5), 10, b"k")
    offsets.replay(TP, offset(9), 11, b"k")
    offsets.end_transaction(PRODUCER, is_commit=True)
    assert committed(offsets) == {TP: 9}


def test_a_failed_commit_of_a_transaction_keeps_its_earlier_ones():
    offsets = GroupOffsets()
    offsets.mark_in_flight_in_transaction(PRODUCER, [TP])
    offsets.replay_in_transaction(PRODUCER, TP, offset(5), 10, b"k")
    offsets.mark_in_flight_in_transaction(PRODUCER, [TP, OTHER])
    offsets.fail_in_transaction(PRODUCER, [TP, OTHER])
    assert not offsets.is_unstable(OTHER)
    offsets.end_transaction(PRODUCER, is_commit=True)
    assert committed(offsets) == {TP: 5}


def test_a_partition_is_unstable_until_its_last_commit_has_settled():
    offsets = GroupOffsets()
    offsets.mark_in_flight([TP])
    offsets.mark_in_flight([TP])
    offsets.clear_in_flight([TP])
    assert offsets.is_unstable(TP)
    assert not offsets.is_unstable(OTHER)
    offsets.clear_in_flight([TP])
    assert offsets.is_empty


@pytest.fixture
def half_ended(monkeypatch):
    """Offsets of a transaction of four partitions, half of which were applied, and the rest of the
    work."""
    monkeypatch.setattr(group_offsets, "ENDED_PER_TURN", 2)
    offsets = GroupOffsets()
    for number in range(4):
        tp = TopicPartition("t", number)
        offsets.replay_in_transaction(PRODUCER, tp, offset(5), 10 + number, b"k")
    ending = offsets.ending_transaction(PRODUCER, is_commit=True)
    next(ending)
    left = [tp for tp in offsets.pending_counts if tp not in offsets.committed]
    assert (len(left), len(offsets.committed)) == (2, 2)
    return offsets, ending, left


def test_an_offset_is_unstable_until_its_turn(half_ended):
    offsets, ending, left = half_ended
    assert all(map(offsets.is_unstable, left))
    assert not any(map(offsets.is_unstable, offsets.committed))
    assert offsets.has_pending
    assert at_once(ending) == 4
    assert len(offsets.committed) == 4
    assert not offsets.has_pending
    assert not offsets.pending_counts


def test_what_is_committed_deleted_or_forgotten_before_its_turn_stays_so(half_ended):
    offsets, ending, (one, other) = half_ended
    offsets.replay(one, offset(9), 20, b"k")
    offsets.replay(other, None, 21, b"k")
    at_once(ending)
    assert committed(offsets)[one] == 9
    assert other not in offsets.committed
    assert not offsets.pending_counts


def test_a_partition_that_is_forgotten_before_its_turn_does_not_come_back(half_ended):
    offsets, ending, left = half_ended
    offsets.forget(left)
    at_once(ending)
    assert not any(tp in offsets.committed for tp in left)
    assert not offsets.has_pending
    assert not offsets.pending_counts


def test_the_next_transaction_of_a_producer_may_begin_before(half_ended):
    offsets, ending, (one, _) = half_ended
    offsets.replay_in_transaction(PRODUCER, one, offset(7), 30, b"k")
    at_once(ending)
    assert committed(offsets)[one] == 5
    assert offsets.is_unstable(one)
    offsets.end_transaction(PRODUCER, is_commit=True)
    assert committed(offsets)[one] == 7


def test_a_forgotten_partition_does_not_come_back_with_its_transaction():
    offsets = GroupOffsets()
    offsets.replay_in_transaction(PRODUCER, TP, offset(5), 10, b"k")
    offsets.forget([TP])
    offsets.end_transaction(PRODUCER, is_commit=True)
    assert offsets.is_empty


@pytest.mark.parametrize(
    ("wall_ms", "empty_since_ms", "expired"),
    [
        (1_099, None, []),  # committed at 100, kept for 1,000
        (1_100, None, [TP]),
        (1_100, 500, []),  # the group has been empty for only 600
        (1_500, 500, [TP]),
    ],
)
def test_offsets_expire_after_the_retention(wall_ms, empty_since_ms, expired):
    offsets = GroupOffsets()
    offsets.replay(TP, offset(5, commit_ms=100), 1, b"k")
    assert (
        offsets.expired(wall_ms, 1_000, among=[TP, OTHER], empty_since_ms=empty_since_ms) == expired
    )


def test_an_offset_with_an_expiry_of_its_own_ignores_the_retention():
    offsets = GroupOffsets()
    offsets.replay(TP, offset(5, commit_ms=100, expire_ms=150), 1, b"k")
    offsets.replay(OTHER, offset(5, commit_ms=100, expire_ms=9_000), 2, b"k")
    assert offsets.expired(149, 1, among=[TP, OTHER], empty_since_ms=0) == []
    assert offsets.expired(5_000, 1, among=[TP, OTHER], empty_since_ms=0) == [TP]


def test_offsets_of_subscribed_topics_and_of_commits_in_flight_do_not_expire():
    offsets = GroupOffsets()
    offsets.replay(TP, offset(5), 1, b"k")
    offsets.replay(OTHER, offset(5), 2, b"k")
    offsets.mark_in_flight([OTHER])
    assert (
        offsets.expired(10**6, 1, among=[TP, OTHER], empty_since_ms=None, subscribed_topics=["t"])
        == []
    )
    assert offsets.expired(10**6, 1, among=[TP, OTHER], empty_since_ms=None) == [TP]
