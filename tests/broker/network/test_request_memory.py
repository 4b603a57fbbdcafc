"""RequestMemory over loopback sockets: large requests wait, small ones do not, none forever."""

import struct

import pytest

from kctl.broker.network import request_memory
from kctl.broker.network.counters import NetworkCounters
from kctl.broker.network.request_memory import RequestMemory
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.framing import SIZE_BYTES
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from kctl.protocol.messages.produce import ProduceResponse
from tests.broker.network.test_server import Broker, answer_with_group, heartbeat
from tests.support.builds import needs_sources
from tests.support.raw_requests import decode_response, produce_request
from tests.support.virtual_runtime import VirtualClock, VirtualScheduler

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Disable the limits on slow peers, for slow machines; tests of slow peers set them again."""
    monkeypatch.setattr(request_memory, "PROGRESS_MS", 60_000)
    monkeypatch.setattr(request_memory, "LOOK_MS", 60_000)


def answer_produce(request):
    request.reply(ProduceResponse())


def test_over_the_budget_of_request_bytes_one_large_request_is_taken_at_a_time(loop):
    broker = Broker(loop, queued_request_bytes_max=100_000)
    first, *others = (broker.connect() for _ in range(4))
    first.send(broker.writer.frame(produce_request(b"a" * 120_000), 7))
    within = broker.next_request()
    assert broker.counters.queued_request_bytes > 100_000
    for peer in others:
        peer.send(broker.writer.frame(produce_request(b"b" * 120_000), 7))
    # One request continues beyond the budget, the next one after its response.
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


@needs_sources
def test_unfinished_small_requests_share_a_limit(loop, monkeypatch):
    """10,000 connections with 32 KiB of one each held 320 MiB."""
    monkeypatch.setattr(request_memory, "UNFINISHED_SMALL_BYTES_MAX", 10_000)
    broker = Broker(loop, answer_produce)
    frame = broker.writer.frame(produce_request(b"a" * 8_000), 7)
    peers = []
    for _ in range(5):
        peer = broker.connect()
        before = broker.counters.bytes_in
        peer.send(frame[:3_000])
        loop.until(lambda before=before: broker.counters.bytes_in == before + 3_000)
        peers.append(peer)
    for peer in peers[:2]:
        peer.wait_for_close()
    for peer in peers[2:]:
        peer.send(frame[3_000:])
        peer.receive_frame()
    assert broker.counters.bad_requests == 2


def test_complete_small_requests_do_not_count_as_unfinished(loop, monkeypatch):
    monkeypatch.setattr(request_memory, "UNFINISHED_SMALL_BYTES_MAX", 10_000)
    broker = Broker(loop)
    frame = broker.writer.frame(produce_request(b"a" * 8_000), 7)
    peers = [broker.connect() for _ in range(5)]
    for peer in peers:
        before = broker.counters.bytes_in
        peer.send(frame[:3_000])
        loop.until(lambda before=before: broker.counters.bytes_in == before + 3_000)
        peer.send(frame[3_000:])
        broker.next_request().reply(ProduceResponse())
        peer.receive_frame()
    # Waiting for responses, and large.
    for peer in peers:
        peer.send(frame)
    large = broker.connect()
    large.send(broker.writer.frame(produce_request(b"a" * 80_000), 7)[:50_000])
    loop.until(lambda: len(broker.requests) == 5)
    peers[0].send(frame[:100])
    loop.turns()
    for _ in peers:
        broker.next_request().reply(ProduceResponse())
    for peer in peers:
        peer.receive_frame()
    assert broker.counters.bad_requests == 0


def test_an_unfinished_large_request_does_not_block_small_ones(loop):
    broker = Broker(loop, answer_with_group, queued_request_bytes_max=100_000)
    slow, quick = broker.connect(), broker.connect()
    slow.send(broker.writer.frame(produce_request(b"a" * 900_000), 7)[:500_000])
    loop.until(lambda: broker.counters.queued_request_bytes > 100_000)
    for _ in range(3):
        quick.send(broker.writer.frame(heartbeat("1"), 1))
        quick.receive_frame()


def test_all_connections_that_wait_for_the_budget_get_their_turn(loop):
    broker = Broker(loop, queued_request_bytes_max=100_000)
    big, finisher, gone, *small = (broker.connect() for _ in range(6))
    big.send(broker.writer.frame(produce_request(b"a" * 120_000), 7))
    request = broker.next_request()
    finisher.send(broker.writer.frame(produce_request(b"a" * 120_000), 7)[:50_000])
    for number, peer in enumerate([gone, *small]):
        peer.send(broker.writer.frame(produce_request(b"b" * 40_000, topic=str(number)), 7))
    # A connection with a complete request waits in the same way.
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


def test_half_received_requests_are_finished_in_turn(loop):
    """Otherwise they could block each other forever."""
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


def test_a_slow_connection_is_closed_while_others_wait_for_memory(loop, monkeypatch):
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


def test_stalled_large_requests_leave_room_for_medium_ones(loop):
    """40 half-sent requests blocked a produce request of 200 kB forever."""
    broker = Broker(loop, answer_produce, queued_request_bytes_max=8 * MIB)
    for _ in range(40):
        peer = broker.connect()
        peer.send(struct.pack(">i", 100 * MIB) + bytes(MIB))
        loop.turns(5)
    assert broker.server.memory.waiting_count > 10
    innocent = broker.connect()
    for _ in range(3):
        innocent.send(broker.writer.frame(produce_request(b"a" * 200_000), 7))
        innocent.receive_frame()


@pytest.mark.parametrize("size", [100 * MIB, 900_000])
def test_all_stalled_connections_are_closed_in_one_sweep(loop, monkeypatch, size):
    monkeypatch.setattr(request_memory, "PROGRESS_MS", 100)
    monkeypatch.setattr(request_memory, "LOOK_MS", 20)
    broker = Broker(loop, answer_produce, queued_request_bytes_max=4 * MIB)
    still = [broker.connect() for _ in range(12)]
    for peer in still:
        # Their buffers are not full, so none of them waits in line.
        peer.send(struct.pack(">i", size) + bytes(600_000))
        loop.turns(5)
    innocent = broker.connect()
    innocent.send(broker.writer.frame(produce_request(b"a" * 950_000), 7))
    innocent.receive_frame()
    # The others of the twelve are closed only if they are still in the way then.
    for peer in still[:4]:
        peer.wait_for_close()
    assert "others wait for memory" in loop.trace.warnings[-1]


class Sender:
    """A connection that requests memory whenever it is resumed, and sends nothing."""

    announced_bytes = 100 * MIB
    received_bytes = MIB
    unfinished_small_bytes = 0
    has_unanswered_request = False

    def __init__(self, memory):
        self.memory = memory
        self.evictions = []

    def resume(self):
        self.memory.grant(self)

    def evict(self, reason):
        self.evictions.append(reason)
        self.memory.forget(self)


def test_finishers_that_waited_and_send_nothing_are_closed_at_the_first_look(monkeypatch):
    monkeypatch.setattr(request_memory, "LOOK_MS", 100)
    scheduler = VirtualScheduler(VirtualClock())
    counters = NetworkCounters()
    memory = RequestMemory(scheduler, counters, MIB)
    counters.queued_request_bytes = MIB
    first, *others = senders = [Sender(memory) for _ in range(12)]
    assert [memory.grant(sender) for sender in senders] == [True] + [False] * 11
    memory.forget(first)
    scheduler.advance(100 * 10)
    assert [len(sender.evictions) for sender in others] == [1] * 10 + [0]
    assert memory.waiting_count == 0


def test_an_announced_size_is_not_allocated(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(struct.pack(">i", 100_000_000) + b"\0" * 10)
    loop.turns()
    assert 0 < broker.counters.queued_request_bytes < 1_000_000
    peer.reset()
    loop.until(lambda: broker.server.connection_count == 0)
    assert broker.counters.queued_request_bytes == 0


def test_small_requests_that_wait_are_charged_until_their_responses(loop):
    """With what arrives behind them, in whole or in part, before and after."""
    broker = Broker(loop)
    peer = broker.connect()
    frame = broker.writer.frame(heartbeat("1"), 1)
    held = len(frame) - SIZE_BYTES
    charged = lambda: broker.counters.queued_request_bytes  # noqa: E731
    for part in (b"", frame, frame[:10]):
        # Alone.
        peer.send(frame)
        request = broker.next_request()
        loop.turns()
        assert charged() == held
        peer.send(part)
        loop.turns()
        assert charged() == held
        request.reply(HeartbeatResponse())
        peer.receive_frame()
        if part == frame:
            # The one behind it.
            request = broker.next_request()
            loop.turns()
            assert charged() == held
            request.reply(HeartbeatResponse())
            peer.receive_frame()
        loop.turns()
        assert charged() == (len(part) if part != frame else 0)
    peer.send(frame[10:])
    request = broker.next_request()
    loop.turns()
    assert charged() == held
    peer.reset()
    loop.until(lambda: broker.server.connection_count == 0)
    assert charged() == 0


def test_responses_to_small_requests_let_those_in_line_continue(loop):
    broker = Broker(loop, queued_request_bytes_max=100_000)
    small = [broker.connect() for _ in range(3)]
    for peer in small:
        peer.send(broker.writer.frame(produce_request(b"a" * 31_000), 7))
    requests = [broker.next_request() for _ in small]
    large = broker.writer.frame(produce_request(b"b" * 2 * MIB), 7)
    charged = broker.counters.queued_request_bytes
    finisher, waiting = broker.connect(), broker.connect()
    finisher.send(large[:5_000])
    loop.until(lambda: broker.counters.queued_request_bytes > charged)
    waiting.send(large)
    loop.until(lambda: broker.server.memory.waiting_count == 1)
    loop.turns()
    before = broker.counters.bytes_in
    for request in requests:
        request.reply(ProduceResponse())
    loop.until(lambda: broker.counters.bytes_in > before)
