"""ReplicationQuota: limits the copying of throttled replicas, so that moves leave room for clients.

Bytes are counted by a SampledRate whose span is at least one window. The throttled replicas are
named per topic (`*` or `partition:broker`, ...); only their bytes count. An in-sync replica is
never delayed: the quota limits replicas that catch up. Pure, time passed in.

Invariant: without a rate nothing is throttled.

Kafka 2.7: kafka.server.ReplicationQuotaManager (SimpleRate),
kafka.server.ThrottledReplicaListValidator; KIP-73.
"""

from collections.abc import Callable, Mapping

from kctl.broker.sampled_rate import SampledRate, Windows
from kctl.model import TopicPartition

ALL_REPLICAS = "*"
UNLIMITED = None
# Topics whose lists of throttled replicas are kept.
LISTS_MAX = 1_000

# Returns a topic's overrides as last read.
TopicConfigOf = Callable[[str], Mapping[str, str]]


class ReplicationQuota:
    """The quota of one direction: data that this broker sends as leader, or fetches as follower."""

    def __init__(
        self,
        broker_id: int,
        replicas_key: str,
        topic_config: TopicConfigOf,
        *,
        window_ms: int,
        window_count: int,
    ) -> None:
        """Create a quota; `replicas_key` is the topic config that names throttled replicas."""
        self._broker_id = broker_id
        self._replicas_key = replicas_key
        self._topic_config = topic_config
        self._windows = Windows(window_ms, window_count)
        # Bytes per second; None: no limit.
        self.rate: int | None = UNLIMITED
        self._sampled = SampledRate(is_simple=True)
        # Per topic: the override as last read, and what it says of this broker.
        self._here: dict[str, tuple[str, frozenset[str]]] = {}

    def is_throttled(self, tp: TopicPartition) -> bool:
        """Return whether the partition's replica on this broker is throttled."""
        if self.rate is UNLIMITED:
            return False
        named = self._topic_config(tp.topic).get(self._replicas_key, "")
        if not named or named == ALL_REPLICAS:
            return bool(named)
        return f"{tp.partition}:{self._broker_id}" in self._replicas_here(tp.topic, named)

    def _replicas_here(self, topic: str, named: str) -> frozenset[str]:
        """Return the replicas on this broker that `named` lists. A list that moves a whole topic is
        long, and is examined for each of its partitions in each fetch."""
        known = self._here.get(topic)
        if known is not None and known[0] == named:
            return known[1]
        suffix = f":{self._broker_id}"
        here = frozenset(name for name in named.split(",") if name.endswith(suffix))
        if known is None and len(self._here) >= LISTS_MAX:
            self._here.clear()
        self._here[topic] = (named, here)
        return here

    def record(self, count: int, now_ms: int) -> None:
        """Count `count` bytes of throttled replicas."""
        self._sampled.record(count, now_ms, self._windows)

    def is_exceeded(self, now_ms: int) -> bool:
        """Return whether the current rate exceeds the limit."""
        if self.rate is UNLIMITED:
            return False
        return self._sampled.per_second(now_ms, self._windows) > self.rate

    def set_rate(self, text: str | None) -> None:
        """Apply the broker's config, in bytes per second; None: it is not set."""
        self.rate = UNLIMITED if text is None else int(text)
