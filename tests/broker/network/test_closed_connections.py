"""Connections are closed in turns, and nothing of one is left once it is closed."""

import gc
import sys

import pytest

from kctl.broker.network import server as server_module
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.server_connection import ServerConnection
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from tests.broker.network.test_server import Broker, heartbeat


@pytest.mark.parametrize("is_served", [True, False])
def test_a_connection_goes_without_a_search_for_cycles(loop, is_served):
    """Cycles among frozen objects may stay for long; 10,000 connections hold 50 MB."""
    broker = Broker(loop, lambda request: request.reply(HeartbeatResponse()))
    gc.collect()
    gc.disable()
    try:
        peer = broker.connect()
        if is_served:
            peer.send(broker.writer.frame(heartbeat(), 1))
            peer.receive_frame()
            broker.seen.clear()
        [connection] = broker.server._connections
        alone = object()
        assert sys.getrefcount(connection) > sys.getrefcount(alone)
        peer.socket.close()
        loop.until(lambda: not broker.server.connection_count)
        # The callback that closed it is over.
        broker.connect()
        assert sys.getrefcount(connection) == sys.getrefcount(alone)
    finally:
        gc.enable()


@pytest.mark.parametrize("closing", ["_sweep", "_abort_all"])
def test_many_connections_are_closed_over_many_turns(loop, monkeypatch, closing):
    monkeypatch.setattr(server_module, "CLOSED_PER_TURN", 2)
    broker = Broker(loop)
    peers = [broker.connect() for _ in range(7)]
    loop.until(lambda: broker.server.connection_count == 7)
    aborted = []
    abort = ServerConnection.abort

    def counted(connection):
        aborted.append(connection)
        abort(connection)

    monkeypatch.setattr(ServerConnection, "abort", counted)
    broker.server.apply_limits(NetworkLimits(idle_ms_max=0))
    getattr(broker.server, closing)()
    assert len(aborted) == 2
    for peer in peers:
        peer.wait_for_close()
    assert len(aborted) == 7
