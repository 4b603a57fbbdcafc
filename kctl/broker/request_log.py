"""RequestLog: a line for each response, and for requests that keep the broker busy for long.

The first is logger kafka.request.logger at DEBUG, the second the same logger at WARN, with
`--slow-request-ms`. Without either, requests are not measured for it, and the fast paths serve
theirs: the server gets another watcher when the level changes. Bodies are never logged, as they
have secrets.

Kafka 2.7: kafka.network.RequestChannel.Request.updateRequestMetrics
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kctl.broker.loggers import REQUESTS
from kctl.broker.request import Request
from kctl.broker.request_times import RequestTimes
from kctl.broker.security.audit_log import printable
from kctl.protocol.schema import Message
from kctl.runtime.log_levels import Loggers, LogLevel

if TYPE_CHECKING:
    from kctl.broker.network.server import SocketServer

# Between two lines about slow requests of the same API.
SLOW_INTERVAL_MS = 1_000

_NS_PER_US = 1_000
_US_PER_MS = 1_000
_HEADER = ("apiKey", "apiVersion", "clientId", "correlationId")


class RequestLog:
    """Logs the requests of one server, as one of its RequestWatchers."""

    def __init__(
        self, loggers: Loggers, now_ms: Callable[[], int], slow_ms: int | None = None
    ) -> None:
        """Log requests whose handler runs for `slow_ms` at least, waits not counted."""
        self._loggers = loggers
        self._now_ms = now_ms
        self._slow_ms = slow_ms
        # API -> when a slow request of it was logged, and how many were not since.
        self._slow: dict[int, tuple[int, int]] = {}

    def attach(self, server: "SocketServer") -> None:
        """Watch the requests of `server` while there is something to log."""
        paths = server.fast_paths
        # Connections keep this mapping.
        server.fast_paths = live_paths = dict(paths)

        def refresh() -> None:
            if self._is_wanted():
                server.watch_requests(self)
                live_paths.clear()
            else:
                server.unwatch_requests(self)
                live_paths.update(paths)

        self._loggers.levels.on_change(refresh)
        refresh()

    def _is_wanted(self) -> bool:
        return self._slow_ms is not None or self._loggers.is_enabled(REQUESTS, LogLevel.DEBUG)

    def answered(self, request: Request, response: Message | None) -> None:
        """Do nothing: a line is written when the response is sent."""

    def sent(self, request: Request, times: RequestTimes) -> None:
        """Log a request whose response is sent."""
        if self._loggers.is_enabled(REQUESTS, LogLevel.DEBUG):
            facts = request_facts(request, times)
            text = ",".join(f"{key}:{value}" for key, value in facts.items() if key not in _HEADER)
            self._loggers.log(
                REQUESTS,
                LogLevel.DEBUG,
                f"Completed request:RequestHeader({_header(facts)}) from connection "
                f"{request.context.connection_id};{text}",
                fields={"connection": request.context.connection_id, **facts},
            )
        if self._slow_ms is not None and _ms(times.local_ns) >= self._slow_ms:
            self._write_slow(request, times)

    def _write_slow(self, request: Request, times: RequestTimes) -> None:
        api, now_ms = int(request.api_key), self._now_ms()
        logged_ms, suppressed = self._slow.get(api, (now_ms - SLOW_INTERVAL_MS, 0))
        if now_ms - logged_ms < SLOW_INTERVAL_MS:
            self._slow[api] = (logged_ms, suppressed + 1)
            return
        self._slow[api] = (now_ms, 0)
        facts = request_facts(request, times)
        more = f" ({suppressed} more like this)" if suppressed else ""
        self._loggers.log(
            REQUESTS,
            LogLevel.WARN,
            f"Slow request:RequestHeader({_header(facts)}) of {facts['principal']} at "
            f"{printable(request.context.client_host)} took the broker {facts['localTime']} ms, "
            f"{facts['totalTime']} ms with waits{more}",
            fields=facts,
        )


def _header(facts: dict[str, object]) -> str:
    return ", ".join(f"{key}={facts[key]}" for key in _HEADER)


def _ms(duration_ns: int) -> float:
    """Return milliseconds with microseconds, as Apache Kafka rounds them."""
    return max(duration_ns, 0) // _NS_PER_US / _US_PER_MS


def request_facts(request: Request, times: RequestTimes) -> dict[str, object]:
    """Return what a line says, under the names of Apache Kafka and in its order; times are in
    milliseconds."""
    context = request.context
    software = (
        f"ClientInformation(softwareName={printable(context.software_name)}, "
        f"softwareVersion={printable(context.software_version)})"
    )
    return {
        "apiKey": request.api_key.name,
        "apiVersion": request.api_version,
        "clientId": printable(request.client_id or ""),
        "correlationId": request.correlation_id,
        "totalTime": _ms(times.total_ns),
        "requestQueueTime": _ms(times.request_queue_ns),
        "localTime": _ms(times.local_ns),
        "remoteTime": _ms(times.remote_ns),
        "throttleTime": request.throttle_ms,
        "responseQueueTime": _ms(times.response_queue_ns),
        "sendTime": _ms(times.send_ns),
        "securityProtocol": context.security_protocol.name,
        "principal": printable(context.principal),
        "listener": context.listener_name,
        "clientInformation": software,
    }
