"""Connections of clients that exceed a quota: the answer goes out, then nothing more is served."""

import gc
import sys

import pytest

from kctl.broker.client_quotas import ClientQuotaEntity
from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.server import SocketServer
from kctl.model import Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.raw_requests import RequestWriter, decode_response
from tests.support.real_loop import connect, real_loop

SERVED = {int(api): (0, api.max_version) for api in ApiKey}


@pytest.fixture
def loop():
    with real_loop() as it:
        yield it


class Broker:
    """Pauses the client of each Heartbeat for as many milliseconds as its group is called."""

    def __init__(self, loop):
        self.loop = loop
        self.seen = []
        self.server = SocketServer(
            loop.runtime, [Endpoint("127.0.0.1", 0, "X")], SERVED, self.handle,
            NetworkLimits(),
        )  # fmt: skip
        self.port = self.server.start()[0].port
        self.writer = RequestWriter()
        quotas = ClientQuotas()
        quotas.change(ClientQuotaEntity(None, "x"), {"producer_byte_rate": 1.0})
        self.server.use_client_quotas(quotas)

    def handle(self, request):
        self.seen.append(request.body.group_id)
        request.throttle_ms = int(request.body.group_id)
        request.reply(HeartbeatResponse())

    def frames(self, *pauses_ms):
        return b"".join(
            self.writer.frame(HeartbeatRequest(group_id=str(it), generation_id=1, member_id="m"), 3)
            for it in pauses_ms
        )


def heartbeat(peer):
    return decode_response(ApiKey.HEARTBEAT, 3, peer.receive_frame())


def test_a_client_that_ignores_its_pause_is_not_served(loop):
    broker = Broker(loop)
    peer, other = connect(loop, broker.port), connect(loop, broker.port)
    peer.send(broker.frames(600_000, *[0] * 100))
    assert heartbeat(peer).throttle_time_ms == 600_000
    for _ in range(20):
        other.send(broker.frames(0))
        assert heartbeat(other).throttle_time_ms == 0
    assert broker.seen == ["600000", *["0"] * 20], "only the other client is served"


def test_what_was_sent_meanwhile_is_served_after_the_pause(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port)
    peer.send(broker.frames(30, 0, 20, 0))
    assert [heartbeat(peer).throttle_time_ms for _ in range(4)] == [30, 0, 20, 0]


def test_a_muted_client_sends_no_more_than_fits_the_pipeline(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port)
    peer.send(broker.frames(600_000))
    heartbeat(peer)
    (connection,) = broker.server._connections
    peer.send_until_blocked(broker.frames(*[0] * 2000))
    assert connection._frames.buffered_bytes <= 2 * broker.server.backlog.pipelined_bytes_max
    assert broker.seen == ["600000"]


def test_a_muted_client_is_not_idle(loop):
    broker = Broker(loop)
    peer, idle = connect(loop, broker.port), connect(loop, broker.port)
    peer.send(broker.frames(600_000))
    idle.send(broker.frames(0))
    heartbeat(peer)
    heartbeat(idle)
    broker.server.apply_limits(NetworkLimits(idle_ms_max=0))
    broker.server._sweep()
    idle.wait_for_close()
    loop.until(lambda: broker.server.connection_count < 2)
    loop.turns()
    assert broker.server.connection_count == 1, "only the muted one stays"


def test_what_a_client_sent_before_it_closed_its_side_is_served(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port)
    peer.send(broker.frames(50, 0, 0))
    heartbeat(peer)
    peer.socket.shutdown(1)
    loop.until(lambda: len(broker.seen) == 3)
    loop.until(lambda: broker.server.connection_count == 0)


def test_closing_ends_a_pause(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port)
    peer.send(broker.frames(600_000, 0))
    heartbeat(peer)
    closed = broker.server.close()
    loop.until(lambda: closed.done)
    assert broker.server.connection_count == 0


def test_a_reset_ends_a_pause(loop):
    """What arrived is served at once, without further pauses: its client is gone."""
    broker = Broker(loop)
    peer = connect(loop, broker.port)
    peer.send(broker.frames(600_000, 500_000, 0))
    heartbeat(peer)
    peer.reset()
    loop.until(lambda: broker.server.connection_count == 0)
    assert broker.seen == ["600000", "500000", "0"]


@pytest.mark.parametrize("is_reset", [True, False])
def test_nothing_of_a_muted_client_is_left_once_it_is_gone(loop, is_reset):
    """Its timer kept a connection of 5 KB, for up to an hour."""
    broker = Broker(loop)
    gc.collect()
    gc.disable()
    try:
        peer = connect(loop, broker.port)
        peer.send(broker.frames(600_000))
        heartbeat(peer)
        [connection] = broker.server._connections
        if is_reset:
            peer.reset()
        else:
            peer.socket.close()
        loop.until(lambda: broker.server.connection_count == 0)
        # The callback that closed it is over.
        connect(loop, broker.port)
        assert sys.getrefcount(connection) == sys.getrefcount(object())
    finally:
        gc.enable()
