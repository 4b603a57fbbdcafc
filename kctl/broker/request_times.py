"""RequestTimes: where the time of one request goes, from its arrival to the end of its response.

    received .. handled ... answered . posted ... sent
      queue   |  local and remote  |   |   send

The request waits for its handler while its body is decoded. The handler runs once, or slice by
slice, which is the local time; what else passes until the response is there is the remote time. A
response waits while it is encoded, which large ones are in turns. It is sent once the transport has
passed its last byte to the operating system.

Only requests that are watched have times: those of a broker with metrics, whose requests are
logged, or whose time counts towards a quota (`local_ns`). All of these share one measurement.
If requests are only counted, a small one that has its response when its handler returns has no
times: its RequestCounter gets its duration alone, which is local time (decision 0178).

Kafka 2.7: kafka.network.RequestChannel.Request.updateRequestMetrics
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kctl.protocol.schema import Message

# A `kctl.broker.request.Request`, which refers to its times.
_Request = Any


class RequestWatcher(Protocol):
    """Who asks where the time of requests goes. Neither method may fail."""

    def answered(self, request: _Request, response: Message | None) -> None:
        """Take note of a response before it is encoded; the handler may still run."""

    def sent(self, request: _Request, times: "RequestTimes") -> None:
        """Take note of a request whose response is sent, or whose client has gone meanwhile."""


class RequestCounter(RequestWatcher, Protocol):
    """A watcher that needs no times of requests that are answered at once."""

    def answered_at_once(self, request: _Request, response: Message | None, took_ns: int) -> None:
        """Take note of a small request whose response was sent while its handler ran."""


class RequestTimes:
    """The times of one request, in nanoseconds. The connection sets them."""

    __slots__ = (
        "_answered_ns",
        "_handled_ns",
        "_is_sent",
        "_now_ns",
        "_posted_ns",
        "_received_ns",
        "_running_since_ns",
        "_sent_ns",
        "_watchers",
        "local_ns",
    )

    def __init__(self, now_ns: Callable[[], int], watchers: Sequence[RequestWatcher]) -> None:
        """Begin now, with a whole request, which refers to this."""
        self._watchers = watchers
        self._now_ns = now_ns
        # Until they are known, all moments are that of the arrival.
        now = now_ns()
        self._received_ns = self._answered_ns = self._posted_ns = self._sent_ns = now
        # None: the handler was not called. A request may have its response without it.
        self._handled_ns: int | None = None
        # None: the handler is not running.
        self._running_since_ns: int | None = None
        self._is_sent = False
        # How long the handler has run until the response was there.
        self.local_ns = 0

    @classmethod
    def since(
        cls, began_ns: int, now_ns: Callable[[], int], watchers: Sequence[RequestWatcher]
    ) -> "RequestTimes":
        """Return the times of a small request, whose handler has run since its arrival."""
        times = cls(now_ns, watchers)
        times._received_ns = times._handled_ns = times._running_since_ns = began_ns
        return times

    # What the connection reports

    def handler_returned(self) -> None:
        """Note that the handler runs no longer."""
        self._stop(self._now_ns())

    def timed(self, on_request: Callable[[_Request], object]) -> Callable[[_Request], object]:
        """Return `on_request`, which measures how long it takes, also for each of many slices."""

        def handle(request: _Request) -> None:
            self._running_since_ns = self._now_ns()
            if self._handled_ns is None:
                self._handled_ns = self._running_since_ns
            try:
                on_request(request)
            finally:
                self._stop(self._now_ns())

        return handle

    def _stop(self, now_ns: int) -> None:
        if self._running_since_ns is not None:
            self.local_ns += now_ns - self._running_since_ns
            self._running_since_ns = None

    def answered(self, request: _Request, response: Message | None) -> None:
        """Note that the response is there."""
        self._answered_ns = self._now_ns()
        self._stop(self._answered_ns)
        for watcher in self._watchers:
            watcher.answered(request, response)

    def posted(self) -> None:
        """Note that the response is about to be passed to the transport."""
        self._posted_ns = self._now_ns()

    def sent(self, request: _Request) -> None:
        """Note that all of the response is sent. Calls after the first change nothing."""
        if self._is_sent:
            return
        self._is_sent = True
        self._sent_ns = self._now_ns()
        self._posted_ns = max(self._posted_ns, self._answered_ns)
        for watcher in self._watchers:
            watcher.sent(request, self)

    # What a watcher asks, once it is sent

    @property
    def total_ns(self) -> int:
        """Return the time from the arrival to the last byte of the response."""
        return self._sent_ns - self._received_ns

    def durations_ns(self) -> tuple[int, int, int, int, int, int]:
        """Return the total, and request queue, local, remote, response queue and send time: the
        properties, at once."""
        received, answered, posted = self._received_ns, self._answered_ns, self._posted_ns
        sent, local = self._sent_ns, self.local_ns
        handled = answered if self._handled_ns is None else self._handled_ns
        return (
            sent - received,
            handled - received,
            local,
            answered - handled - local,
            posted - answered,
            sent - posted,
        )

    @property
    def request_queue_ns(self) -> int:
        """Return the time until the handler was called."""
        handled_ns = self._answered_ns if self._handled_ns is None else self._handled_ns
        return handled_ns - self._received_ns

    @property
    def remote_ns(self) -> int:
        """Return the time that the request waited for others before it had its response."""
        return self._answered_ns - self._received_ns - self.request_queue_ns - self.local_ns

    @property
    def response_queue_ns(self) -> int:
        """Return the time from the response to its first byte."""
        return self._posted_ns - self._answered_ns

    @property
    def send_ns(self) -> int:
        """Return the time from the first to the last byte of the response."""
        return self._sent_ns - self._posted_ns
