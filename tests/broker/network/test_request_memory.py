"""RequestMemory over loopback sockets: large requests wait, small ones do not, none for ever."""

import struct

from kctl.broker.network import request_memory
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.produce import ProduceResponse
from tests.broker.network.test_server import Broker, answer_with_group, heartbeat
from tests.support.raw_requests import decode_response, produce_request


def test_over_the_budget_of_request_bytes_one_large_request_is_taken_at_a_time(loop):
    broker = Broker(loop, queued_request_bytes_max=100_000)
    first, *others = (broker.connect() for _ in range(4))
    first.send(broker.writer.frame(produce_request(b"a" * 120_000), 7))
    within = broker.next_request()
    assert broker.counters.queued_request_bytes > 100_000
    for peer in others:
        peer.send(broker.writer.frame(produce_request(b"b" * 120_000), 7))
    # One goes on beyond the budget, and the next when it is answered.
    for _ in others:
        beyond = broker.next_request()
        loop.turns()
        assert not broker.requests
        assert broker.counters.queued_request_bytes < 300_000
        beyond.reply(ProduceResponse())
    assert broker.counters.budget_waits > 0
    within.reply(ProduceResponse())
    for peer in (first, *others):
        peer.receive_frame()
    loop.turns()
    assert broker.counters.queued_request_bytes == 0


def test_a_large_request_that_never_ends_keeps_nobody_from_small_ones(loop):
    broker = Broker(loop, answer_with_group, queued_request_bytes_max=100_000)
    slow, quick = broker.connect(), broker.connect()
    slow.send(broker.writer.frame(produce_request(b"a" * 900_000), 7)[:500_000])
    loop.until(lambda: broker.counters.queued_request_bytes > 100_000)
    for _ in range(3):
        quick.send(broker.writer.frame(heartbeat("1"), 1))
        quick.receive_frame()


def test_all_who_wait_for_the_budget_get_their_turn(loop):
    broker = Broker(loop, queued_request_bytes_max=100_000)
    big, finisher, gone, *small = (broker.connect() for _ in range(6))
    big.send(broker.writer.frame(produce_request(b"a" * 120_000), 7))
    request = broker.next_request()
    finisher.send(broker.writer.frame(produce_request(b"a" * 120_000), 7)[:50_000])
    for number, peer in enumerate([gone, *small]):
        peer.send(broker.writer.frame(produce_request(b"b" * 40_000, topic=str(number)), 7))
    # One that has finished speaking waits as patiently.
    small[-1].socket.shutdown(1)
    loop.until(lambda: broker.server.memory.waiting_count == 4)
    gone.reset()
    loop.until(lambda: broker.server.connection_count == 5)
    assert broker.server.memory.waiting_count == 3
    broker.handler = lambda it: it.reply(
        ProduceResponse(throttle_time_ms=int(it.body.topics[0].name))
    )
    request.reply(ProduceResponse())
    for number, peer in enumerate(small, start=1):
        response = decode_response(ApiKey.PRODUCE, 7, peer.receive_frame())
        assert response.throttle_time_ms == number
    small[-1].wait_for_close()


def test_half_received_requests_are_finished_one_after_the_other(loop):
    """Otherwise they could block each other for ever."""
    broker = Broker(loop, queued_request_bytes_max=200_000)
    peers = [broker.connect() for _ in range(8)]
    whole = broker.writer.frame(produce_request(b"a" * 900_000), 7)
    for peer in peers:
        peer.send(whole[:60_000])
        loop.turns(5)
    broker.handler = lambda it: it.reply(ProduceResponse())
    for peer in peers:
        peer.send(whole[60_000:])
    for peer in peers:
        peer.receive_frame()
    loop.turns()
    assert broker.counters.queued_request_bytes == 0


def test_many_slow_senders_hold_no_more_than_the_budget_and_one_request(loop):
    broker = Broker(loop, queued_request_bytes_max=1_000_000)
    peers = [broker.connect() for _ in range(20)]
    for peer in peers:
        peer.send(struct.pack(">i", 100_000_000) + bytes(900_000))
        loop.turns()
        # The finisher has at most as much again in its buffer as it sent.
        assert broker.counters.queued_request_bytes <= 1_000_000 + 2 * 1_048_576
    assert broker.server.memory.waiting_count > 10


def test_who_is_slow_while_others_wait_for_memory_is_closed(loop, monkeypatch):
    monkeypatch.setattr(request_memory, "PROGRESS_MS", 50)
    broker = Broker(loop, queued_request_bytes_max=100_000)
    slow, finisher, patient = (broker.connect() for _ in range(3))
    whole = broker.writer.frame(produce_request(b"a" * 120_000), 7)
    slow.send(whole[:110_000])
    loop.until(lambda: broker.counters.queued_request_bytes > 100_000)
    finisher.send(whole[:60_000])
    loop.turns()
    patient.send(whole)
    request = broker.next_request()
    finisher.wait_for_close()
    assert "others wait for memory" in loop.trace.warnings[-1]
    request.reply(ProduceResponse())
    patient.receive_frame()


def test_an_announced_size_is_not_allocated(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(struct.pack(">i", 100_000_000) + b"\0" * 10)
    loop.turns()
    assert 0 < broker.counters.queued_request_bytes < 1_000_000
    peer.reset()
    loop.until(lambda: broker.server.connection_count == 0)
    assert broker.counters.queued_request_bytes == 0
