"""RealNetwork: TCP sockets that listen and that connect.

Accepting is bounded per turn, pauses when the process has no descriptors left, and never blocks in
the kernel. Names are looked up on a separate thread, numeric addresses at once; the addresses of a
name are tried in turn within one deadline.
"""

import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kctl.errors import KctlError, TimedOutError, UnreachableError, UsageError
from kctl.runtime.future import Future
from kctl.runtime.network import SYSTEM_SEND_BUFFER, Receiver, Transport
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.real.poller import READABLE, WRITABLE
from kctl.runtime.real.transport import RealTransport
from kctl.runtime.trace import NullTrace, Trace

if TYPE_CHECKING:
    from kctl.runtime.real.tls_stack import TlsAcceptor, TlsConnector, TlsStack
    from kctl.tls.settings import TlsSettings

BACKLOG: Final = 1024
ACCEPTS_PER_TURN: Final = 64
# How long to stop accepting when the process is out of descriptors.
NO_DESCRIPTORS_PAUSE_MS: Final = 200
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Address = tuple[str, int]
OnAccept = Callable[[Transport], Receiver | None]
OnConnect = Callable[[Transport], Receiver]


class RealListener:
    """A listening socket."""

    def __init__(
        self,
        scheduler: RealScheduler,
        sock: socket.socket,
        on_connection: OnAccept,
        trace: Trace,
        tls: "TlsAcceptor | None" = None,
        *,
        is_urgent: bool = False,
    ) -> None:
        self.host, self.port = sock.getsockname()[:2]
        self._is_urgent = is_urgent
        self._tls = tls
        self._scheduler = scheduler
        self._socket = sock
        self._on_connection = on_connection
        self._trace = trace
        self._is_paused = False
        self._is_closed = False
        scheduler.watch(sock.fileno(), READABLE, self._accept_some)

    def pause_accepting(self) -> None:
        """Leave new connections in the backlog."""
        if not self._is_paused and not self._is_closed:
            self._is_paused = True
            self._scheduler.rewatch(self._socket.fileno(), 0)

    def resume_accepting(self) -> None:
        """Accept connections again."""
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            self._scheduler.rewatch(self._socket.fileno(), READABLE)

    def change_tls(self, tls: "TlsSettings") -> None:
        """Use `tls` for new connections; raise UsageError, without a change, if it is unusable."""
        if self._tls is not None:
            self._tls.change(tls)

    def replace_tls(self, tls: "TlsSettings", *, validate_only: bool = False) -> Future[bool]:
        """Use `tls` for new connections if it has changed and is compatible; see `Listener`."""
        if self._tls is None:
            done: Future[bool] = self._scheduler.future()
            done.set_result(False)
            return done
        return self._tls.replace(tls, validate_only=validate_only)

    def close(self) -> None:
        """Stop listening; connections in the backlog are reset."""
        if not self._is_closed:
            self._is_closed = True
            self._scheduler.unwatch(self._socket.fileno())
            self._socket.close()

    def _accept_some(self, _mask: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._is_paused or self._is_closed:
                return
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._accepted(sock, address[:2])

    def _accepted(self, sock: socket.socket, peer: Address) -> None:
        _tune(sock)
        if self._is_urgent:
            self._scheduler.prioritize(sock.fileno())
        transport = RealTransport(self._scheduler, sock, peer)
        if self._tls is not None:
            self._tls.accepted(transport, self._on_connection)
            return
        receiver = self._on_connection(transport)
        if receiver is None:
            transport.abort()
        else:
            transport.attach(receiver)

    def _accept_failed(self, error: OSError) -> None:
        # Other errors (ECONNABORTED, ...) concern one peer only.
        if error.errno in _OUT_OF_RESOURCES:
            self._trace.warning(f"Cannot accept connections on port {self.port}: {error.strerror}")
            self.pause_accepting()
            self._scheduler.call_later(NO_DESCRIPTORS_PAUSE_MS, self.resume_accepting)


class Connector:
    """An attempt to connect: tries addresses in turn, until one accepts or time is up."""

    def __init__(
        self,
        scheduler: RealScheduler,
        name: str,
        on_connection: OnConnect,
        timeout_ms: int,
        tls: "TlsConnector | None" = None,
    ) -> None:
        self._tls = tls
        # A connection whose TLS handshake is under way.
        self._transport: Transport | None = None
        self.future: Future[Transport] = scheduler.future()
        self._scheduler = scheduler
        self._name = name
        self._on_connection = on_connection
        self._addresses: list[tuple[int, Address]] = []
        self._socket: socket.socket | None = None
        self._last_error = "no address"
        self._timer = scheduler.call_later(timeout_ms, self._timed_out, timeout_ms)

    def start(self, addresses: list[tuple[int, Address]]) -> None:
        """Try `addresses` in order."""
        self._addresses = addresses[::-1]
        self._try_next()

    def fail(self, reason: str) -> None:
        """Fail with UnreachableError."""
        self._finish()
        if not self.future.done:
            self.future.set_error(UnreachableError(f"cannot connect to {self._name}: {reason}"))

    def _try_next(self) -> None:
        if self.future.done:
            return
        if not self._addresses:
            self.fail(self._last_error)
            return
        family, address = self._addresses.pop()
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.settimeout(0)
            failure = self._socket.connect_ex(address)
        except OSError as error:
            failure = error.errno or errno.EINVAL
        if failure == 0:
            self._connected()
        elif failure == errno.EINPROGRESS and self._socket is not None:
            self._scheduler.watch(self._socket.fileno(), WRITABLE, self._on_ready)
        else:
            self._failed(failure)

    def _on_ready(self, _mask: int) -> None:
        sock = self._socket
        if sock is None:
            return
        self._scheduler.unwatch(sock.fileno())
        failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            self._failed(failure)
        else:
            self._connected()

    def _failed(self, failure: int) -> None:
        self._last_error = os.strerror(failure)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        # A rejection may be immediate: not from within `start`, so that the caller has the Future.
        self._scheduler.call_soon(self._try_next)

    def _connected(self) -> None:
        sock, self._socket = self._socket, None
        if sock is None:
            return
        _tune(sock)
        try:
            peer = sock.getpeername()[:2]
        except OSError as error:
            sock.close()
            self._last_error = str(error.strerror)
            self._scheduler.call_soon(self._try_next)
            return
        transport = RealTransport(self._scheduler, sock, peer)
        if self._tls is not None:
            self._transport = self._tls.connected(transport, self._on_connection, self._secured)
            return
        self._timer.cancel()
        transport.attach(self._on_connection(transport))
        self.future.set_result(transport)

    def _secured(self, error: Exception | None) -> None:
        """End the attempt: the TLS handshake has ended."""
        self._timer.cancel()
        if self.future.done:
            return
        if error is not None:
            self.future.set_error(error)
        elif self._transport is not None:
            self.future.set_result(self._transport)

    def _timed_out(self, timeout_ms: int) -> None:
        self._finish()
        if not self.future.done:
            self.future.set_error(
                TimedOutError(f"cannot connect to {self._name}: no response within {timeout_ms} ms")
            )
        if self._transport is not None:
            self._transport.abort()

    def _finish(self) -> None:
        self._timer.cancel()
        if self._socket is not None:
            self._scheduler.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None


class RealNetwork:
    """The TCP/IP stack of the machine."""

    def __init__(self, scheduler: RealScheduler, trace: Trace | None = None) -> None:
        self._scheduler = scheduler
        self._trace = trace or NullTrace()
        # Loaded with the first settings of TLS: `ssl` takes 20 ms to import.
        self._tls: TlsStack | None = None

    def load_tls(self, tls: "TlsSettings") -> Future[None]:
        """Read the files of `tls` on another thread, for the next `listen`; see `Network`."""
        return self._tls_stack().load(tls)

    def local_host_name(self) -> str:
        """Return the canonical name from the resolver, as Java does."""
        return socket.getfqdn()

    def listen(
        self,
        host: str,
        port: int,
        on_connection: OnAccept,
        *,
        send_buffer_bytes: int = SYSTEM_SEND_BUFFER,
        tls: "TlsSettings | None" = None,
        is_urgent: bool = False,
    ) -> RealListener:
        """Accept connections at `host` ("" or "0.0.0.0": all addresses) and `port` (0: any)."""
        name = name_of(host, port)
        acceptor = None if tls is None else self._tls_stack().acceptor(tls)
        try:
            # Only a name needs the resolver, which loads much at its first use.
            at = host or "0.0.0.0"
            family, address = _numeric_address(at, port) or _addresses_of(at, port)[0]
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as failure:
            raise KctlError(f"cannot listen on {name}: {failure.strerror}") from failure
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            if send_buffer_bytes != SYSTEM_SEND_BUFFER:
                # Accepted connections inherit it.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            sock.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            sock.close()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            hint = "another process uses the port; choose another one" if is_taken else None
            raise KctlError(f"cannot listen on {name}: {reason}", hint=hint) from error
        return RealListener(
            self._scheduler, sock, on_connection, self._trace, acceptor, is_urgent=is_urgent
        )

    def connect(
        self,
        host: str,
        port: int,
        on_connection: OnConnect,
        timeout_ms: int,
        *,
        tls: "TlsSettings | None" = None,
    ) -> Future[Transport]:
        """Connect, and with `tls` complete the handshake; see `Network` for the errors."""
        name = name_of(host, port)
        try:
            secure = None if tls is None else self._tls_stack().connector(tls, host, name)
        except UsageError as error:
            failed: Future[Transport] = self._scheduler.future()
            failed.set_error(error)
            return failed
        connector = Connector(self._scheduler, name, on_connection, timeout_ms, secure)
        numeric = _numeric_address(host, port)
        if numeric is not None:
            connector.start([numeric])
        else:
            lookup = self._scheduler.run_aside(lambda: _addresses_of(host, port), "name look-up")
            lookup.add_done_callback(lambda done: _looked_up(connector, done))
        return connector.future

    def substitute_tls(self, given: "TlsSettings", used: "TlsSettings") -> Future[None]:
        """Connect with `used` wherever `given` is asked for; see `Network`."""
        return self._tls_stack().substitute(given, used)

    def reload_tls(self) -> None:
        """Read the files of all settings that connections were made with again; raise UsageError,
        without a change, if one is unusable."""
        if self._tls is not None:
            self._tls.reload_clients()

    def _tls_stack(self) -> "TlsStack":
        if self._tls is None:
            from kctl.runtime.real.tls_stack import TlsStack

            self._tls = TlsStack(self._scheduler, self._trace)
        return self._tls


def name_of(host: str, port: int) -> str:
    """Return `host:port`, with brackets for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _looked_up(connector: Connector, lookup: Future[list[tuple[int, Address]]]) -> None:
    error = lookup.error()
    if error is None:
        connector.start(lookup.result())
    else:
        connector.fail(getattr(error, "strerror", None) or str(error))


def _addresses_of(host: str, port: int) -> list[tuple[int, Address]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


def _numeric_address(host: str, port: int) -> tuple[int, Address] | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, UnicodeError):
            continue
        return family, (host, port)
    return None


def _tune(sock: socket.socket) -> None:
    sock.settimeout(0)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def local_ipv4_address() -> str:
    """Return this machine's address from the resolver; that of the loopback without one."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
