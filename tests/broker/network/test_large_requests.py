"""Requests with many elements are decoded in turns, before they are handled in slices."""

import socket
import struct

import pytest

from kctl.broker.network import server_connection
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.decoder_source import STRUCTS_PER_YIELD
from kctl.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.broker.network.test_server import Broker, answer_with_group, heartbeat
from tests.support.raw_requests import decode_response

VERSION = 4
PARTITIONS = [
    FetchPartition(partition=number, partition_max_bytes=1)
    for number in range(10 * STRUCTS_PER_YIELD)
]
REQUEST = FetchRequest(replica_id=-1, topics=[FetchTopic(topic="t", partitions=PARTITIONS)])


def handle(request):
    if request.api_key == ApiKey.HEARTBEAT:
        answer_with_group(request)
    else:
        request.reply(FetchResponse(throttle_time_ms=len(request.body.topics[0].partitions)))


@pytest.fixture
def parts(monkeypatch):
    """The number of parts in which requests were decoded, as a list's length."""
    parts, decoding = [], server_connection.decoding

    def counted(*arguments):
        work = decoding(*arguments)
        while True:
            parts.append(1)
            try:
                next(work)
            except StopIteration as stop:
                return stop.value
            yield

    monkeypatch.setattr(server_connection, "decoding", counted)
    return parts


def test_others_have_their_turn_while_a_large_request_is_decoded(loop, parts):
    broker = Broker(loop, handle)
    peer, other = broker.connect(), broker.connect()
    frame = broker.writer.frame(REQUEST, VERSION)
    assert len(frame) > server_connection.DECODED_AT_ONCE_BYTES_MAX
    peer.send(frame + broker.writer.frame(heartbeat("7"), 1))
    loop.until(lambda: parts)
    assert not broker.seen
    other.send(broker.writer.frame(heartbeat("8"), 1))
    assert decode_response(ApiKey.HEARTBEAT, 1, other.receive_frame()).throttle_time_ms == 8
    answer = decode_response(ApiKey.FETCH, VERSION, peer.receive_frame())
    assert answer.throttle_time_ms == len(PARTITIONS)
    assert len(parts) > len(PARTITIONS) // STRUCTS_PER_YIELD
    # The next request of the same connection comes after it.
    assert decode_response(ApiKey.HEARTBEAT, 1, peer.receive_frame()).throttle_time_ms == 7


def test_a_connection_that_is_lost_ends_the_decoding_of_its_request(loop, parts):
    broker = Broker(loop, handle)
    peer, other = broker.connect(), broker.connect()
    peer.send(broker.writer.frame(REQUEST, VERSION))
    loop.until(lambda: parts)
    # A reset: after a mere half-close the response would still be due.
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()
    loop.until(lambda: len(broker.server._connections) == 1)
    other.send(broker.writer.frame(heartbeat("8"), 1))
    assert decode_response(ApiKey.HEARTBEAT, 1, other.receive_frame()).throttle_time_ms == 8
    assert [request.api_key for request in broker.seen] == [ApiKey.HEARTBEAT]


def test_the_log_does_not_have_the_request_that_its_handler_fails_on(loop, parts):
    """It is large, and may have passwords in it."""

    def fail(_request):
        raise LookupError("handler's bug")

    broker = Broker(loop, fail)
    peer = broker.connect()
    peer.send(broker.writer.frame(REQUEST, VERSION))
    peer.wait_for_close()
    (warning,) = loop.trace.warnings
    assert len(parts) > 1
    assert "handler's bug" in warning
    assert "FetchPartition" not in warning


@pytest.mark.parametrize("cut_bytes", [10, 300_000])
def test_a_large_request_that_ends_too_early_closes_its_connection(loop, cut_bytes):
    broker = Broker(loop, handle)
    peer = broker.connect()
    frame = broker.writer.frame(REQUEST, VERSION)
    body = frame[4:-cut_bytes] if cut_bytes == 10 else frame[4:25] + b"\xff" * cut_bytes
    peer.send(len(body).to_bytes(4, "big") + body)
    peer.wait_for_close()
    assert not broker.seen
    assert broker.counters.bad_requests == 1


def test_a_large_request_that_is_refused_by_its_header_is_not_decoded(loop, parts):
    broker = Broker(loop, handle)

    def may_be_decoded(request, size):
        assert request.body is None
        assert size > 128 * 1024
        request.reply(FetchResponse(throttle_time_ms=1))
        return False

    broker.server.may_be_decoded = may_be_decoded
    peer = broker.connect()
    peer.send(broker.writer.frame(REQUEST, VERSION) + broker.writer.frame(heartbeat("7"), 1))
    assert decode_response(ApiKey.FETCH, VERSION, peer.receive_frame()).throttle_time_ms == 1
    # The connection serves its next request, which is small and decoded without a question.
    assert decode_response(ApiKey.HEARTBEAT, 1, peer.receive_frame()).throttle_time_ms == 7
    assert parts == []


def test_decoding_handling_and_encoding_are_turns_of_their_own(loop, monkeypatch):
    order = []

    def noted(name):
        function = getattr(server_connection, name)

        def work(*arguments):
            order.append(name)
            result = yield from function(*arguments)
            order.append(f"{name} ends")
            loop.scheduler.call_later(0, order.append, "others")
            return result

        monkeypatch.setattr(server_connection, name, work)

    noted("decoding")
    noted("encoding")
    monkeypatch.setattr(server_connection, "is_heavy_response", lambda *_: True)

    def handle_noted(request):
        order.append("handled")
        loop.scheduler.call_later(0, order.append, "others")
        handle(request)

    broker = Broker(loop, handle_noted)
    peer = broker.connect()
    peer.send(broker.writer.frame(REQUEST, VERSION))
    peer.receive_frame()
    after_decoding = order[order.index("decoding ends") :]
    assert after_decoding[:5] == ["decoding ends", "others", "handled", "others", "encoding"]


@pytest.mark.parametrize("ending", ["answered", "lost", "failed"])
def test_a_large_request_is_released_in_turns_however_it_ends(loop, monkeypatch, ending):
    released, requests = [], []
    releasing = server_connection.releasing

    def noted(elements):
        released.append(len(elements))
        yield from releasing(elements)
        released.append(len(elements))

    def keep(request):
        if ending == "failed":
            raise LookupError("handler's bug")
        requests.append(request)

    monkeypatch.setattr(server_connection, "releasing", noted)
    broker = Broker(loop, keep)
    peer = broker.connect()
    peer.send(broker.writer.frame(REQUEST, VERSION))
    if ending != "failed":
        loop.until(lambda: requests)
        assert released == []
        if ending == "lost":
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.socket.close()
            loop.until(lambda: not broker.server._connections)
        requests.pop().reply(FetchResponse())
    loop.until(lambda: len(released) == 2)
    # The topic and its partitions.
    assert released == [1 + len(PARTITIONS), 0]


def test_a_request_that_a_later_turn_finds_corrupt_closes_its_connection(loop):
    requests = []
    broker = Broker(loop, requests.append)
    peer = broker.connect()
    peer.send(broker.writer.frame(REQUEST, VERSION))
    loop.until(lambda: requests)
    requests.pop().fail(CorruptDataError("no such name"))
    peer.wait_for_close()
    assert broker.counters.bad_requests == 1
    assert "no such name" in " ".join(map(str, loop.trace.warnings))
