"""TopicWaits: requests that wait until the metadata cache shows a change of topics.

A wait ends when its condition holds after an update of the metadata cache, or at its timeout.

A broker that has just started knows of no broker and no topic until the controller's first update.
librdkafka forgets every broker that a Metadata response leaves out, so an empty one leaves it
without any broker to ask again, for minutes. Metadata requests therefore wait for the first update.
(Apache Kafka 2.7.2 answers at once.)

Kafka 2.7: kafka.server.{DelayedCreatePartitions, DelayedDeleteTopics}.
"""

from collections.abc import Callable, Iterable

from kctl.broker.metadata_cache import MetadataCache
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

# How long after a broker's start Metadata requests wait for a controller.
FIRST_UPDATE_MS_MAX = 5_000


class TopicWaits:
    """The waiting requests, by topic."""

    def __init__(self, runtime: Runtime, metadata_cache: MetadataCache) -> None:
        self._scheduler = runtime.scheduler
        # Inner dicts are ordered sets: checked in order of arrival.
        self._waits: dict[str, dict[TopicWait, None]] = {}
        # Done after the first update, or FIRST_UPDATE_MS_MAX after the first request.
        self.first_update: Future[None] = self._scheduler.future()
        if metadata_cache.snapshot.version:
            self.first_update.set_result(None)
        metadata_cache.on_first_update(self._end_first_wait)
        self._first_update_timer: Timer | None = None
        metadata_cache.on_topics_updated(self._updated)

    def wait_for_first_update(self) -> Future[None]:
        """Return a future that is done once the cache has an update of a controller. All callers
        share it, and FIRST_UPDATE_MS_MAX after the first of them it is done in any case."""
        if self._first_update_timer is None and not self.first_update.done:
            self._first_update_timer = self._scheduler.call_later(
                FIRST_UPDATE_MS_MAX, self._end_first_wait
            )
        return self.first_update

    def _end_first_wait(self) -> None:
        if self._first_update_timer is not None:
            self._first_update_timer.cancel()
        if not self.first_update.done:
            self.first_update.set_result(None)

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
