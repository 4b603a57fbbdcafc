"""SocketServer and ServerConnection over loopback sockets, with handlers that are the test's."""

import socket
import struct
from collections import deque
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.server import SocketServer
from kctl.errors import KctlError
from kctl.model import Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.messages.fetch import FetchRequest, FetchResponse
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.messages.produce import ProduceResponse
from kctl.store.errors import StoppingError
from tests.support.apache_kafka import free_port
from tests.support.raw_requests import (
    RequestWriter,
    correlation_id,
    decode_response,
    produce_request,
)
from tests.support.real_loop import connect, frame, real_loop

SERVED = {int(api): (0, api.max_version) for api in ApiKey}


class Broker:
    """A SocketServer whose requests wait in `requests` until the test responds, or are handled at
    once by `handler`."""

    def __init__(self, loop, handler=None, served=SERVED, **limits):
        self.loop = loop
        self.requests = deque()
        self.seen = []
        self.handler = handler or self.requests.append
        self.server = SocketServer(
            loop.runtime,
            [Endpoint("127.0.0.1", 0, "EXTERNAL")],
            served,
            self.handle,
            NetworkLimits(**limits),
        )
        self.port = self.server.start()[0].port
        self.writer = RequestWriter()

    def handle(self, request):
        self.seen.append(request)
        self.handler(request)

    def connect(self, **options):
        before = self.server.counters.connections_accepted
        peer = connect(self.loop, self.port, **options)
        self.loop.until(lambda: self.server.counters.connections_accepted > before)
        return peer

    def next_request(self):
        self.loop.until(lambda: self.requests)
        return self.requests.popleft()

    @property
    def counters(self):
        return self.server.counters


def heartbeat(group="g"):
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="m")


def answer_with_group(request):
    """Return a response that identifies its request."""
    request.reply(HeartbeatResponse(throttle_time_ms=int(request.body.group_id)))


def test_a_request_reaches_the_handler_with_all_that_is_known_of_it(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat("my-group"), 3))
    request = broker.next_request()
    assert request.api_key == ApiKey.HEARTBEAT
    assert request.api_version == 3
    assert request.client_id == "test"
    assert request.body.group_id == "my-group"
    assert request.context.client_host == "127.0.0.1"
    assert request.context.listener_name == "EXTERNAL"
    assert request.context.principal == "User:ANONYMOUS"
    assert str(peer.socket.getsockname()[1]) in request.context.connection_id


@pytest.mark.parametrize("version", [0, 3, 4])
def test_the_answer_goes_back_with_the_correlation_id(loop, version):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat(), version))
    broker.next_request().reply(HeartbeatResponse(error_code=27))
    response = peer.receive_frame()
    assert correlation_id(response) == 0
    assert decode_response(ApiKey.HEARTBEAT, version, response).error_code == 27


