"""The phases of a server-side connection: the table, and both of its users driven alike."""

from itertools import product
from types import MappingProxyType
from typing import ClassVar

import pytest

from kctl.broker.network.backlog import Backlog
from kctl.broker.network.counters import NetworkCounters
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.request_memory import RequestMemory
from kctl.broker.network.server_connection import ServerConnection
from kctl.broker.request import RequestContext
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.connection import BrokerConnection
from kctl.protocol.framing import BufferPool, Scratch
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.server_phase import LEGAL_MOVES, ServerPhase, moved
from kctl.runtime.complaints import Complaints
from tests.support.raw_requests import RequestWriter

READING, IN_FLIGHT, SENDING, DRAINING, OVER, MUTED = ServerPhase
ILLEGAL = [
    (phase, target)
    for phase, target in product(ServerPhase, ServerPhase)
    if target not in LEGAL_MOVES[phase]
]


class Host:
    """What a ServerConnection needs of its server."""

    limits = NetworkLimits()
    served = MappingProxyType({int(ApiKey.HEARTBEAT): (0, 4)})
    fast_paths: ClassVar = {}
    client_quotas = None
    request_watchers = ()
    request_counter = None

    def __init__(self):
        self.counters = NetworkCounters()
        self.memory = RequestMemory(self, self.counters, 1 << 26)
        self.pool = BufferPool()
        self.scratch = Scratch()
        self.backlog = Backlog(self.scratch)
        self.scheduler = self
        self.requests = []
        self.on_request = self.requests.append
        self.soon = []
        self.complaints = Complaints()

    def now_ms(self):
        return 0

    def is_turn_spent(self):
        return False

    def call_soon(self, callback, *arguments):
        self.soon.append((callback, arguments))

    def connection_lost(self, connection):
        pass


class SlowTransport:
    """Counts what was sent; `unsent` bytes wait for the client to read."""

    peer = ("127.0.0.1", 1)

    def __init__(self):
        self.sent = 0
        self.unsent = 0
        self.is_closed = False
        self.callback = None

    def send(self, parts):
        self.sent += 1

    def unsent_bytes(self):
        return self.unsent

    def when_sent(self, callback):
        self.callback = callback

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def close(self):
        self.is_closed = True


class Served:
    """A ServerConnection between a fake host and a fake transport."""

    def __init__(self):
        self.host = Host()
        self.transport = SlowTransport()
        context = RequestContext("id", "127.0.0.1", "EXTERNAL")
        self.connection = ServerConnection(self.host, self.transport, context)

    @property
    def phase(self):
        return self.connection._phase

    @phase.setter
    def phase(self, phase):
        self.connection._phase = phase

    @property
    def requests(self):
        return len(self.host.requests)

    def receive(self, data):
        buffer = self.connection.get_buffer()
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def answer(self, *, is_read=True):
        self.transport.unsent = 0 if is_read else 10
        self.host.requests[-1].reply(HeartbeatResponse())
        while self.host.soon:
            callback, arguments = self.host.soon.pop(0)
            callback(*arguments)

    def read(self):
        self.transport.unsent = 0
        self.transport.callback()

    def drain(self):
        self.connection.close_when_answered()

    def begin(self):
        self.connection._dispatch(RequestWriter().frame(HeartbeatRequest(), 1)[4:])

    def lose(self):
        self.connection.connection_lost(None)


class Scripted:
    """A BrokerConnection and the requests taken from it."""

    def __init__(self):
        self.connection = BrokerConnection()
        self.taken = []

    @property
    def phase(self):
        return self.connection.phase

    @phase.setter
    def phase(self, phase):
        self.connection.phase = phase

    @property
    def requests(self):
        return len(self.taken)

    def receive(self, data):
        buffer = self.connection.get_buffer()
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))
        self._take()
        self.connection.release()

    def _take(self):
        while (request := self.connection.next_event()) is not None:
            self.taken.append(request)

    def answer(self, *, is_read=True):
        self.connection.send_response(self.taken[-1], HeartbeatResponse())
        if not is_read:
            self.connection.wait_for_reader()
        self._take()

    def read(self):
        self.connection.resume()
        self._take()

    def drain(self):
        self.connection.drain()

    def begin(self):
        self.connection.phase = moved(self.connection.phase, IN_FLIGHT)

    def lose(self):
        self.connection.close()


@pytest.fixture(params=[Served, Scripted])
def side(request):
    return request.param()


def heartbeats(count):
    writer = RequestWriter()
    return b"".join(writer.frame(HeartbeatRequest(group_id="g"), 1) for _ in range(count))


@pytest.mark.parametrize(("phase", "target"), ILLEGAL)
def test_an_illegal_move_raises(phase, target):
    with pytest.raises(RuntimeError, match=f"from {phase.name} to {target.name}"):
        moved(phase, target)


def test_every_phase_can_end_and_none_follows_the_end():
    assert all(OVER in targets for targets in LEGAL_MOVES.values())
    assert LEGAL_MOVES[OVER] == {OVER}
    assert LEGAL_MOVES.keys() == set(ServerPhase)


@pytest.mark.parametrize("phase", [p for p in ServerPhase if IN_FLIGHT not in LEGAL_MOVES[p]])
def test_a_request_that_may_not_begin_raises_and_changes_nothing(side, phase):
    side.phase = phase
    with pytest.raises(RuntimeError, match="cannot go from"):
        side.begin()
    assert side.phase is phase
    assert side.requests == 0


def test_the_next_request_begins_when_the_last_one_is_answered(side):
    side.receive(heartbeats(3))
    assert (side.phase, side.requests) == (IN_FLIGHT, 1)
    side.answer()
    assert (side.phase, side.requests) == (IN_FLIGHT, 2)
    side.answer()
    side.answer()
    assert (side.phase, side.requests) == (READING, 3)


def test_no_request_begins_while_the_client_has_yet_to_read(side):
    side.receive(heartbeats(2))
    side.answer(is_read=False)
    assert (side.phase, side.requests) == (SENDING, 1)
    side.read()
    assert (side.phase, side.requests) == (IN_FLIGHT, 2)


def test_draining_ends_with_the_request_in_flight(side):
    side.receive(heartbeats(1))
    side.drain()
    assert side.phase is DRAINING
    side.drain()
    assert side.phase is DRAINING
    side.answer()
    assert (side.phase, side.requests) == (OVER, 1)


def test_draining_begins_what_arrived_before():
    side = Served()
    side.receive(heartbeats(2))
    side.drain()
    assert side.phase is IN_FLIGHT
    side.answer()
    side.answer()
    assert (side.phase, side.requests) == (OVER, 2)


def test_draining_at_rest_ends_at_once(side):
    side.drain()
    assert side.phase is OVER
    side.receive(heartbeats(1))
    assert (side.phase, side.requests) == (OVER, 0)


def test_a_connection_that_is_lost_is_over_whatever_it_did(side):
    side.receive(heartbeats(2))
    side.lose()
    assert side.phase is OVER
    side.lose()
    assert side.phase is OVER


def test_a_late_response_to_a_lost_connection_is_dropped():
    side = Served()
    side.receive(heartbeats(2))
    side.lose()
    side.answer()
    assert (side.phase, side.requests, side.transport.sent) == (OVER, 1, 0)


def test_the_response_that_drains_is_sent_before_the_close():
    side = Served()
    side.receive(heartbeats(1))
    side.drain()
    assert not side.transport.is_closed
    side.answer()
    assert (side.transport.sent, side.transport.is_closed) == (1, True)
