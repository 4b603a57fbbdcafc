"""RealNetwork and RealTransport over loopback sockets."""

import errno
import os
import resource
import socket

import pytest

from kctl.errors import KctlError, StorageError, TimedOutError, UnreachableError
from kctl.runtime.disk import FileSlice
from kctl.runtime.real.loop import SENDS_TOGETHER
from kctl.runtime.real.poller import READABLE, SelectorPoller
from kctl.runtime.real.transport import INLINE_BYTES, QUANTUM_BYTES
from tests.support.real_loop import connect


class Recorder:
    """A Receiver that records its calls."""

    def __init__(self, transport):
        self.transport = transport
        self.buffer = memoryview(bytearray(1 << 16))
        self.data = bytearray()
        self.chunks = []
        self.lost = []

    def get_buffer(self):
        return self.buffer

    def buffer_updated(self, count):
        self.data += self.buffer[:count]
        self.chunks.append(count)

    def connection_lost(self, error):
        self.lost.append(error)


class PoliteRecorder(Recorder):
    """A recorder that answers once the peer has closed its side."""

    def eof_received(self):
        self.transport.send([b"goodbye"])
        self.transport.close()
        return True


class Server:
    def __init__(self, loop, receiver=Recorder, **options):
        self.connections = []

        def accept(transport):
            self.connections.append(receiver(transport))
            return self.connections[-1]

        self.listener = loop.runtime.network.listen("127.0.0.1", 0, accept, **options)
        self.loop = loop

    def connect(self, **options):
        """(peer's socket, our Receiver)."""
        before = len(self.connections)
        peer = connect(self.loop, self.listener.port, **options)
        self.loop.until(lambda: len(self.connections) > before)
        return peer, self.connections[-1]


@pytest.fixture
def server(loop):
    server = Server(loop)
    yield server
    server.listener.close()


