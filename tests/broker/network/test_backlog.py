"""Clients that send more than they take: what is held for them has bounds, and they are served."""

from kctl.broker.network.backlog import FULL_READ_BYTES, Backlog
from kctl.protocol.framing import SCRATCH_BYTES
from kctl.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.network.test_server import Broker, answer_with_group, heartbeat


def test_a_peer_that_never_reads_is_served_one_answer_ahead(loop):
    big = MetadataResponse(cluster_id="x" * 30_000)
    broker = Broker(loop, lambda request: request.reply(big))
    peer = broker.connect(receive_buffer=4096)
    one = broker.writer.frame(MetadataRequest(topics=[]), 2)
    peer.send_until_blocked(one * 100)
    (connection,) = broker.server._connections
    loop.until(lambda: connection.unsent_bytes() > 0)
    # The kernel may still take some, and then another request is served.
    for _ in range(50):
        loop.turns()
        assert connection.unsent_bytes() < 2 * 30_000
    served = len(broker.seen)
    assert served * len(one) < broker.counters.bytes_in // 2
    # Once it reads, it is served again.
    peer.receive_frame()
    peer.receive(1_000_000)
    loop.until(lambda: len(broker.seen) > served)


def test_pipelining_without_end_stops_being_read(loop):
    broker = Broker(loop)
    peer = broker.connect()
    one = broker.writer.frame(heartbeat("1"), 1)
    peer.send_until_blocked(one * 1000)
    # Nothing more is read from the socket before the waiting request has its response.
    taken = broker.counters.bytes_in
    assert taken < 200_000
    broker.handler = answer_with_group
    answer_with_group(broker.next_request())
    loop.until(lambda: broker.counters.bytes_in > taken)
    assert loop.trace.warnings == []


def test_what_is_behind_requests_has_one_bound_for_all_connections(loop):
    """What waits there is served in the end."""
    broker = Broker(loop)
    bytes_max, count = 300_000, 20
    backlog = broker.server.backlog = Backlog(broker.server.scratch, bytes_max)
    one = broker.writer.frame(heartbeat(f"{1:01000}"), 1)
    peers = [broker.connect() for _ in range(count)]
    for peer in peers:
        peer.send(one)
    loop.until(lambda: len(broker.requests) == count)
    for peer in peers:
        peer.send_until_blocked(one * 1000)
    assert bytes_max <= backlog.bytes <= bytes_max + SCRATCH_BYTES + count * FULL_READ_BYTES
    assert len(broker.requests) == count

    served = {}
    while len(served) < count or min(served.values()) < 50:
        request = broker.next_request()
        connection = request.context.connection_id
        served[connection] = served.get(connection, 0) + 1
        answer_with_group(request)
    for peer in peers:
        peer.socket.close()
    loop.until(lambda: broker.server.connection_count == 0)
    assert backlog.bytes == 0
    assert len(broker.server.scratch.window) == SCRATCH_BYTES


def test_reading_continues_after_a_late_response_to_the_last_pipelined_request(loop):
    broker = Broker(loop)
    peer = broker.connect()
    # More than PIPELINED_BYTES_MAX: reading stops, and then only whole requests are left.
    count = 40
    for number in range(count):
        peer.send(broker.writer.frame(heartbeat(f"{number:01000}"), 1))
    loop.until(lambda: broker.counters.bytes_in >= count * 1000)
    for _ in range(count):
        answer_with_group(broker.next_request())
        loop.turns()
    peer.send(broker.writer.frame(heartbeat("99"), 1))
    assert broker.next_request().body.group_id == "99"
