"""RequestLog: a line for each response, and for requests that keep the broker busy for long.

The first is logger kafka.request.logger at DEBUG, the second the same logger at WARN, with
`--slow-request-ms`. Without either, requests do not pass here, and the fast paths serve theirs: the
server's handler is replaced when the level changes. Bodies are never logged, as they have secrets.

Kafka 2.7: kafka.network.RequestChannel.Request.updateRequestMetrics
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl.broker.loggers import REQUESTS
from kctl.broker.request import Request
from kctl.broker.security.audit_log import printable
from kctl.protocol.schema import Message
from kctl.runtime.log_levels import Loggers, LogLevel

if TYPE_CHECKING:
    from kctl.broker.network.server import SocketServer

# Between two lines about slow requests of the same API.
SLOW_INTERVAL_MS = 1_000


class RequestLog:
    """Logs the requests of one server."""

    def __init__(
        self, loggers: Loggers, now_ms: Callable[[], int], slow_ms: int | None = None
    ) -> None:
        """Log requests that take the loop for `slow_ms` at least, waits not counted."""
        self._loggers = loggers
        self._now_ms = now_ms
        self._slow_ms = slow_ms
        # API -> when a slow request of it was logged, and how many were not since.
        self._slow: dict[int, tuple[int, int]] = {}

    def attach(self, server: "SocketServer") -> None:
        """Stand before the handler of `server` while there is something to log."""
        handle, paths = server.on_request, server.fast_paths
        # Connections keep this mapping.
        server.fast_paths = live_paths = dict(paths)

        def refresh() -> None:
            if self._is_wanted():
                server.on_request = partial(self._handle, handle)
                live_paths.clear()
            else:
                server.on_request = handle
                live_paths.update(paths)

        self._loggers.levels.on_change(refresh)
        refresh()

    def _is_wanted(self) -> bool:
        return self._slow_ms is not None or self._loggers.is_enabled(REQUESTS, LogLevel.DEBUG)

    def _handle(self, handle: Callable[[Request], object], request: Request) -> None:
        # Of a request in slices, the whole is logged.
        whole = request if request.whole is None else request.whole
        entry = _entry_of(whole.send)
        if entry is None:
            entry = whole.send = _Entry(self, whole, whole.send, self._now_ms())
        began_ms = self._now_ms()
        try:
            handle(request)
        finally:
            entry.add_local(self._now_ms() - began_ms)

    def write(self, entry: "_Entry") -> None:
        """Log a request that has its response, when its handler has returned."""
        now_ms = self._now_ms()
        if self._loggers.is_enabled(REQUESTS, LogLevel.DEBUG):
            facts = _facts(entry, now_ms)
            text = ",".join(f"{key}:{value}" for key, value in facts.items() if key not in _HEADER)
            self._loggers.log(
                REQUESTS,
                LogLevel.DEBUG,
                f"Completed request:RequestHeader({_header(facts)}) from connection "
                f"{entry.request.context.connection_id};{text}",
                fields={"connection": entry.request.context.connection_id, **facts},
            )
        if self._slow_ms is not None and entry.local_ms >= self._slow_ms:
            self._write_slow(entry, now_ms)

    def _write_slow(self, entry: "_Entry", now_ms: int) -> None:
        api = int(entry.request.api_key)
        logged_ms, suppressed = self._slow.get(api, (now_ms - SLOW_INTERVAL_MS, 0))
        if now_ms - logged_ms < SLOW_INTERVAL_MS:
            self._slow[api] = (logged_ms, suppressed + 1)
            return
        self._slow[api] = (now_ms, 0)
        facts = _facts(entry, now_ms)
        more = f" ({suppressed} more like this)" if suppressed else ""
        self._loggers.log(
            REQUESTS,
            LogLevel.WARN,
            f"Slow request:RequestHeader({_header(facts)}) of {facts['principal']} at "
            f"{printable(entry.request.context.client_host)} took the broker {entry.local_ms} ms, "
            f"{facts['totalTime']} ms with waits{more}",
            fields=facts,
        )


class _Entry:
    """A request that is logged once it has its response; called as its `send`."""

    def __init__(
        self,
        log: RequestLog,
        request: Request,
        send: Callable[[Message | None], None],
        began_ms: int,
    ) -> None:
        self.request = request
        self.began_ms = began_ms
        # The time that the loop spent in its handler.
        self.local_ms = 0
        self._log = log
        self._send = send
        self._is_answered = False
        self._is_handled = False

    def __call__(self, response: Message | None) -> None:
        self._send(response)
        self._is_answered = True
        if self._is_handled:
            self._log.write(self)

    def add_local(self, spent_ms: int) -> None:
        """Add the time of a call of the handler, which may have answered the request."""
        self.local_ms += spent_ms
        if self._is_answered and not self._is_handled:
            self._log.write(self)
        self._is_handled = True


def _entry_of(send: Any) -> _Entry | None:
    """Return the entry in a function that sends a response, which the meter may have wrapped."""
    while isinstance(send, partial):
        send = send.args[0]
    return send if isinstance(send, _Entry) else None


_HEADER = ("apiKey", "apiVersion", "clientId", "correlationId")


def _header(facts: dict[str, object]) -> str:
    return ", ".join(f"{key}={facts[key]}" for key in _HEADER)


def _facts(entry: _Entry, now_ms: int) -> dict[str, object]:
    """Return what a line says, under the names of Apache Kafka."""
    request, context = entry.request, entry.request.context
    total_ms = now_ms - request.received_ms
    queue_ms = entry.began_ms - request.received_ms
    return {
        "apiKey": request.api_key.name,
        "apiVersion": request.api_version,
        "clientId": printable(request.client_id or ""),
        "correlationId": request.correlation_id,
        "totalTime": total_ms,
        "requestQueueTime": queue_ms,
        "localTime": entry.local_ms,
        "remoteTime": max(0, total_ms - queue_ms - entry.local_ms),
        "throttleTime": 0,
        "responseQueueTime": 0,
        "sendTime": 0,
        "securityProtocol": context.security_protocol.name,
        "principal": printable(context.principal),
        "listener": context.listener_name,
    }
