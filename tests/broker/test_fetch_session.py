"""Incremental fetch sessions (KIP-227): epochs, changes, news, eviction."""

import itertools

import pytest

from kctl.broker import fetch_session
from kctl.broker.fetch_session import EVICTION_MS, PARTITIONS_PER_TURN, FetchSessionCache
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kctl.work import at_once
from tests.support.builds import needs_sources
from tests.support.turn_work import CALLS_PER_TURN_MAX, counted_calls

VERSION = 11


def fetch(epoch, session_id=0, topics=None, forget=None, replica_id=-1):
    return FetchRequest(
        replica_id=replica_id,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=p, fetch_offset=o) for p, o in partitions],
            )
            for topic, partitions in (topics or {}).items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=topic, partitions=partitions)
            for topic, partitions in (forget or {}).items()
        ],
    )


@pytest.fixture(params=["at once", "in turns"])
def way(request):
    return request.param


@pytest.fixture
def opened(way):
    def opened(cache, body, version, now_ms):
        if way == "at once":
            return cache.open_context(body, version, now_ms)
        return at_once(cache.opening_context(body, version, now_ms))

    return opened


def wanted(context):
    return [(topic, p.partition, p.fetch_offset) for topic, p in context.partitions]


@pytest.fixture
def cache():
    ids = itertools.count(100)
    return FetchSessionCache(slots=2, random_below=lambda bound: next(ids) % bound)


def test_old_versions_have_no_session(cache, opened):
    context = opened(cache, fetch(0, topics={"t": [(0, 5)]}), 6, 0)
    assert context.session is None
    assert wanted(context) == [("t", 0, 5)]
    assert len(cache) == 0


def test_a_session_stores_the_request_and_applies_changes(cache, opened):
    first = opened(cache, fetch(0, topics={"t": [(0, 5), (1, 6)]}), VERSION, 0)
    assert first.session_id == 101
    second = opened(cache, fetch(1, 101, topics={"t": [(1, 9), (2, 1)]}), VERSION, 1)
    assert second.is_incremental
    assert wanted(second) == [("t", 0, 5), ("t", 1, 9), ("t", 2, 1)]
    third = opened(cache, fetch(2, 101, forget={"t": [0, 1]}), VERSION, 2)
    assert wanted(third) == [("t", 2, 1)]


