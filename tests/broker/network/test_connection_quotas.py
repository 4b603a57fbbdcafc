"""ConnectionQuotas: who may connect, with its clock passed in, and at the sockets of a broker."""

import pytest

from kctl.broker.network.connection_quotas import ConnectionQuotas, CreationRate
from kctl.broker.network.least_recently_used import FOUND_MAX, LeastRecentlyUsed
from kctl.broker.network.limits import ListenerLimits, NetworkLimits
from kctl.broker.network.server import SocketServer
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import UsageError
from kctl.model import Endpoint
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.raw_requests import RequestWriter
from tests.support.real_loop import connect

LISTENERS = "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
SETTINGS = {
    "listeners": LISTENERS,
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "internal",
    "control.plane.listener.name": "controller",
}


def quotas(names=("PLAINTEXT", "INTERNAL"), **limits):
    result = ConnectionQuotas(NetworkLimits(**{"protected": frozenset(["INTERNAL"]), **limits}))
    for name in names:
        result.add(name)
    return result


def open_many(quotas, name, count, now_ms=0):
    for _ in range(count):
        quotas.opened(name, now_ms)


def test_limits_of_a_listener_are_the_brokers_unless_it_has_its_own():
    config = BrokerConfig(
        {
            **SETTINGS,
            "max.connections": "50",
            "max.connection.creation.rate": "9",
            "listener.name.internal.max.connections": "7",
            "listener.name.plaintext.max.connection.creation.rate": "3",
            "quota.window.num": "5",
            "quota.window.size.seconds": "2",
        }
    )
    limits = NetworkLimits.of(config)
    assert limits.of_listener("INTERNAL") == ListenerLimits(7, 9)
    assert limits.of_listener("PLAINTEXT") == ListenerLimits(50, 3)
    assert (limits.connections_max, limits.rate_max) == (50, 9)
    assert (limits.rate_window_ms, limits.rate_window_count) == (2_000, 5)
    assert limits.protected == {"INTERNAL", "CONTROLLER"}


def test_a_limit_of_a_listener_that_is_no_number_is_refused():
    config = BrokerConfig({**SETTINGS, "listener.name.internal.max.connections": "few"})
    with pytest.raises(UsageError, match=r"listener\.name\.internal\.max\.connections"):
        NetworkLimits.of(config)


def test_a_full_broker_has_room_on_protected_listeners_only():
    it = quotas(connections_max=2)
    open_many(it, "PLAINTEXT", 2)
    assert not it.has_room("PLAINTEXT")
    assert it.has_room("INTERNAL")
    assert it.excess == 0
    it.opened("INTERNAL", 0)
    assert it.excess == 1
    it.closed("PLAINTEXT")
    assert it.excess == 0
    assert not it.has_room("PLAINTEXT")


def test_the_only_listener_of_a_broker_is_not_protected():
    it = quotas(["INTERNAL"], connections_max=1)
    it.opened("INTERNAL", 0)
    assert not it.has_room("INTERNAL")


def test_only_connections_of_unprotected_listeners_are_in_excess():
    it = quotas(connections_max=2)
    it.opened("PLAINTEXT", 0)
    open_many(it, "INTERNAL", 5)
    assert it.excess == 1
    it.closed("PLAINTEXT")
    assert it.excess == 0


def test_a_listener_with_its_own_maximum_is_full_while_others_have_room():
    it = quotas(listeners={"INTERNAL": ListenerLimits(connections_max=1)})
    it.opened("INTERNAL", 0)
    assert not it.has_room("INTERNAL")
    assert it.has_room("PLAINTEXT")


def test_connections_of_a_removed_listener_count_for_the_broker():
    it = quotas(connections_max=1)
    it.opened("PLAINTEXT", 0)
    it.add("NEW")
    it.remove("PLAINTEXT")
    assert not it.has_room("NEW")
    it.closed("PLAINTEXT")
    assert it.has_room("NEW")


# The delays that org.apache.kafka.common.metrics.stats.Rate and QuotaUtils yield: limit per second,
# times of connections in ms, delay after the last.
RATES = [
    (10, [0] * 100, 0),
    (10, [0] * 101, 100),
    (10, [0] * 150, 1_000),
    (10, [*[0] * 100, 10_000], 100),
    (10, [*[0] * 100, 10_500, 10_500, *[10_500] * 5], 200),
    (10, [*[0] * 200, 11_000], 0),
    (1, [*range(0, 10_000, 1_000), 10_000], 1_000),
    (0, [0], 1_000),
]


@pytest.mark.parametrize(("limit", "times_ms", "delay_ms"), RATES)
def test_the_rate_of_new_connections_is_kafkas(limit, times_ms, delay_ms):
    rate = CreationRate()
    delays = [rate.record(limit, NetworkLimits(), now_ms) for now_ms in times_ms]
    assert delays[-1] == delay_ms


def test_the_brokers_rate_does_not_delay_protected_listeners():
    it = quotas(rate_max=1)
    open_many(it, "PLAINTEXT", 20)
    open_many(it, "INTERNAL", 20)
    assert it.wait_ms("PLAINTEXT", 0) == 1_000
    assert it.wait_ms("PLAINTEXT", 400) == 600
    assert it.wait_ms("PLAINTEXT", 1_000) == 0
    assert it.wait_ms("INTERNAL", 0) == 0


def test_a_listeners_rate_delays_that_listener_only():
    it = quotas(listeners={"INTERNAL": ListenerLimits(rate_max=1)})
    open_many(it, "PLAINTEXT", 20)
    open_many(it, "INTERNAL", 20)
    assert it.wait_ms("PLAINTEXT", 0) == 0
    assert it.wait_ms("INTERNAL", 0) == 1_000


