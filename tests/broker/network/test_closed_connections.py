"""Nothing of a connection is left once it is closed."""

import gc
import sys

import pytest

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
