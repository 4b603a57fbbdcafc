"""TopicWaits: requests that wait until the metadata cache shows a change of topics.

A wait ends when its condition holds after an update of the metadata cache, or at its timeout.

Kafka 2.7: kafka.server.{DelayedCreatePartitions, DelayedDeleteTopics}.
"""

from collections.abc import Callable, Iterable

from kctl.broker.metadata_cache import MetadataCache
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer


class TopicWaits:
    """The waiting requests, by topic."""

    def __init__(self, runtime: Runtime, metadata_cache: MetadataCache) -> None:
        self._scheduler = runtime.scheduler
        # Inner dicts are ordered sets: checked in order of arrival.
        self._waits: dict[str, dict[TopicWait, None]] = {}
        metadata_cache.on_topics_updated(self._updated)

    def wait(
        self, topics: Iterable[str], is_done: Callable[[], bool], timeout_ms: int
    ) -> Future[None]:
        """Wait until `is_done()`, which is checked now and after changes of `topics`, or
        `timeout_ms`."""
        wait = TopicWait(tuple(topics), is_done, self._scheduler.future())
        if timeout_ms <= 0 or is_done():
            wait.future.set_result(None)
            return wait.future
        for topic in wait.topics:
            self._waits.setdefault(topic, {})[wait] = None
        wait.timer = self._scheduler.call_later(timeout_ms, self._finish, wait)
        return wait.future

    def _updated(self, topics: list[str]) -> None:
        if not self._waits:
            return
        asked = dict.fromkeys(wait for topic in topics for wait in self._waits.get(topic, ()))
        for wait in asked:
            if wait.is_done():
                self._finish(wait)

    def _finish(self, wait: "TopicWait") -> None:
        for topic in wait.topics:
            waits = self._waits[topic]
            waits.pop(wait, None)
            if not waits:
                del self._waits[topic]
        if wait.timer is not None:
            wait.timer.cancel()
        wait.future.set_result(None)


class TopicWait:
    """One waiting request."""

    __slots__ = ("future", "is_done", "timer", "topics")

    def __init__(
        self, topics: tuple[str, ...], is_done: Callable[[], bool], future: Future[None]
    ) -> None:
        self.topics = tuple(dict.fromkeys(topics))
        self.is_done = is_done
        self.future = future
        self.timer: Timer | None = None