def test_pipelined_requests_are_seen_one_at_a_time_and_answered_in_order(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(b"".join(broker.writer.frame(heartbeat(str(n)), 1) for n in range(3)))
    for number in range(3):
        request = broker.next_request()
        loop.turns()
        assert not broker.requests
        answer_with_group(request)
        response = peer.receive_frame()
        assert correlation_id(response) == number
        assert decode_response(ApiKey.HEARTBEAT, 1, response).throttle_time_ms == number


def test_a_waiting_request_blocks_no_other_connection(loop):
    broker = Broker(loop)
    parked, other = broker.connect(), broker.connect()
    parked.send(broker.writer.frame(FetchRequest(), 11))
    fetch = broker.next_request()
    other.send(broker.writer.frame(heartbeat("7"), 1))
    answer_with_group(broker.next_request())
    other.receive_frame()
    fetch.reply(FetchResponse(session_id=5))
    assert decode_response(ApiKey.FETCH, 11, parked.receive_frame()).session_id == 5


def test_acks_0_is_not_answered_and_frees_the_connection(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(produce_request(b"", acks=0), 7))
    peer.send(broker.writer.frame(heartbeat("1"), 1))
    broker.next_request().reply(None)
    answer_with_group(broker.next_request())
    assert correlation_id(peer.receive_frame()) == 1


def test_a_second_answer_is_a_bug(loop):
    broker = Broker(loop)
    broker.connect().send(broker.writer.frame(heartbeat(), 1))
    request = broker.next_request()
    request.reply(HeartbeatResponse())
    with pytest.raises(RuntimeError):
        request.reply(HeartbeatResponse())


@pytest.mark.parametrize("size", [100, 20_000, 70_000, 300_000, 5_000_000])
def test_records_of_any_size_arrive_unharmed(loop, size):
    data = bytes(range(251)) * (size // 251)
    seen = []

    def handler(request):
        seen.append(bytes(request.body.topics[0].partitions[0].records))
        request.reply(ProduceResponse())

    broker = Broker(loop, handler)
    peer = broker.connect()
    for _ in range(3):
        peer.send(broker.writer.frame(produce_request(data), 7))
        peer.receive_frame()
    assert seen == [data] * 3
    loop.turns()
    assert broker.counters.queued_request_bytes == 0


def test_records_stay_readable_until_the_answer_although_others_send_meanwhile(loop):
    broker = Broker(loop)
    first, second = broker.connect(), broker.connect()
    first.send(broker.writer.frame(produce_request(b"a" * 30_000), 7))
    waiting = broker.next_request()
    first.send(broker.writer.frame(produce_request(b"b" * 30_000), 7))
    for _ in range(5):
        second.send(broker.writer.frame(produce_request(b"c" * 30_000), 7))
        broker.next_request().reply(ProduceResponse())
        second.receive_frame()
    assert bytes(waiting.body.topics[0].partitions[0].records) == b"a" * 30_000
    waiting.reply(ProduceResponse())
    following = broker.next_request()
    assert bytes(following.body.topics[0].partitions[0].records) == b"b" * 30_000


MESSAGES = [
    heartbeat("1"),
    produce_request(b"x" * 40_000),
    heartbeat("2"),
    MetadataRequest(topics=None),
    produce_request(b"y" * 10),
    heartbeat("3"),
]


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.integers(1, 90_000), max_size=12))
def test_any_chunking_of_the_bytes_gives_the_same_requests(cuts):
    with real_loop() as loop:
        answers = {
            ApiKey.HEARTBEAT: HeartbeatResponse(),
            ApiKey.PRODUCE: ProduceResponse(),
            ApiKey.METADATA: MetadataResponse(),
        }
        broker = Broker(loop, lambda request: request.reply(answers[ApiKey(request.api_key)]))
        bodies = []
        answer = broker.handler
        broker.handler = lambda request: (bodies.append(repr_of(request.body)), answer(request))
        peer = broker.connect()
        stream = b"".join(broker.writer.frame(message, 3) for message in MESSAGES)
        bounds = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
        for start, end in pairwise(bounds):
            peer.send(stream[start:end])
            loop.turns(2)
        for number in range(len(MESSAGES)):
            assert correlation_id(peer.receive_frame()) == number
        assert [kind for kind, _ in bodies] == [type(message).__name__ for message in MESSAGES]
        assert [data for _, data in bodies if data] == [b"x" * 40_000, b"y" * 10]


def repr_of(body):
    if type(body).__name__ == "ProduceRequest":
        return "ProduceRequest", bytes(body.topics[0].partitions[0].records)
    return type(body).__name__, b""