def pattern(size):
    return bytes(range(256)) * (size // 256) + bytes(range(size % 256))


class FileOnDisk:
    """The part of a DiskFile that a FileSlice uses; fileno() is -1 where sendfile is missing."""

    def __init__(self, path, data, *, has_descriptor=True):
        path.write_bytes(data)
        self.path = str(path)
        self.fd = os.open(path, os.O_RDONLY)
        self.has_descriptor = has_descriptor

    def fileno(self):
        return self.fd if self.has_descriptor else -1

    def pread(self, length, position):
        return os.pread(self.fd, length, position)


def test_bytes_go_both_ways(loop, server):
    peer, ours = server.connect()
    peer.send(b"question")
    loop.until(lambda: bytes(ours.data) == b"question")
    ours.transport.send([b"answer"])
    assert peer.receive(6) == b"answer"


def test_the_peer_is_identified_by_address_and_port(server):
    peer, ours = server.connect()
    assert ours.transport.peer == peer.socket.getsockname()


def test_parts_arrive_in_order_and_whole_whatever_they_are(loop, server, tmp_path):
    data = pattern(3 * QUANTUM_BYTES + 17)
    file = FileOnDisk(tmp_path / "segment", data)
    peer, ours = server.connect()
    parts = [
        b"header",
        FileSlice(file, 5, 2 * QUANTUM_BYTES),
        b"",
        bytearray(b"between"),
        FileSlice(file, 0, 0),
        FileSlice(file, 100, 3),
        memoryview(data)[:QUANTUM_BYTES],
        b"end",
    ]
    expected = b"header" + data[5 : 5 + 2 * QUANTUM_BYTES] + b"between" + data[100:103]
    expected += data[:QUANTUM_BYTES] + b"end"
    ours.transport.send(parts)
    ours.transport.send([b"!"])
    assert peer.receive(len(expected) + 1) == expected + b"!"
    assert ours.transport.unsent_bytes() == 0


def test_a_file_without_a_descriptor_is_read_and_sent(loop, server, tmp_path):
    data = pattern(QUANTUM_BYTES + 5)
    file = FileOnDisk(tmp_path / "segment", data, has_descriptor=False)
    peer, ours = server.connect()
    ours.transport.send([b"header", FileSlice(file, 1, QUANTUM_BYTES), b"end"])
    assert peer.receive(6 + QUANTUM_BYTES + 3) == b"header" + data[1 : 1 + QUANTUM_BYTES] + b"end"


@pytest.mark.parametrize("has_descriptor", [True, False])
def test_a_file_that_ends_early_closes_the_connection(loop, server, tmp_path, has_descriptor):
    file = FileOnDisk(tmp_path / "segment", b"short", has_descriptor=has_descriptor)
    peer, ours = server.connect()
    ours.transport.send([b"header", FileSlice(file, 0, 100)])
    peer.wait_for_close()
    assert peer.received == b"headershort"
    assert "ends before" in str(ours.lost[0])


class Unreadable:
    """A file on a failed disk, and a StreamedPart of it."""

    path = "segment"

    def __len__(self):
        return 200_000

    def fileno(self):
        return -1

    def pread(self, length, position):
        raise StorageError("segment: Input/output error")

    def step(self):
        raise StorageError("segment: Input/output error")


UNREADABLE_PARTS = [FileSlice(Unreadable(), 0, 200_000), Unreadable()]


@pytest.mark.parametrize("part", UNREADABLE_PARTS, ids=["slice", "streamed"])
def test_a_part_that_cannot_be_read_closes_the_connection(loop, server, part):
    peer, ours = server.connect()
    ours.transport.send([b"header", part])
    peer.wait_for_close()
    loop.until(lambda: ours.lost)
    assert isinstance(ours.lost[0], StorageError)
    assert ours.transport.unsent_bytes() == 0


class Streamed:
    """A StreamedPart of `count` pieces, with a step without a result before each."""

    def __init__(self, piece, count, log=()):
        self.piece = piece
        self.left = 2 * count
        self.length = count * len(piece)
        self.log = log

    def __len__(self):
        return self.length

    def step(self):
        self.left -= 1
        if isinstance(self.log, list):
            self.log.append("step")
        return b"" if self.left % 2 else self.piece


@pytest.mark.parametrize("size", [10, 1_000, 3 * QUANTUM_BYTES])
def test_a_streamed_part_is_sent_as_it_is_made(loop, server, size):
    peer, ours = server.connect()
    parts = [b"header", Streamed(pattern(size), 3), pattern(100), Streamed(b"x", 2), b"end"]
    expected = b"header" + 3 * pattern(size) + pattern(100) + b"xxend"
    ours.transport.send(parts)
    assert peer.receive(len(expected)) == expected
    loop.until(lambda: not ours.transport.unsent_bytes())


def test_a_streamed_part_does_one_step_in_a_turn(loop, server):
    peer, ours = server.connect()
    log = []

    def turn():
        log.append("turn")
        loop.runtime.scheduler.call_later(0, turn)

    turn()
    ours.transport.send([Streamed(b"x", 5, log)])
    peer.receive(5)
    between = "".join(word[0] for word in log).strip("t").split("s")
    assert len(between) >= 10
    # The first step is done by `send`.
    assert all(between[2:-1])


def test_a_slow_reader_gets_everything_in_the_end(loop, server):
    data = pattern(20 * QUANTUM_BYTES)
    peer, ours = server.connect(receive_buffer=4096)
    drained = []
    ours.transport.send([data[: INLINE_BYTES // 2], data[INLINE_BYTES // 2 :]])
    ours.transport.when_sent(lambda: drained.append(ours.transport.unsent_bytes()))
    loop.turns()
    assert ours.transport.unsent_bytes() > 0
    assert drained == []
    assert peer.receive(len(data)) == data
    loop.until(lambda: drained)
    assert drained == [0]
    # No write is pending: with write interest left on, the loop would spin.
    assert ours.transport._interest == READABLE


def test_many_small_parts_behind_a_slow_reader_stay_in_order(loop, server):
    peer, ours = server.connect(receive_buffer=4096)
    expected = b"".join(b"%07d\n" % number for number in range(400_000))
    for start in range(0, 400_000, 1000):
        ours.transport.send([b"%07d\n" % number for number in range(start, start + 1000)])
    assert peer.receive(len(expected)) == expected


def test_small_answers_of_one_turn_leave_whole_and_in_the_order_of_their_making(loop, server):
    pairs = [server.connect() for _ in range(SENDS_TOGETHER + 3)]
    for number, (_, receiver) in enumerate(pairs):
        receiver.transport.send([b"small %d," % number])
        receiver.transport.send([b"again,"])
        receiver.transport.send([b"in", b" parts"])
    for number, (peer, _) in enumerate(pairs):
        wanted = b"small %d,again,in parts" % number
        assert peer.receive(len(wanted)) == wanted


def test_a_small_answer_is_dropped_with_its_connection(loop, server):
    peer, receiver = server.connect()
    receiver.transport.send([b"never"])
    receiver.transport.abort()
    peer.wait_for_close()
    assert peer.received == b""


def test_when_sent_comes_soon_if_nothing_waits(loop, server):
    _, ours = server.connect()
    called = []
    ours.transport.when_sent(lambda: called.append("now"))
    assert called == []
    loop.turns(2)
    assert called == ["now"]


def test_bulk_senders_let_small_answers_pass(loop, server, tmp_path):
    """While megabytes go to one peer, another's few bytes are there after one quantum."""
    file = FileOnDisk(tmp_path / "segment", pattern(64 * QUANTUM_BYTES))
    bulk_peer, bulk = server.connect()
    small_peer, small = server.connect()
    bulk.transport.send([FileSlice(file, 0, 64 * QUANTUM_BYTES)])
    small_peer.send(b"?")
    loop.until(lambda: small.data)
    assert bulk.transport.unsent_bytes() > 0
    assert bulk_peer.receive(64 * QUANTUM_BYTES) == pattern(64 * QUANTUM_BYTES)


def test_no_read_takes_more_than_a_quantum(loop, server):
    peer, ours = server.connect()
    ours.buffer = memoryview(bytearray(8 * QUANTUM_BYTES))
    data = pattern(16 * QUANTUM_BYTES)
    peer.send(data)
    loop.until(lambda: len(ours.data) == len(data))
    assert bytes(ours.data) == data
    assert max(ours.chunks) <= QUANTUM_BYTES


def test_a_paused_connection_hands_over_nothing_until_resumed(loop, server):
    peer, ours = server.connect()
    ours.transport.pause_reading()
    peer.send(b"later")
    loop.turns()
    assert not ours.data
    ours.transport.resume_reading()
    loop.until(lambda: bytes(ours.data) == b"later")


def test_close_sends_what_is_queued_first(loop, server):
    data = pattern(20 * QUANTUM_BYTES)
    peer, ours = server.connect(receive_buffer=4096)
    ours.transport.send([data])
    ours.transport.close()
    ours.transport.send([b"too late"])
    peer.wait_for_close()
    assert peer.received == data
    assert ours.lost == [None]


def test_abort_drops_queued_data_and_reports_once(loop, server):
    peer, ours = server.connect(receive_buffer=4096)
    ours.transport.send([bytes(20 * QUANTUM_BYTES)])
    ours.transport.abort()
    ours.transport.abort()
    assert ours.lost == []
    loop.turns(2)
    assert ours.lost == [None]
    peer.wait_for_close()
    assert len(peer.received) < 20 * QUANTUM_BYTES


def test_a_close_by_the_peer_is_reported_as_clean(loop, server):
    peer, ours = server.connect()
    peer.send(b"last words")
    peer.socket.close()
    loop.until(lambda: ours.lost)
    assert bytes(ours.data) == b"last words"
    assert ours.lost == [None]


def test_a_reset_by_the_peer_is_reported_as_an_error(loop, server):
    peer, ours = server.connect()
    peer.reset()
    loop.until(lambda: ours.lost)
    assert ours.lost[0].errno == errno.ECONNRESET


def test_a_reset_is_noticed_while_reading_is_paused(loop, server):
    peer, ours = server.connect()
    ours.transport.pause_reading()
    peer.send(b"unread")
    loop.turns()
    peer.reset()
    if isinstance(loop.scheduler._poller, SelectorPoller):
        # The transport notices only at the next read or write.
        ours.transport.resume_reading()
    loop.until(lambda: ours.lost)
    assert ours.lost[0].errno == errno.ECONNRESET


def test_half_a_close_lets_the_other_half_answer(loop):
    server = Server(loop, PoliteRecorder)
    peer, ours = server.connect()
    peer.send(b"over and out")
    peer.socket.shutdown(socket.SHUT_WR)
    peer.wait_for_close()
    assert bytes(ours.data) == b"over and out"
    assert peer.received == b"goodbye"
    server.listener.close()


def test_a_receiver_that_fails_loses_only_its_own_connection(loop):
    class Failing(Recorder):
        def buffer_updated(self, count):
            super().buffer_updated(count)
            if bytes(self.data) == b"poison":
                raise ValueError("cannot digest this")

    server = Server(loop, Failing)
    victim, theirs = server.connect()
    bystander, ours = server.connect()
    victim.send(b"poison")
    victim.wait_for_close()
    assert isinstance(theirs.lost[0], ValueError)
    assert "cannot digest this" in loop.trace.warnings[0]
    bystander.send(b"fine")
    loop.until(lambda: bytes(ours.data) == b"fine")
    server.listener.close()


def test_a_receiver_without_a_buffer_loses_its_connection(loop):
    class Full(Recorder):
        def get_buffer(self):
            raise RuntimeError("no room")

    server = Server(loop, Full)
    peer, ours = server.connect()
    peer.send(b"anything")
    peer.wait_for_close()
    assert isinstance(ours.lost[0], RuntimeError)
    assert len(loop.trace.warnings) == 1
    server.listener.close()


def test_a_refused_connection_is_closed(loop):
    listener = loop.runtime.network.listen("127.0.0.1", 0, lambda _: None)
    connect(loop, listener.port).wait_for_close()
    listener.close()


def test_a_paused_listener_leaves_connections_in_the_backlog(loop, server):
    server.listener.pause_accepting()
    connect(loop, server.listener.port)
    loop.turns()
    assert server.connections == []
    server.listener.resume_accepting()
    loop.until(lambda: len(server.connections) == 1)


def test_a_port_in_use_is_a_clear_error(loop, server):
    port = server.listener.port
    with pytest.raises(KctlError, match=f"127.0.0.1:{port}.*in use") as caught:
        loop.runtime.network.listen("127.0.0.1", port, Recorder)
    assert "another process" in caught.value.hint


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connecting_works_by_address_and_by_name(loop, server, host):
    clients = []

    def attach(transport):
        clients.append(Recorder(transport))
        return clients[0]

    future = loop.runtime.network.connect(host, server.listener.port, attach, 10_000)
    transport = loop.wait(future)
    assert transport is clients[0].transport
    transport.send([b"hello"])
    loop.until(lambda: server.connections and bytes(server.connections[0].data) == b"hello")
    transport.abort()


def test_a_port_without_listener_is_unreachable_and_named(loop, server):
    port = server.listener.port
    server.listener.close()
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port}: Connection refused"):
        loop.wait(loop.runtime.network.connect("127.0.0.1", port, Recorder, 10_000))


def test_an_unknown_host_is_unreachable(loop):
    with pytest.raises(UnreachableError, match=r"no.such.host.invalid:9092"):
        loop.wait(loop.runtime.network.connect("no.such.host.invalid", 9092, Recorder, 10_000))


def test_a_silent_host_times_out(loop):
    # A full backlog drops our SYN, as a dead host would.
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(0)
    fillers = []
    for _ in range(3):
        filler = socket.socket()
        filler.settimeout(0)
        filler.connect_ex(silent.getsockname())
        fillers.append(filler)
    with pytest.raises(TimedOutError, match="within 50 ms"):
        loop.wait(loop.runtime.network.connect(*silent.getsockname(), Recorder, 50))
    for sock in [silent, *fillers]:
        sock.close()


def test_closing_in_the_middle_of_connecting_is_heard(loop, server):
    """The owner may lose interest before it is attached."""
    seen = []

    def attach(transport):
        transport.abort()
        seen.append(Recorder(transport))
        return seen[0]

    loop.wait(loop.runtime.network.connect("127.0.0.1", server.listener.port, attach, 10_000))
    loop.until(lambda: seen[0].lost == [None])


def test_a_process_out_of_descriptors_serves_those_it_has_and_accepts_later(loop, server):
    _, before = server.connect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = connect(loop, server.listener.port)
    resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.socket.fileno(), hard))
    try:
        loop.until(lambda: loop.trace.warnings)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Cannot accept connections" in loop.trace.warnings[0]
    loop.until(lambda: len(server.connections) == 2)
    assert before.lost == []


def test_a_small_send_buffer_leaves_more_to_us(loop):
    unsent = []
    for size in (10_000, 1_000_000):
        server = Server(loop, send_buffer_bytes=size)
        _, ours = server.connect(receive_buffer=4_096)
        ours.transport.send([bytes(2_000_000)])
        loop.turns()
        unsent.append(ours.transport.unsent_bytes())
        server.listener.close()
    assert unsent[0] > unsent[1] + 500_000
