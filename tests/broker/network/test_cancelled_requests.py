"""A request that changes nothing ends with its client."""

import socket
import struct

import pytest

from tests.broker.network.test_server import Broker, heartbeat


@pytest.mark.parametrize("how", ["half-close", "reset"])
def test_a_request_that_changes_nothing_is_cancelled_with_its_client(loop, how):
    wanted = []
    broker = Broker(loop, lambda request: wanted.append(request.cancellable()))
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat(), 1))
    loop.until(lambda: wanted)
    assert wanted[0]()
    if how == "reset":
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
    else:
        peer.socket.shutdown(socket.SHUT_WR)
    loop.until(lambda: not wanted[0]())
    loop.until(lambda: broker.server.connection_count == 0)
