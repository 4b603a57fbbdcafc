"""D1: offsets in ZooKeeper, in Kafka or in both: what a consumer begins at, and what it writes."""

from itertools import product

import pytest

from kctl.kafka.offsets import (
    DualPick,
    OffsetsPolicy,
    OffsetsStorage,
    StoredOffset,
    commit_metadata,
    commit_time_ms,
    start_offset,
    to_follow,
)

ZOOKEEPER, KAFKA = OffsetsStorage.ZOOKEEPER, OffsetsStorage.KAFKA
# storage, dual -> (zookeeper, kafka) -> the offset to begin at, as Apache Kafka 1.1.1's consumer
# does (tests/interop/test_java_consumers.py asks it).
OFFSETS = (None, 3, 7)
JAVA = {
    (ZOOKEEPER, False): lambda zookeeper, kafka: zookeeper,
    (ZOOKEEPER, True): lambda zookeeper, kafka: zookeeper,
    (KAFKA, False): lambda zookeeper, kafka: kafka,
    (KAFKA, True): lambda zookeeper, kafka: max(
        (it for it in (zookeeper, kafka) if it is not None), default=None
    ),
}


def stored(zookeeper, kafka):
    return {
        ZOOKEEPER: None if zookeeper is None else StoredOffset(zookeeper),
        KAFKA: None if kafka is None else StoredOffset(kafka),
    }


@pytest.mark.parametrize(("storage", "is_dual"), list(JAVA))
def test_a_consumer_like_javas_begins_where_javas_does(storage, is_dual):
    policy = OffsetsPolicy(storage, is_dual, like_java=True)
    for zookeeper, kafka in product(OFFSETS, OFFSETS):
        expected = JAVA[storage, is_dual](zookeeper, kafka)
        assert start_offset(policy, stored(zookeeper, kafka)) == expected


@pytest.mark.parametrize("storage", OffsetsStorage)
def test_dual_commit_works_in_both_directions(storage):
    policy = OffsetsPolicy(storage, is_dual=True)
    for zookeeper, kafka in product(OFFSETS, OFFSETS):
        expected = JAVA[KAFKA, True](zookeeper, kafka)
        assert start_offset(policy, stored(zookeeper, kafka)) == expected
    assert policy.stores == (storage, storage.other)


def test_a_rewind_in_the_main_store_counts_with_the_pick_storage():
    found = stored(zookeeper=7, kafka=3)
    assert start_offset(OffsetsPolicy(KAFKA, is_dual=True, pick=DualPick.STORAGE), found) == 3
    assert start_offset(OffsetsPolicy(ZOOKEEPER, is_dual=True, pick=DualPick.STORAGE), found) == 7
    found = stored(zookeeper=7, kafka=None)
    assert start_offset(OffsetsPolicy(KAFKA, is_dual=True, pick=DualPick.STORAGE), found) == 7


def test_the_newest_commit_counts_if_both_times_are_known():
    policy = OffsetsPolicy(KAFKA, is_dual=True, pick=DualPick.NEWEST)
    zookeeper, kafka = StoredOffset(7, 1000), StoredOffset(3, 2000)
    assert start_offset(policy, {ZOOKEEPER: zookeeper, KAFKA: kafka}) == 3
    assert start_offset(policy, {ZOOKEEPER: zookeeper, KAFKA: StoredOffset(3)}) == 7
    # One millisecond: the larger.
    assert start_offset(policy, {ZOOKEEPER: zookeeper, KAFKA: StoredOffset(3, 1000)}) == 7


def test_an_offset_below_0_is_none():
    policy = OffsetsPolicy(KAFKA, is_dual=True)
    assert start_offset(policy, stored(zookeeper=-1, kafka=-1)) is None
    assert start_offset(policy, stored(zookeeper=2, kafka=-1)) == 2


def test_a_store_that_has_not_answered_is_not_one_without_an_offset():
    with pytest.raises(KeyError):
        start_offset(OffsetsPolicy(KAFKA, is_dual=True), {ZOOKEEPER: StoredOffset(3)})


@pytest.mark.parametrize("storage", OffsetsStorage)
def test_the_other_store_follows_what_the_main_store_accepted_and_what_changed(storage):
    committed = {("t", 0): 5, ("t", 1): 6}
    assert to_follow(OffsetsPolicy(storage, is_dual=True), committed, {("t", 0): 5}) == {
        ("t", 1): 6
    }
    # A rewind is a change.
    assert to_follow(OffsetsPolicy(storage, is_dual=True), {("t", 0): 5}, {("t", 0): 9}) == {
        ("t", 0): 5
    }
    assert to_follow(OffsetsPolicy(storage), committed, {}) == {}
    assert OffsetsPolicy(storage).stores == (storage,)


def test_java_ignores_dual_commit_where_zookeeper_is_the_main_store():
    assert OffsetsPolicy(ZOOKEEPER, is_dual=True, like_java=True).stores == (ZOOKEEPER,)
    assert OffsetsPolicy(KAFKA, is_dual=True, like_java=True).stores == (KAFKA, ZOOKEEPER)


def test_a_commit_to_kafka_carries_its_time():
    assert commit_time_ms(commit_metadata(1_600_000_000_000)) == 1_600_000_000_000
    assert [commit_time_ms(it) for it in ("", "12", "kctl-commit-ms=", "kctl-commit-ms=x")] == [
        None
    ] * 4
