"""The rate at which throttled replicas are copied."""

from typing import ClassVar

from kctl.broker.quotas import LISTS_MAX, ReplicationQuota
from kctl.model import TopicPartition

KEY = "leader.replication.throttled.replicas"


def quota(rate=1000, **configs):
    found = ReplicationQuota(
        1, KEY, lambda topic: configs.get(topic, {}), window_ms=1000, window_count=11
    )
    found.set_rate(rate if rate is None else str(rate))
    return found


def test_only_named_replicas_are_throttled():
    named = quota(t={KEY: "0:1,3:2"}, all={KEY: "*"})
    assert named.is_throttled(TopicPartition("t", 0))
    assert not named.is_throttled(TopicPartition("t", 3)), "on another broker"
    assert not named.is_throttled(TopicPartition("t", 1))
    assert named.is_throttled(TopicPartition("all", 7))
    assert not named.is_throttled(TopicPartition("other", 0))


def test_without_a_rate_nothing_is_throttled():
    unbounded = quota(rate=None, t={KEY: "*"})
    unbounded.record(10**9, 0)
    assert not unbounded.is_throttled(TopicPartition("t", 0))
    assert not unbounded.is_exceeded(0)


def test_the_rate_is_that_of_the_last_windows():
    bounded = quota(rate=1000)
    bounded.record(1_000, 0)
    assert not bounded.is_exceeded(0), "what one window may hold"
    bounded.record(2_000, 500)
    assert bounded.is_exceeded(2_500)
    assert not bounded.is_exceeded(3_000), "over the time since the first bytes"
    bounded.record(20_000, 4_000)
    assert not bounded.is_exceeded(15_001), "the windows have passed"


def test_a_rate_of_zero_stops_throttled_replicas():
    stopped = quota(rate=0)
    stopped.record(1, 0)
    assert stopped.is_exceeded(0)


class Listed(str):
    """A list of replicas that counts how often it is examined."""

    __slots__ = ()
    examined: ClassVar[int] = 0

    def split(self, *arguments):
        Listed.examined += 1
        return super().split(*arguments)


def test_the_list_of_a_wide_topic_is_examined_once_until_it_changes(monkeypatch):
    monkeypatch.setattr(Listed, "examined", 0)
    topic = {KEY: Listed(",".join(f"{number}:1" for number in range(2_000)))}
    wide = quota(t=topic)
    assert all(wide.is_throttled(TopicPartition("t", number)) for number in range(2_000))
    assert Listed.examined == 1
    topic[KEY] = Listed("7:1,8:2")
    assert wide.is_throttled(TopicPartition("t", 7))
    assert not wide.is_throttled(TopicPartition("t", 8))
    assert Listed.examined == 2


def test_lists_of_few_topics_are_kept():
    many = quota(**{f"t{number}": {KEY: f"{number}:1"} for number in range(3 * LISTS_MAX)})
    for number in range(3 * LISTS_MAX):
        assert many.is_throttled(TopicPartition(f"t{number}", number))
        assert len(many._here) <= LISTS_MAX