def test_api_versions_of_an_unknown_version_is_answered_in_version_0(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(frame(struct.pack(">hhih", 18, 99, 5, 1) + b"c" + b"whatever"))
    response = peer.receive_frame()
    assert correlation_id(response) == 5
    decoded = decode_response(ApiKey.API_VERSIONS, 0, response)
    assert decoded.error_code == 35
    assert [(key.api_key, key.max_version) for key in decoded.api_keys] == [(18, 3)]
    # The connection stays open for the client's second attempt.
    peer.send(broker.writer.frame(ApiVersionsRequest(), 0))
    broker.next_request().reply(ApiVersionsResponse())
    assert decode_response(ApiKey.API_VERSIONS, 0, peer.receive_frame()).error_code == 0


BAD_FRAMES = {
    "negative size": struct.pack(">i", -1),
    "size beyond socket.request.max.bytes": struct.pack(">i", 104_857_601),
    "no header": frame(b"\0"),
    "empty frame": frame(b""),
    "header cut in the client id": frame(struct.pack(">hhih", 3, 1, 1, 100) + b"abc"),
    "unknown API": frame(struct.pack(">hhih", 99, 0, 1, 0)),
    "API that is not served": frame(struct.pack(">hhihii", 56, 0, 1, 0, 0, 0)),
    "unknown version": frame(struct.pack(">hhih", 3, 99, 1, 0)),
    "array count beyond the bytes": frame(struct.pack(">hhihi", 3, 1, 1, 0, 1 << 30)),
    "string beyond the bytes": frame(struct.pack(">hhihih", 3, 1, 1, 0, 1, 30_000)),
    "2^28 tags": frame(struct.pack(">hhih", 18, 3, 1, 0) + b"\xff\xff\xff\xff\x0f"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_bytes_close_that_connection_and_no_other(loop, name):
    served = {key: versions for key, versions in SERVED.items() if key != ApiKey.ALTER_ISR}
    broker = Broker(loop, answer_with_group, served)
    bad, good = broker.connect(), broker.connect()
    bad.send(BAD_FRAMES[name])
    bad.wait_for_close()
    assert bad.received == b""
    assert broker.counters.bad_requests == 1
    assert len(loop.trace.warnings) == 1
    assert "127.0.0.1" in loop.trace.warnings[0]
    good.send(broker.writer.frame(heartbeat("8"), 1))
    assert decode_response(ApiKey.HEARTBEAT, 1, good.receive_frame()).throttle_time_ms == 8


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from(MESSAGES),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6),
    st.integers(0, 60),
)
def test_damaged_requests_get_a_response_or_are_closed_without_effect_on_others(
    message, changes, cut
):
    answers = {
        ApiKey.HEARTBEAT: HeartbeatResponse(),
        ApiKey.PRODUCE: ProduceResponse(),
        ApiKey.METADATA: MetadataResponse(),
    }
    with real_loop() as loop:
        broker = Broker(loop, lambda request: request.reply(answers.get(request.api_key)))
        bad, good = broker.connect(), broker.connect()
        damaged = bytearray(broker.writer.frame(message, 3))
        for position, value in changes:
            damaged[position % len(damaged)] = value
        bad.send(bytes(damaged[: len(damaged) - cut]))
        bad.socket.shutdown(1)
        bad.wait_for_close()
        good.send(broker.writer.frame(heartbeat(), 3))
        good.receive_frame()
        assert [line for line in loop.trace.warnings if "Traceback" in line] == []


def test_good_requests_before_bad_bytes_are_answered(loop):
    broker = Broker(loop, answer_with_group)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat("4"), 1) + BAD_FRAMES["unknown API"])
    assert decode_response(ApiKey.HEARTBEAT, 1, peer.receive_frame()).throttle_time_ms == 4
    peer.wait_for_close()


def test_many_bad_peers_of_one_host_make_one_line_a_second(loop):
    broker = Broker(loop)
    for _ in range(20):
        peer = broker.connect()
        peer.send(BAD_FRAMES["unknown API"])
        peer.wait_for_close()
    assert broker.counters.bad_requests == 20
    # The second tick of the clock may fall in between.
    assert len(loop.trace.warnings) <= 2


def test_a_handler_that_fails_closes_its_connection_and_the_broker_continues(loop):
    def handler(request):
        if request.body.group_id == "bad":
            raise LookupError("handler's bug")
        request.reply(HeartbeatResponse())

    broker = Broker(loop, handler)
    bad, good = broker.connect(), broker.connect()
    bad.send(broker.writer.frame(heartbeat("bad"), 1) * 3)
    bad.wait_for_close()
    assert broker.counters.handler_errors == 1
    assert "handler's bug" in loop.trace.warnings[0]
    good.send(broker.writer.frame(heartbeat("good"), 1))
    good.receive_frame()


def test_a_request_that_waits_for_the_store_while_the_broker_stops_is_closed_silently(loop):
    def handler(request):
        raise StoppingError

    broker = Broker(loop, handler)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat(), 1))
    peer.wait_for_close()
    assert broker.counters.handler_errors == 0
    assert loop.trace.warnings == []