def test_a_wrong_epoch_or_an_unknown_session_is_an_error(cache, opened):
    opened(cache, fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    assert (
        opened(cache, fetch(2, 101), VERSION, 0).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    )
    assert opened(cache, fetch(1, 7), VERSION, 0).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # The rejected epoch did not advance the session.
    assert opened(cache, fetch(1, 101), VERSION, 0).error_code == 0


def test_epochs_wrap_around_to_one(cache, opened):
    context = opened(cache, fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    context.session.epoch = 2**31 - 1
    assert opened(cache, fetch(2**31 - 1, 101), VERSION, 0).error_code == 0
    assert opened(cache, fetch(1, 101), VERSION, 0).error_code == 0


def test_the_final_epoch_closes_the_session_and_still_reads(cache, opened):
    opened(cache, fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    last = opened(cache, fetch(-1, 101, topics={"t": [(0, 8)]}), VERSION, 1)
    assert (wanted(last), last.session_id) == ([("t", 0, 8)], 0)
    assert len(cache) == 0


def test_a_session_with_nothing_left_is_closed(cache, opened):
    opened(cache, fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    context = opened(cache, fetch(1, 101, forget={"t": [0]}), VERSION, 1)
    assert (context.session_id, len(cache)) == (0, 0)


def test_only_changes_are_sent_and_served_partitions_move_to_the_end(cache, opened):
    context = opened(cache, fetch(0, topics={"t": [(0, 5), (1, 6)]}), VERSION, 0)
    session = context.session
    response = {"error_code": 0, "high_watermark": 9, "log_start_offset": 0}
    cached = session.partitions["t", 0]
    assert cached.record_response(**response, has_records=False)
    assert not cached.record_response(**response, has_records=False)
    assert cached.record_response(**response, has_records=True)
    assert cached.record_response(**(response | {"high_watermark": 10}), has_records=False)
    assert cached.record_response(**(response | {"error_code": 3}), has_records=False)
    # The end of an error is a change, too.
    assert cached.record_response(**response, has_records=False)
    session.move_to_end([("t", 0)])
    assert list(session.partitions) == [("t", 1), ("t", 0)]


def test_a_full_cache_rejects_until_a_session_is_old_enough(cache, opened):
    for _ in range(2):
        opened(cache, fetch(0, topics={"t": [(0, 0)]}), VERSION, 0)
    refused = opened(cache, fetch(0, topics={"t": [(0, 0), (1, 0)]}), VERSION, 1)
    assert refused.session is None
    assert wanted(refused) == [("t", 0, 0), ("t", 1, 0)]
    later = opened(cache, fetch(0, topics={"t": [(0, 0)]}), VERSION, EVICTION_MS + 1)
    assert later.session is not None
    assert (len(cache), cache.evictions) == (2, 1)


def test_a_follower_takes_the_place_of_a_consumer(cache, opened):
    for _ in range(2):
        opened(cache, fetch(0, topics={"t": [(0, 0)]}), VERSION, 0)
    follower = opened(cache, fetch(0, topics={"t": [(0, 0)]}, replica_id=2), VERSION, 1)
    assert follower.session is not None
    assert cache.evictions == 1


def turns_of(work):
    """Return the result of `work`, and the calls of each of its turns."""
    turns = []
    while True:
        try:
            with counted_calls() as count:
                next(work)
        except StopIteration as stop:
            return stop.value, [*turns, count.calls]
        turns.append(count.calls)


MANY = 20 * PARTITIONS_PER_TURN


@pytest.mark.parametrize("topics", [MANY, 3, 1])
def test_very_many_partitions_are_read_in_turns(cache, topics):
    names = {f"t{number}": [(p, 7) for p in range(MANY // topics)] for number in range(topics)}
    first, turns = turns_of(cache.opening_context(fetch(0, topics=names), VERSION, 0))
    assert len(turns) >= MANY // PARTITIONS_PER_TURN
    assert max(turns) < CALLS_PER_TURN_MAX
    expected = [(name, p, offset) for name, each in names.items() for p, offset in each]
    assert wanted(first) == expected

    again, turns = turns_of(cache.opening_context(fetch(1, first.session_id), VERSION, 0))
    assert len(turns) >= MANY // PARTITIONS_PER_TURN
    assert wanted(again) == expected

    gone = {name: [p for p, _ in each] for name, each in list(names.items())[1:]}
    body = fetch(2, first.session_id, topics={"t0": [(0, 8)]}, forget=gone)
    left, turns = turns_of(cache.opening_context(body, VERSION, 0))
    assert max(turns) < CALLS_PER_TURN_MAX
    assert wanted(left) == [("t0", 0, 8), *[it for it in expected[1:] if it[0] == "t0"]]


def test_a_second_request_of_the_same_epoch_is_refused_while_the_first_is_read(cache, opened):
    names = {"t": [(p, 7) for p in range(MANY)]}
    session_id = opened(cache, fetch(0, topics=names), VERSION, 0).session_id
    slow = cache.opening_context(fetch(1, session_id), VERSION, 0)
    next(slow)
    code = opened(cache, fetch(1, session_id), VERSION, 0).error_code
    assert code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    # The next epoch may already use the session, and change it.
    opened(cache, fetch(2, session_id, topics={"u": [(0, 1)]}, forget={"t": [5]}), VERSION, 0)
    assert len(wanted(at_once(slow))) == MANY


@needs_sources
def test_a_session_has_a_limit(cache, monkeypatch, opened):
    monkeypatch.setattr(fetch_session, "SESSION_PARTITIONS_MAX", 2)
    context = opened(cache, fetch(0, topics={"t": [(0, 0), (1, 0), (2, 0)]}), VERSION, 0)
    assert (len(context.partitions), context.session) == (3, None)
    context = opened(cache, fetch(0, topics={"t": [(0, 0), (1, 0)]}), VERSION, 0)
    more = opened(cache, fetch(1, context.session_id, topics={"u": [(0, 0)]}), VERSION, 0)
    assert more.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


@needs_sources
def test_what_exceeds_the_limit_of_a_session_is_not_all_added(cache, monkeypatch, opened):
    session = opened(cache, fetch(0, topics={"t": [(0, 0)]}), VERSION, 0).session
    monkeypatch.setattr(fetch_session, "SESSION_PARTITIONS_MAX", PARTITIONS_PER_TURN)
    body = fetch(1, session.session_id, topics={"u": [(p, 0) for p in range(MANY)]})
    refused = at_once(cache.opening_context(body, VERSION, 0))
    assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (refused.partitions, refused.session_id, len(cache)) == ([], 0, 0)
    assert len(session.partitions) < 3 * PARTITIONS_PER_TURN


def test_a_session_may_go_while_it_is_read(cache, opened):
    names = {"t": [(p, 7) for p in range(MANY)]}
    session_id = opened(cache, fetch(0, topics=names), VERSION, 0).session_id
    slow = cache.opening_context(fetch(1, session_id, forget={"t": [0]}), VERSION, 0)
    next(slow)
    opened(cache, fetch(-1, session_id), VERSION, 0)
    assert len(wanted(at_once(slow))) == MANY - 1
    code = opened(cache, fetch(2, session_id), VERSION, 0).error_code
    assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
