"""NetworkCounters: counts traffic and connections of a broker, for metrics."""

from dataclasses import field

from kctl.lazy_dataclass import dataclass


@dataclass(slots=True)
class ListenerCounters:
    """Totals of one listener since the start."""

    authentications: int = 0
    failed_authentications: int = 0
    # KIP-368.
    reauthentications: int = 0
    failed_reauthentications: int = 0
    failed_tls_connections: int = 0
    # (TLS version, cipher suite) -> completed handshakes.
    handshakes: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class NetworkCounters:
    """Totals since the start, except for the current `connections` and `queued_request_bytes`."""

    connections: int = 0
    connections_accepted: int = 0
    # The same by the listener's name.
    accepted_by_listener: dict[str, int] = field(default_factory=dict)
    # Because of max.connections.per.ip.
    connections_refused: int = 0
    # Because of connections.max.idle.ms.
    connections_idle_closed: int = 0
    # Because a protected listener took a connection beyond max.connections, or it was lowered.
    connections_excess_closed: int = 0
    # Times that max.connections stopped a listener from accepting.
    accepting_paused: int = 0
    # Times that max.connection.creation.rate did.
    accepting_throttled: int = 0
    requests: int = 0
    # Connections closed because of invalid input.
    bad_requests: int = 0
    handler_errors: int = 0
    # By the listener's name: logins and TLS.
    listeners: dict[str, ListenerCounters] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0
    queued_request_bytes: int = 0
    # Times that a connection had to wait for memory of other requests.
    budget_waits: int = 0

    def listener(self, name: str) -> ListenerCounters:
        """Return the counters of a listener."""
        found = self.listeners.get(name)
        if found is None:
            found = self.listeners[name] = ListenerCounters()
        return found

    @property
    def failed_tls_connections(self) -> int:
        """Return the number of connections that ended because of TLS."""
        return sum(it.failed_tls_connections for it in self.listeners.values())

    @property
    def authentications(self) -> int:
        """Return the number of logins that succeeded."""
        return sum(it.authentications for it in self.listeners.values())

    @property
    def failed_authentications(self) -> int:
        """Return the number of logins that failed."""
        return sum(it.failed_authentications for it in self.listeners.values())

    @property
    def reauthentications(self) -> int:
        """Return the number of logins that were renewed."""
        return sum(it.reauthentications for it in self.listeners.values())

    @property
    def failed_reauthentications(self) -> int:
        """Return the number of renewals that failed."""
        return sum(it.failed_reauthentications for it in self.listeners.values())