def test_a_peer_that_meets_a_bug_again_and_again_gets_one_trace_a_second(loop):
    def handler(request):
        raise LookupError("handler's bug")

    broker = Broker(loop, handler)
    for _ in range(20):
        peer = broker.connect()
        peer.send(broker.writer.frame(heartbeat("bad"), 1))
        peer.wait_for_close()
    assert broker.counters.handler_errors == 20
    # The second tick of the clock may fall in between.
    assert 1 <= len(loop.trace.warnings) <= 2


def test_an_answer_that_cannot_be_encoded_is_our_bug_and_closes_the_connection(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat(), 1))
    broker.next_request().reply(HeartbeatResponse(error_code="no number"))
    peer.wait_for_close()
    assert broker.counters.handler_errors == 1


def test_a_handler_can_close_instead_of_answering(loop):
    broker = Broker(loop, lambda request: request.close())
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat(), 1))
    peer.wait_for_close()
    assert broker.counters.handler_errors == 0


def test_an_answer_to_a_peer_that_left_is_dropped(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat(), 1))
    request = broker.next_request()
    peer.reset()
    loop.until(lambda: broker.server.connection_count == 0)
    request.reply(HeartbeatResponse())
    assert broker.counters.queued_request_bytes == 0
    assert loop.trace.warnings == []


def test_half_a_close_still_gets_all_answers(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat("1"), 1) + broker.writer.frame(heartbeat("2"), 1))
    peer.socket.shutdown(1)
    loop.turns()
    answer_with_group(broker.next_request())
    answer_with_group(broker.next_request())
    peer.wait_for_close()
    assert [peer.received[11 + 14 * n] for n in range(2)] == [1, 2]


def test_a_close_beside_a_late_response_loses_no_request_that_was_sent_before(loop):
    broker = Broker(loop)
    peer = broker.connect()
    for number in range(3):
        peer.send(broker.writer.frame(produce_request(b"%d" % number, acks=0), 7))
    first = broker.next_request()
    loop.turns()
    # The end of the connection is read after the response and before the next request's turn.
    connection = next(iter(broker.server._connections))
    first.reply(None)
    assert connection.eof_received()
    broker.next_request().reply(None)
    broker.next_request().reply(None)
    peer.wait_for_close()
    assert len(broker.seen) == 3


def test_a_close_behind_a_waiting_fetch_loses_no_request_between_them(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(FetchRequest(), 11))
    fetch = broker.next_request()
    fetch.is_cancellable = True
    peer.send(broker.writer.frame(produce_request(b"", acks=0), 7))
    peer.socket.shutdown(socket.SHUT_WR)
    loop.turns()
    fetch.reply(FetchResponse())
    broker.next_request().reply(None)
    peer.wait_for_close()


def test_half_a_frame_and_a_close_is_no_request(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat("1"), 1)[:-1])
    peer.socket.shutdown(1)
    peer.wait_for_close()
    assert not broker.seen


def test_connections_beyond_the_limit_per_host_are_closed(loop):
    broker = Broker(loop, connections_per_ip_max=2)
    first, second = broker.connect(), broker.connect()
    connect(loop, broker.port).wait_for_close()
    assert broker.counters.connections_refused == 1
    assert "127.0.0.1" in loop.trace.warnings[0]
    first.socket.close()
    loop.until(lambda: broker.server.connection_count == 1)
    broker.connect().send(broker.writer.frame(heartbeat(), 1))
    broker.next_request()
    assert not second.pull()


def test_an_override_for_a_host_beats_the_limit(loop):
    broker = Broker(loop, connections_per_ip_max=0, connections_per_ip_overrides={"127.0.0.1": 1})
    peer = broker.connect()
    connect(loop, broker.port).wait_for_close()
    assert not peer.pull()


def test_at_max_connections_others_wait_until_there_is_room(loop):
    broker = Broker(loop, answer_with_group, connections_max=1)
    first = broker.connect()
    waiting = connect(loop, broker.port)
    waiting.send(broker.writer.frame(heartbeat("1"), 1))
    loop.turns()
    assert broker.server.connection_count == 1
    assert broker.counters.accepting_paused == 1
    first.socket.close()
    assert decode_response(ApiKey.HEARTBEAT, 1, waiting.receive_frame()).throttle_time_ms == 1


