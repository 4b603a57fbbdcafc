"""ReplicationQuota: how fast throttled replicas may be copied, so that a move leaves room for
clients. Pure, time passed in.

Bytes are counted in samples of `window_ms`, of which the last `window_count` make the rate. Who is
throttled is named per topic (`*` or `partition:broker`, ...); nobody else's bytes count. A replica
in sync is never held back: the quota bounds those that catch up.

Invariant: without a rate set nothing is throttled.

Kafka 2.7: kafka.server.ReplicationQuotaManager, kafka.server.ThrottledReplicaListValidator; KIP-73.
"""

from collections import deque
from collections.abc import Callable, Mapping

from kctl.model import TopicPartition

ALL_REPLICAS = "*"
UNLIMITED = None

# A topic's overrides, as last read.
TopicConfigOf = Callable[[str], Mapping[str, str]]


class ReplicationQuota:
    """One direction: what this broker sends as leader, or fetches as follower."""

    def __init__(
        self,
        broker_id: int,
        replicas_key: str,
        topic_config: TopicConfigOf,
        *,
        window_ms: int,
        window_count: int,
    ) -> None:
        """`replicas_key` is the topic setting that names who is throttled."""
        self._broker_id = broker_id
        self._replicas_key = replicas_key
        self._topic_config = topic_config
        self._window_ms = window_ms
        self._window_count = window_count
        # Bytes per second; None: no bound.
        self.rate: int | None = UNLIMITED
        # (when the sample began, bytes in it), oldest first.
        self._samples: deque[list[int]] = deque()

    def is_throttled(self, tp: TopicPartition) -> bool:
        """Whether the partition's replica on this broker is named."""
        if self.rate is UNLIMITED:
            return False
        named = self._topic_config(tp.topic).get(self._replicas_key, "")
        return named == ALL_REPLICAS or f"{tp.partition}:{self._broker_id}" in named.split(",")

    def record(self, count: int, now_ms: int) -> None:
        """`count` bytes of throttled replicas went through."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0])
        samples[-1][1] += count

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether the rate is over the bound now."""
        if self.rate is UNLIMITED:
            return False
        samples = self._samples
        oldest_ms = now_ms - self._window_ms * self._window_count
        while samples and samples[0][0] < oldest_ms:
            samples.popleft()
        if not samples:
            return False
        # A rate over less than all windows but one would make of any burst an excess.
        elapsed_ms = max(now_ms - samples[0][0], self._window_ms * (self._window_count - 1))
        return sum(count for _, count in samples) * 1000 > self.rate * elapsed_ms

    def set_rate(self, text: str | None) -> None:
        """Take over the broker's setting, bytes per second; None: it is not set."""
        self.rate = UNLIMITED if text is None else int(text)
