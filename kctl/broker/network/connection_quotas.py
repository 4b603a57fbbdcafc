"""ConnectionQuotas: which listener may accept another connection, and after which time. Pure.

A listener accepts while it has fewer connections than its own max.connections, while all listeners
together have fewer than the broker's, and unless the rate of new connections, its own or the
broker's, is too high. Protected listeners, which other brokers and controllers use, are exempt from
the broker's maximum and rate if there is another listener: a broker that clients have filled can
still be replicated from. The excess is then closed on the other listeners.

Invariant: the total is the sum of the counts of all listeners, removed ones included.

Kafka 2.7: kafka.network.ConnectionQuotas, org.apache.kafka.common.metrics.stats.Rate; KIP-402,
KIP-612
"""

from dataclasses import field

from kctl.broker.network.limits import NetworkLimits
from kctl.broker.sampled_rate import SampledRate, Windows
from kctl.lazy_dataclass import dataclass


class CreationRate:
    """The rate of new connections; listeners wait at most one window to keep it."""

    def __init__(self) -> None:
        self._sampled = SampledRate()

    def record(self, limit: int, limits: NetworkLimits, now_ms: int) -> int:
        """Count a connection; return for how many milliseconds, at most one window, the next ones
        have to wait to keep `limit` per second."""
        windows = Windows(limits.rate_window_ms, limits.rate_window_count)
        self._sampled.record(1, now_ms, windows)
        return min(self._sampled.throttle_ms(limit, now_ms, windows), windows.window_ms)


@dataclass(slots=True)
class _Usage:
    """What one listener uses of its limits."""

    connections: int = 0
    rate: CreationRate = field(default_factory=CreationRate)
    # It accepts no connection before this time.
    not_before_ms: int = 0


class ConnectionQuotas:
    """Counts connections by listener."""

    def __init__(self, limits: NetworkLimits) -> None:
        self.limits = limits
        self.total = 0
        self._listeners: dict[str, _Usage] = {}
        # Those removed that still have connections.
        self._removed: dict[str, _Usage] = {}
        self._rate = CreationRate()

    def add(self, listener_name: str) -> None:
        """Begin to count the connections of a listener, or count them on if it was removed."""
        self._listeners[listener_name] = self._removed.pop(listener_name, _Usage())

    def remove(self, listener_name: str) -> None:
        """Forget a listener; its open connections still count for the broker."""
        usage = self._listeners.pop(listener_name)
        if usage.connections:
            self._removed[listener_name] = usage

    def is_protected(self, listener_name: str) -> bool:
        """Return whether the broker's own limits do not apply to a listener."""
        return listener_name in self.limits.protected and len(self._listeners) > 1

    def opened(self, listener_name: str, now_ms: int) -> None:
        """Count a connection that a listener has accepted."""
        limits, usage = self.limits, self._listeners[listener_name]
        self.total += 1
        usage.connections += 1
        wait_ms = usage.rate.record(limits.of_listener(listener_name).rate_max, limits, now_ms)
        if not self.is_protected(listener_name):
            wait_ms = max(wait_ms, self._rate.record(limits.rate_max, limits, now_ms))
        if wait_ms:
            usage.not_before_ms = now_ms + wait_ms

    def closed(self, listener_name: str) -> None:
        """Count the end of a connection."""
        self.total -= 1
        usage = self._listeners.get(listener_name) or self._removed[listener_name]
        usage.connections -= 1
        if not usage.connections:
            self._removed.pop(listener_name, None)

    def has_room(self, listener_name: str) -> bool:
        """Return whether no maximum keeps a listener from accepting a connection."""
        limits = self.limits
        if self.connections_of(listener_name) >= limits.of_listener(listener_name).connections_max:
            return False
        return self.is_protected(listener_name) or self.total < limits.connections_max

    def wait_ms(self, listener_name: str, now_ms: int) -> int:
        """Return for how long the rate keeps a listener from accepting connections."""
        return max(self._listeners[listener_name].not_before_ms - now_ms, 0)

    def connections_of(self, listener_name: str) -> int:
        """Return the number of connections of a listener."""
        return self._listeners[listener_name].connections

    @property
    def excess(self) -> int:
        """Return how many connections of unprotected listeners have to be closed."""
        protected = sum(
            usage.connections for name, usage in self._listeners.items() if self.is_protected(name)
        )
        return max(min(self.total - self.limits.connections_max, self.total - protected), 0)