def test_an_idle_connection_is_closed(loop):
    broker = Broker(loop, idle_ms_max=1)
    broker.connect().wait_for_close()
    assert broker.counters.connections_idle_closed == 1


def test_a_connection_that_waits_for_its_answer_is_not_idle(loop):
    broker = Broker(loop, idle_ms_max=1)
    peer, idle = broker.connect(), broker.connect()
    peer.send(broker.writer.frame(heartbeat("1"), 1))
    request = broker.next_request()
    idle.wait_for_close()
    loop.until(lambda: broker.counters.connections_idle_closed == 1)
    answer_with_group(request)
    peer.receive_frame()


def test_a_reader_that_stopped_is_idle(loop):
    big = MetadataResponse(cluster_id="x" * 30_000)
    broker = Broker(loop, lambda request: request.reply(big), idle_ms_max=1)
    peer = broker.connect(receive_buffer=4096)
    peer.send_until_blocked(broker.writer.frame(MetadataRequest(topics=[]), 2) * 100)
    loop.until(lambda: broker.server.connection_count == 0)
    assert broker.counters.connections_idle_closed == 1


def test_close_answers_the_requests_that_arrived_and_accepts_no_further_ones(loop):
    broker = Broker(loop)
    busy, idle = broker.connect(), broker.connect()
    busy.send(broker.writer.frame(heartbeat("1"), 1) + broker.writer.frame(heartbeat("2"), 1))
    request = broker.next_request()
    closed = broker.server.close()
    idle.wait_for_close()
    loop.turns()
    assert not closed.done
    # Sent too late.
    busy.send(broker.writer.frame(heartbeat("3"), 1))
    answer_with_group(request)
    answer_with_group(broker.next_request())
    loop.wait(closed)
    busy.wait_for_close()
    for number in (1, 2):
        response = decode_response(ApiKey.HEARTBEAT, 1, busy.receive_frame())
        assert response.throttle_time_ms == number
    assert len(broker.seen) == 2
    with pytest.raises(ConnectionRefusedError):
        connect(loop, broker.port)


def test_close_does_not_wait_forever(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat("1"), 1))
    broker.next_request()
    loop.wait(broker.server.close(drain_ms=1))
    peer.wait_for_close()


def test_a_listener_that_cannot_be_bound_leaves_none_behind(loop):
    taken, first = Broker(loop), Endpoint("127.0.0.1", free_port(), "FIRST")
    server = SocketServer(
        loop.runtime,
        [first, Endpoint("127.0.0.1", taken.port, "SECOND")],
        SERVED,
        print,
    )
    with pytest.raises(KctlError, match=f"cannot listen on 127.0.0.1:{taken.port}"):
        server.start()
    with pytest.raises(ConnectionRefusedError):
        connect(loop, first.port)


def test_requests_of_one_read_share_turns_with_others(loop):
    """A peer that sends many requests at once is served some, then others have their turn."""
    order = []
    # Every handled request uses up the whole turn.
    loop.scheduler._now = lambda: loop.scheduler._turn_began + len(order)

    def handle(request):
        order.append(request.body.group_id)
        request.reply(HeartbeatResponse())

    broker = Broker(loop, handle)
    greedy, other = broker.connect(), broker.connect()
    for peer, name in ((greedy, "greedy"), (other, "other")):
        frames = [
            broker.writer.frame(heartbeat(name), 1) for _ in range(5 if peer is greedy else 1)
        ]
        peer.send(b"".join(frames))
    for _ in range(5):
        greedy.receive_frame()
    other.receive_frame()
    assert sorted(order) == ["greedy"] * 5 + ["other"]
    assert order.index("other") <= 2


def test_requests_that_wait_for_their_turn_are_answered_after_a_half_close(loop):
    count = 0
    loop.scheduler._now = lambda: loop.scheduler._turn_began + count

    def handle(request):
        nonlocal count
        count += 1
        request.reply(HeartbeatResponse())

    broker = Broker(loop, handle)
    peer = broker.connect()
    peer.send(b"".join(broker.writer.frame(heartbeat(), 1) for _ in range(5)))
    peer.socket.shutdown(socket.SHUT_WR)
    for _ in range(5):
        peer.receive_frame()
    peer.wait_for_close()
    assert count == 5
