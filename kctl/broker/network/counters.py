"""NetworkCounters: counts traffic and connections of a broker, for metrics."""

from dataclasses import dataclass, field


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
    failed_tls_connections: int = 0
    authentications: int = 0
    failed_authentications: int = 0
    # KIP-368.
    reauthentications: int = 0
    failed_reauthentications: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    queued_request_bytes: int = 0
    # Times that a connection had to wait for memory of other requests.
    budget_waits: int = 0
