"""Incremental fetch sessions (KIP-227): epochs, changes, news, eviction."""

import itertools

import pytest

from kctl.broker.fetch_session import EVICTION_MS, FetchSessionCache
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

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


def wanted(context):
    return [(topic, p.partition, p.fetch_offset) for topic, p in context.partitions]


@pytest.fixture
def cache():
    ids = itertools.count(100)
    return FetchSessionCache(slots=2, random_below=lambda bound: next(ids) % bound)


def test_old_versions_have_no_session(cache):
    context = cache.open_context(fetch(0, topics={"t": [(0, 5)]}), 6, 0)
    assert context.session is None
    assert wanted(context) == [("t", 0, 5)]
    assert len(cache) == 0


def test_a_session_stores_the_request_and_applies_changes(cache):
    first = cache.open_context(fetch(0, topics={"t": [(0, 5), (1, 6)]}), VERSION, 0)
    assert first.session_id == 101
    second = cache.open_context(fetch(1, 101, topics={"t": [(1, 9), (2, 1)]}), VERSION, 1)
    assert second.is_incremental
    assert wanted(second) == [("t", 0, 5), ("t", 1, 9), ("t", 2, 1)]
    third = cache.open_context(fetch(2, 101, forget={"t": [0, 1]}), VERSION, 2)
    assert wanted(third) == [("t", 2, 1)]


def test_a_wrong_epoch_or_an_unknown_session_is_an_error(cache):
    cache.open_context(fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    assert (
        cache.open_context(fetch(2, 101), VERSION, 0).error_code
        == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    )
    assert (
        cache.open_context(fetch(1, 7), VERSION, 0).error_code
        == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    # The rejected epoch did not advance the session.
    assert cache.open_context(fetch(1, 101), VERSION, 0).error_code == 0


def test_epochs_wrap_around_to_one(cache):
    context = cache.open_context(fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    context.session.epoch = 2**31 - 1
    assert cache.open_context(fetch(2**31 - 1, 101), VERSION, 0).error_code == 0
    assert cache.open_context(fetch(1, 101), VERSION, 0).error_code == 0


def test_the_final_epoch_closes_the_session_and_still_reads(cache):
    cache.open_context(fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    last = cache.open_context(fetch(-1, 101, topics={"t": [(0, 8)]}), VERSION, 1)
    assert (wanted(last), last.session_id) == ([("t", 0, 8)], 0)
    assert len(cache) == 0


def test_a_session_with_nothing_left_is_closed(cache):
    cache.open_context(fetch(0, topics={"t": [(0, 5)]}), VERSION, 0)
    context = cache.open_context(fetch(1, 101, forget={"t": [0]}), VERSION, 1)
    assert (context.session_id, len(cache)) == (0, 0)


def test_only_changes_are_sent_and_served_partitions_move_to_the_end(cache):
    context = cache.open_context(fetch(0, topics={"t": [(0, 5), (1, 6)]}), VERSION, 0)
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


def test_a_full_cache_rejects_until_a_session_is_old_enough(cache):
    for _ in range(2):
        cache.open_context(fetch(0, topics={"t": [(0, 0)]}), VERSION, 0)
    refused = cache.open_context(fetch(0, topics={"t": [(0, 0), (1, 0)]}), VERSION, 1)
    assert refused.session is None
    assert wanted(refused) == [("t", 0, 0), ("t", 1, 0)]
    later = cache.open_context(fetch(0, topics={"t": [(0, 0)]}), VERSION, EVICTION_MS + 1)
    assert later.session is not None
    assert (len(cache), cache.evictions) == (2, 1)


def test_a_follower_takes_the_place_of_a_consumer(cache):
    for _ in range(2):
        cache.open_context(fetch(0, topics={"t": [(0, 0)]}), VERSION, 0)
    follower = cache.open_context(fetch(0, topics={"t": [(0, 0)]}, replica_id=2), VERSION, 1)
    assert follower.session is not None
    assert cache.evictions == 1
