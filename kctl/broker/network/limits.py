"""NetworkLimits: the limits on a broker's clients, with Kafka's names and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kctl.configs.broker_config import BrokerConfig

UNLIMITED = 2_147_483_647


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Limits on connections and on the bytes of requests."""

    # socket.request.max.bytes
    request_bytes_max: int = 104_857_600
    # max.connections: beyond it new ones wait in the backlog.
    connections_max: int = UNLIMITED
    # max.connections.per.ip and its overrides (host -> number): beyond it connections are closed.
    connections_per_ip_max: int = UNLIMITED
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    # connections.max.idle.ms
    idle_ms_max: int = 600_000
    # queued.max.request.bytes, which Kafka leaves unlimited: bytes of requests in memory beyond
    # which no new request begins.
    queued_request_bytes_max: int = 64 * 1024 * 1024
    # socket.send.buffer.bytes of new connections; -1: the system's default.
    send_buffer_bytes: int = 102_400

    @classmethod
    def of(cls, config: BrokerConfig) -> "NetworkLimits":
        """Return the limits of a broker's configs."""
        overrides = (
            item.rpartition(":")
            for item in config.max_connections_per_ip_overrides.split(",")
            if item.strip()
        )
        limits = cls(
            request_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            connections_per_ip_overrides={
                host.strip(): int(number) for host, _, number in overrides
            },
            idle_ms_max=config.connections_max_idle_ms,
            send_buffer_bytes=config.socket_send_buffer_bytes,
        )
        if config.queued_max_request_bytes > 0:
            limits = replace(limits, queued_request_bytes_max=config.queued_max_request_bytes)
        return limits