class Used:
    """A connection, as far as the search for the oldest looks at it."""

    def __init__(self, last_active_ms):
        self.last_active_ms = last_active_ms


def test_the_least_recently_used_connections_are_found_in_order():
    connections = [Used((number * 7) % 1_000) for number in range(1_000)]
    search, taken = LeastRecentlyUsed(), []
    for _ in range(FOUND_MAX + 10):
        taken.append(search.take(lambda: set(connections) - set(taken), lambda _: True))
    assert [it.last_active_ms for it in taken] == list(range(FOUND_MAX + 10))


def test_a_connection_that_was_used_or_closed_since_the_search_is_passed_over():
    first, second, third = Used(1), Used(2), Used(3)
    search = LeastRecentlyUsed()
    assert search.take(lambda: [third, first, second], lambda _: True) is first
    second.last_active_ms = 9
    assert search.take(lambda: [third, second], lambda _: True) is third
    assert search.take(lambda: [second], lambda it: it is not second or not search._found) is second
    assert search.take(list, lambda _: True) is None


class Server:
    """A SocketServer with a listener for clients and one for brokers, that answers heartbeats."""

    def __init__(self, loop, **limits):
        self.loop = loop
        endpoints = [Endpoint("127.0.0.1", 0, name) for name in ("PLAINTEXT", "INTERNAL")]
        self.server = SocketServer(
            loop.runtime,
            endpoints,
            {12: (0, 4)},
            lambda request: request.reply(HeartbeatResponse()),
            self.limits(**limits),
        )
        self.ports = {it.listener_name: it.port for it in self.server.start()}
        self.writer = RequestWriter()

    @staticmethod
    def limits(**limits):
        return NetworkLimits(**{"protected": frozenset(["INTERNAL"]), **limits})

    def connect(self, name="PLAINTEXT"):
        """Connect and wait until the broker has accepted."""
        before = self.server.counters.connections_accepted
        peer = connect(self.loop, self.ports[name])
        self.loop.until(lambda: self.server.counters.connections_accepted > before)
        return peer

    def is_served(self, peer):
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        peer.send(self.writer.frame(heartbeat, 1))
        return len(peer.receive_frame()) > 0

    def until_active_later(self):
        """Wait until the clock shows that what follows is later."""
        now_ms = self.server.now_ms()
        self.loop.until(lambda: self.server.now_ms() > now_ms)


def test_a_full_broker_takes_brokers_and_closes_its_least_recently_used_client(loop):
    it = Server(loop, connections_max=2)
    old = it.connect()
    it.until_active_later()
    new = it.connect()
    it.until_active_later()
    assert it.is_served(old)  # which makes the other the oldest
    broker = it.connect("INTERNAL")
    assert it.is_served(broker)
    new.wait_for_close()
    assert it.is_served(old)
    assert it.server.counters.connections_excess_closed == 1
    waiting = connect(loop, it.ports["PLAINTEXT"])
    loop.turns()
    assert it.server.connection_count == 2
    old.socket.close()
    assert it.is_served(waiting)


def test_brokers_are_taken_when_no_client_is_left_to_close(loop):
    it = Server(loop, connections_max=1)
    first, second = it.connect("INTERNAL"), it.connect("INTERNAL")
    assert it.is_served(first)
    assert it.is_served(second)
    assert it.server.counters.connections_excess_closed == 0


def test_a_listener_at_its_own_maximum_keeps_new_connections_waiting(loop):
    it = Server(loop, listeners={"PLAINTEXT": ListenerLimits(connections_max=1)})
    first = it.connect()
    waiting = connect(loop, it.ports["PLAINTEXT"])
    assert it.is_served(it.connect("INTERNAL"))
    assert it.server.connection_count == 2
    first.socket.close()
    assert it.is_served(waiting)


def test_lowering_the_maximum_closes_the_least_recently_used(loop):
    it = Server(loop)
    peers = []
    for _ in range(3):
        peers.append(it.connect())
        it.until_active_later()
    it.server.apply_limits(it.limits(connections_max=1))
    peers[0].wait_for_close()
    peers[1].wait_for_close()
    assert it.is_served(peers[2])


def test_raising_a_maximum_lets_those_in_who_wait(loop):
    it = Server(loop, listeners={"PLAINTEXT": ListenerLimits(connections_max=1)})
    it.connect()
    waiting = connect(loop, it.ports["PLAINTEXT"])
    loop.turns()
    it.server.apply_limits(it.limits())
    assert it.is_served(waiting)


def test_connections_beyond_the_rate_wait(loop):
    it = Server(loop, rate_max=1, rate_window_ms=200, rate_window_count=2)
    peers = [connect(loop, it.ports["PLAINTEXT"]) for _ in range(3)]
    for peer in peers:
        assert it.is_served(peer)
    assert it.server.counters.accepting_throttled >= 2
    assert it.is_served(it.connect("INTERNAL"))


def test_requests_of_the_control_plane_are_served_first(loop):
    it = Server(loop, control_plane="INTERNAL")
    order = []
    reply = it.server.on_request

    def handle(request):
        order.append(request.context.listener_name)
        reply(request)

    it.server.on_request = handle
    peers = [*(it.connect() for _ in range(5)), it.connect("INTERNAL")]
    # All wait in their sockets before the loop looks at any.
    for peer in peers:
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        peer.socket.sendall(it.writer.frame(heartbeat, 1))
    loop.until(lambda: len(order) == len(peers))
    assert order == ["INTERNAL", *["PLAINTEXT"] * 5]
