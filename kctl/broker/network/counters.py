"""NetworkCounters: how much went over a broker's connections, for metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class NetworkCounters:
    """Totals since the start, but for `connections` and `queued_request_bytes`: those are now."""

    connections: int = 0
    connections_accepted: int = 0
    # Over max.connections.per.ip.
    connections_refused: int = 0
    # By connections.max.idle.ms.
    connections_idle_closed: int = 0
    # Times that max.connections stopped accepting.
    accepting_paused: int = 0
    requests: int = 0
    # Connections closed for what came over them.
    bad_requests: int = 0
    handler_errors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    queued_request_bytes: int = 0
    # Times that a connection had to wait for other requests' bytes to go.
    budget_waits: int = 0
