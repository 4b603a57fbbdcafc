"""RequestTime: the time that the loop spends for one request, for quotas of time (KIP-124).

Kafka 2.7: kafka.network.RequestChannel.Request (`requestThreadTimeNanos`).
"""

from collections.abc import Callable

from kctl.broker.request import Request


class RequestTime:
    """Measures a handler, once or slice by slice, until the response is taken from it."""

    def __init__(self, now_ns: Callable[[], int], on_request: Callable[[Request], object]) -> None:
        self._now_ns = now_ns
        self._on_request = on_request
        self._busy_ns = 0
        # None: the handler is not running.
        self._began_ns: int | None = None

    def handle(self, request: Request) -> None:
        """Handle a request, or a slice of one, and measure the time that this takes."""
        self._began_ns = self._now_ns()
        try:
            self._on_request(request)
        finally:
            self._stop()

    def take(self) -> int:
        """Return the time so far, in nanoseconds; called when the response is there, which may be
        while the handler still runs."""
        self._stop()
        return self._busy_ns

    def _stop(self) -> None:
        if self._began_ns is not None:
            self._busy_ns += self._now_ns() - self._began_ns
            self._began_ns = None
