"""Fast paths: every next request is offered to them; what they leave is dispatched as usual."""

from collections import deque

import pytest

from kctl.broker.network.server import SocketServer
from kctl.broker.network.server_connection import API_KEY_BYTES
from kctl.model import Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.framing import SMALL_FRAME_MAX
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.raw_requests import RequestWriter, correlation_id
from tests.support.real_loop import connect

HEARTBEAT = int(ApiKey.HEARTBEAT).to_bytes(API_KEY_BYTES, "big")


class Broker:
    """Responds to heartbeats on a fast path while it `takes` them; others wait in `requests`."""

    def __init__(self, loop):
        self.loop = loop
        self.takes = True
        self.offered = 0
        self.fails_at = 0
        self.requests = deque()
        self.server = SocketServer(
            loop.runtime,
            [Endpoint("127.0.0.1", 0, "EXTERNAL")],
            {int(ApiKey.HEARTBEAT): (0, 4)},
            self.requests.append,
            fast_paths={HEARTBEAT: self.fast_path},
        )
        self.port = self.server.start()[0].port
        self.peer = connect(loop, self.port)
        self.writer = RequestWriter()

    def fast_path(self, frame, send, _context):
        self.offered += 1
        if self.offered == self.fails_at:
            raise LookupError("a bug of the fast path")
        if self.takes:
            # Size, correlation id, throttle time, error code.
            send((10).to_bytes(4, "big") + frame[4:8] + bytes(6))
        return self.takes

    def heartbeat(self):
        return self.writer.frame(HeartbeatRequest(group_id="g"), 1)

    def dispatched(self):
        self.loop.until(lambda: self.requests)
        return self.requests.popleft()


@pytest.fixture
def broker(loop):
    return Broker(loop)


def test_a_request_that_comes_alone_is_answered_and_not_dispatched(broker):
    for number in range(3):
        broker.peer.send(broker.heartbeat())
        assert correlation_id(broker.peer.receive_frame()) == number
    assert not broker.requests
    assert broker.server.counters.requests == 3
    assert broker.server.counters.bytes_out == 3 * 14


def test_what_the_fast_path_leaves_is_dispatched(broker):
    broker.takes = False
    broker.peer.send(broker.heartbeat())
    broker.dispatched().reply(HeartbeatResponse())
    assert correlation_id(broker.peer.receive_frame()) == 0
    assert broker.offered == 1


def test_requests_that_come_together_are_offered_in_order(broker):
    broker.peer.send(broker.heartbeat() + broker.heartbeat())
    for number in range(2):
        assert correlation_id(broker.peer.receive_frame()) == number
    assert broker.offered == 2
    broker.takes = False
    broker.peer.send(broker.heartbeat() + broker.heartbeat())
    for number in (2, 3):
        broker.dispatched().reply(HeartbeatResponse())
        assert correlation_id(broker.peer.receive_frame()) == number
    assert broker.offered == 4


def test_a_large_request_is_offered_too(broker):
    group = "g" * (SMALL_FRAME_MAX - 1_000)
    for number, size in enumerate((1, 2, 3)):
        request = HeartbeatRequest(group_id=group, member_id="m" * 1_000 * size)
        broker.peer.send(broker.writer.frame(request, 1))
        assert correlation_id(broker.peer.receive_frame()) == number
    assert (broker.offered, len(broker.requests)) == (3, 0)


def test_nothing_overtakes_a_request_that_waits(broker, loop):
    broker.takes = False
    broker.peer.send(broker.heartbeat())
    waiting = broker.dispatched()
    broker.takes = True
    broker.peer.send(broker.heartbeat())
    loop.turns()
    assert broker.offered == 1
    waiting.reply(HeartbeatResponse())
    assert correlation_id(broker.peer.receive_frame()) == 0
    assert correlation_id(broker.peer.receive_frame()) == 1
    assert broker.offered == 2


def test_a_server_that_is_about_to_stop_takes_no_fast_path(broker, loop):
    broker.takes = False
    broker.peer.send(broker.heartbeat())
    waiting = broker.dispatched()
    broker.takes = True
    broker.server.close()
    broker.peer.send(broker.heartbeat())
    loop.turns()
    waiting.reply(HeartbeatResponse())
    broker.peer.wait_for_close()
    assert broker.offered == 1


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_an_error_in_any_turn_ends_its_connection_only(loop, broker, fails_at):
    """In a later turn the frame was gone, and the connection stayed without an answer."""
    broker.server.is_turn_spent = lambda: True
    broker.fails_at = fails_at
    other = connect(loop, broker.port)
    broker.peer.send(broker.heartbeat() if fails_at == 1 else broker.heartbeat() * 4)
    broker.peer.wait_for_close()
    assert broker.offered == fails_at, "nothing is served behind it"
    assert broker.server.counters.handler_errors == 1
    (warning,) = loop.trace.warnings
    assert "Unexpected error in HEARTBEAT of EXTERNAL-127.0.0.1" in warning
    assert "a bug of the fast path" in warning
    other.send(broker.heartbeat())
    other.receive_frame()
