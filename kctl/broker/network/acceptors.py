"""Acceptors: the listening sockets of a broker, each of which accepts as the quotas allow.

A listener without room, or whose rate is too high, leaves new connections in the backlog.

Invariant: after every change of a count or a limit, a listener accepts exactly if ConnectionQuotas
has room for it and its wait has ended.

Kafka 2.7: kafka.network.{SocketServer, Acceptor}; KIP-402, KIP-612
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.broker.network.connection_quotas import ConnectionQuotas
from kctl.broker.network.counters import NetworkCounters
from kctl.broker.network.limits import NetworkLimits
from kctl.lazy_dataclass import dataclass
from kctl.model import Endpoint
from kctl.runtime.complaints import Complaints
from kctl.runtime.network import Listener, Receiver, Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

if TYPE_CHECKING:
    from kctl.tls.settings import TlsSettings

# Takes the listener's name and protocol as an Endpoint; returns None to reject a connection.
OnAccept = Callable[[Endpoint, Transport], Receiver | None]


@dataclass(slots=True)
class _Acceptor:
    """A listener of the broker."""

    # With the bound port.
    endpoint: Endpoint
    listener: Listener
    # Since max.connections is reached.
    is_full: bool = False
    # Until the rate allows another connection.
    timer: Timer | None = None


class Acceptors:
    """The listeners by name, and the number of their connections."""

    def __init__(
        self,
        runtime: Runtime,
        limits: NetworkLimits,
        counters: NetworkCounters,
        on_accept: OnAccept,
    ) -> None:
        self.quotas = ConnectionQuotas(limits)
        self._runtime = runtime
        self._counters = counters
        self._on_accept = on_accept
        self._acceptors: dict[str, _Acceptor] = {}
        self._complaints = Complaints()
        self._is_closed = False

    def open(self, endpoints: Sequence[Endpoint], tls: "Mapping[str, TlsSettings]") -> None:
        """Listen at all of `endpoints`, those named in `tls` with TLS, or raise KctlError and
        listen at none of them."""
        added: list[str] = []
        try:
            for endpoint in endpoints:
                self._open(endpoint, tls.get(endpoint.listener_name))
                added.append(endpoint.listener_name)
        except BaseException:
            for name in added:
                self.remove(name)
            raise

    def remove(self, listener_name: str) -> None:
        """Stop listening; connections stay open."""
        acceptor = self._acceptors.pop(listener_name)
        acceptor.listener.close()
        _cancel(acceptor)
        self.quotas.remove(listener_name)
        self._regulate()

    @property
    def names(self) -> list[str]:
        """Return the names of the listeners."""
        return list(self._acceptors)

    @property
    def endpoints(self) -> list[Endpoint]:
        """Return the listening endpoints with the bound ports."""
        return [acceptor.endpoint for acceptor in self._acceptors.values()]

    def listener(self, listener_name: str) -> Listener:
        """Return the listener of that name."""
        return self._acceptors[listener_name].listener

    def apply_limits(self, limits: NetworkLimits) -> None:
        """Replace the limits."""
        self.quotas.limits = limits
        self._regulate()

    def opened(self, listener_name: str) -> None:
        """Count a connection that was accepted."""
        self.quotas.opened(listener_name, self._runtime.clock.monotonic_ms())
        self._regulate()

    def closed(self, listener_name: str) -> None:
        """Count the end of a connection."""
        self.quotas.closed(listener_name)
        self._regulate()

    def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        for acceptor in self._acceptors.values():
            acceptor.listener.close()
            _cancel(acceptor)

    def _open(self, endpoint: Endpoint, tls: "TlsSettings | None") -> None:
        def accept(transport: Transport) -> Receiver | None:
            return self._on_accept(endpoint, transport)

        listener = self._runtime.network.listen(
            endpoint.host,
            endpoint.port,
            accept,
            send_buffer_bytes=self.quotas.limits.send_buffer_bytes,
            tls=tls,
            is_urgent=endpoint.listener_name == self.quotas.limits.control_plane,
        )
        name = endpoint.listener_name
        bound = Endpoint(endpoint.host, listener.port, name, endpoint.security_protocol)
        self._acceptors[name] = _Acceptor(bound, listener)
        self.quotas.add(name)
        self._regulate()

    def _regulate(self) -> None:
        """Pause and resume the listeners as the quotas say."""
        if self._is_closed:
            return
        for name, acceptor in self._acceptors.items():
            was_full, acceptor.is_full = acceptor.is_full, not self.quotas.has_room(name)
            if acceptor.is_full and not was_full:
                self._report(name)
            now_ms = self._runtime.clock.monotonic_ms()
            wait_ms = self.quotas.wait_ms(name, now_ms)
            if wait_ms and acceptor.timer is None:
                self._counters.accepting_throttled += 1
                acceptor.timer = self._runtime.scheduler.call_later(wait_ms, self._waited, acceptor)
            if acceptor.is_full or acceptor.timer is not None:
                acceptor.listener.pause_accepting()
            else:
                acceptor.listener.resume_accepting()

    def _waited(self, acceptor: _Acceptor) -> None:
        acceptor.timer = None
        self._regulate()

    def _report(self, listener_name: str) -> None:
        self._counters.accepting_paused += 1
        quotas = self.quotas

        def text() -> str:
            return (
                f"Listener {listener_name} has {quotas.connections_of(listener_name)} connections,"
                f" and the broker {quotas.total}, the maximum (max.connections): new ones wait"
            )

        now_ms = self._runtime.clock.monotonic_ms()
        line = self._complaints.line(listener_name, text, now_ms)
        if line is not None:
            self._runtime.trace.warning(line)


def _cancel(acceptor: _Acceptor) -> None:
    if acceptor.timer is not None:
        acceptor.timer.cancel()
