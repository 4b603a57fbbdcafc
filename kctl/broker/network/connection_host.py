"""ConnectionHost: the part of a SocketServer that its connections use."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.network.backlog import Backlog
from kctl.broker.network.counters import NetworkCounters
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.request_memory import RequestMemory
from kctl.broker.request import Request, RequestContext
from kctl.broker.request_times import RequestCounter, RequestWatcher
from kctl.protocol.framing import BufferPool, Scratch
from kctl.protocol.primitives import Buffer
from kctl.runtime.network import TlsSession
from kctl.runtime.scheduler import Scheduler

# (frame, function that sends the response, connection) -> whether a response was sent.
FastPath = Callable[[Buffer, Callable[[bytes], object], RequestContext], bool]


class ConnectionHost(Protocol):
    """The part of a SocketServer that its connections use."""

    counters: NetworkCounters
    memory: RequestMemory
    on_request: Callable[[Request], object]
    # Takes a large request and its size in bytes; returns False if it answered the request, before
    # its body is decoded.
    may_be_decoded: Callable[[Request, int], bool] | None
    # Those who ask where the time of requests goes; usually none.
    request_watchers: tuple[RequestWatcher, ...]
    # The only one of them, if it needs no times of requests that are answered at once.
    request_counter: RequestCounter | None
    pool: BufferPool
    scheduler: Scheduler
    scratch: Scratch
    backlog: Backlog
    # API key -> (first, last) version that is dispatched.
    served: Mapping[int, tuple[int, int]]
    # By API key as two bytes.
    fast_paths: dict[bytes, FastPath]
    # None: no client has a quota.
    client_quotas: ClientQuotas | None
    now_ms: Callable[[], int]
    now_ns: Callable[[], int]
    call_soon: Callable[..., None]
    is_turn_spent: Callable[[], bool]

    @property
    def limits(self) -> NetworkLimits:
        """Return the current limits for clients."""
        ...

    def connection_lost(self, connection: Any) -> None:
        """Forget a connection that is closed."""
        ...

    def handler_failed(self, request: Request, error: Exception) -> None:
        """Log a handler's exception."""
        ...

    def connection_failed(self, context: RequestContext, work: str, error: Exception) -> None:
        """Log an error outside any handler, after which the connection is closed."""
        ...

    def complain(self, client_host: str, message: str) -> None:
        """Log a client's invalid request, at a limited rate per host."""
        ...

    def principal_of(self, listener_name: str, certificate: bytes) -> str | None:
        """Return the principal of a client's certificate; None if no mapping rule applies. Raise
        CorruptDataError."""
        ...

    def tls_failed(self, context: RequestContext, reason: str) -> None:
        """Count and log a connection that ends because of TLS."""
        ...

    def secured(self, context: RequestContext, session: TlsSession) -> None:
        """Count a completed TLS handshake."""
        ...

    def authenticated(self, context: RequestContext, *, is_again: bool) -> None:
        """Count a successful authentication."""
        ...

    def authentication_failed(self, connection: Any, reason: str, *, is_again: bool) -> None:
        """Count and log a failed authentication."""
        ...
