"""NetworkLimits: the limits on a broker's clients, with Kafka's names and defaults."""

from collections.abc import Mapping
from dataclasses import field, replace

from kctl.configs.broker_config import BrokerConfig
from kctl.configs.listener_config import ListenerConfig
from kctl.lazy_dataclass import dataclass

UNLIMITED = 2_147_483_647
# Maximum size of a request before its connection is authenticated, or is authenticated again
# (Kafka 2.7: SaslServerAuthenticator.MAX_RECEIVE_SIZE).
UNAUTHENTICATED_BYTES_MAX = 524_288


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits on the connections of one listener, which apply besides the broker's."""

    # listener.name.X.max.connections
    connections_max: int = UNLIMITED
    # listener.name.X.max.connection.creation.rate, per second.
    rate_max: int = UNLIMITED


NO_LISTENER_LIMITS = ListenerLimits()


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
    # max.connection.creation.rate, per second.
    rate_max: int = UNLIMITED
    # quota.window.size.seconds and quota.window.num: the samples of these rates.
    rate_window_ms: int = 1_000
    rate_window_count: int = 11
    # By listener name.
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    # Listeners of other brokers and of controllers: exempt from the broker's maximum and rate.
    protected: frozenset[str] = frozenset()
    # control.plane.listener.name: its requests are served first in a turn.
    control_plane: str | None = None

    def of_listener(self, listener_name: str) -> ListenerLimits:
        """Return the limits of one listener."""
        return self.listeners.get(listener_name, NO_LISTENER_LIMITS)

    @classmethod
    def of(cls, config: BrokerConfig) -> "NetworkLimits":
        """Return the limits of a broker's configs; raise UsageError."""
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
            rate_max=config.max_connection_creation_rate,
            rate_window_ms=config.quota_window_size_seconds * 1000,
            rate_window_count=config.quota_window_num,
            listeners={
                it.listener_name: _listener_limits(config, it.listener_name)
                for it in config.listener_list
            },
            protected=frozenset(config.listeners_between_brokers),
            control_plane=config.control_plane_listener,
        )
        if config.queued_max_request_bytes > 0:
            limits = replace(limits, queued_request_bytes_max=config.queued_max_request_bytes)
        return limits


def _listener_limits(config: BrokerConfig, listener_name: str) -> ListenerLimits:
    """Return the limits of a listener; those that it does not set are the broker's."""
    values = ListenerConfig(config.given, listener_name)
    return ListenerLimits(
        values.integer("max.connections"), values.integer("max.connection.creation.rate")
    )
