"""Clients that speak TLS: bulk produce by librdkafka, bulk fetch, handshakes by the thousand, and
connections that stay idle."""

import os
import selectors
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

from confluent_kafka import KafkaError, Producer

from benchmarks.innocent_producer import FORK
from benchmarks.measures import Bench, Figures, Measure
from benchmarks.secured_servers import Listener
from benchmarks.servers import Server
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.serve.bad_frames import asked
from tests.support.pinger import PING

PARTITIONS = 2
# Four fit into the smaller batch. Python's share of a record's way is small.
RECORD_BYTES = 4_000
FETCHED_RECORD_BYTES = 16_384
FETCH_BYTES = 1 << 20
# Records that Python hands over at a time.
RECORDS_AT_ONCE = 100
TIMEOUT_S = 60
# How long a storm, or the opening of idle connections, may take.
OPENING_TIMEOUT_S = 120
# Handshakes under way while idle connections are opened.
OPENED_AT_ONCE = 50
# After this, a half-open connection that is still open counts as never closed.
GIVING_UP_S = 30.0
# Of the process of a storm: on a machine of two cores, its own work is not to delay others.
NICENESS = 10
RECEIVED_BYTES = 1 << 16


# --- bulk


def produce(batch_bytes: int) -> Measure:
    """Produce incompressible records with acks=1, in full batches."""

    def measure(bench: Bench, server: Server) -> Figures:
        assert isinstance(server, Listener)
        with bench.topic(server, PARTITIONS) as topic:
            producer = Producer({
                **server.client_settings(),
                "acks": 1,
                "batch.size": batch_bytes,
                "queue.buffering.max.kbytes": 64 * 1024,
                "delivery.report.only.error": True,
                "on_delivery": _raise_error,
            })  # fmt: skip
            _produce(producer, topic, bench.warm_up_s)
            cpu_s, begin = server.cpu_s(), time.perf_counter()
            size = _produce(producer, topic, bench.seconds)
            return _figures(size, time.perf_counter() - begin, server.cpu_s() - cpu_s)

    return measure


def _raise_error(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        raise RuntimeError(str(error))


def _produce(producer: Producer, topic: str, seconds: float) -> int:
    """The bytes of the values that were acknowledged."""
    value = os.urandom(RECORD_BYTES)
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        try:
            for partition in range(PARTITIONS):
                for _ in range(RECORDS_AT_ONCE):
                    producer.produce(topic, value, partition=partition)
                    count += 1
        except BufferError:
            producer.poll(0.001)
        else:
            producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("records are not acknowledged")
    return count * RECORD_BYTES


def fetch(bench: Bench, server: Server) -> Figures:
    """Read hot data again and again, 1 MiB a request, on one connection of another process, which
    decrypts and looks at nothing. librdkafka would measure its own queues: its two speeds differ by
    a factor of five."""
    assert isinstance(server, Listener)
    with bench.topic(server, PARTITIONS) as topic:
        bench.fill(server, topic, PARTITIONS, record_bytes=FETCHED_RECORD_BYTES)
        ours, theirs = FORK.Pipe()
        process = FORK.Process(
            target=_fetch, args=(theirs, server, topic, bench.warm_up_s, bench.seconds), daemon=True
        )
        process.start()
        theirs.close()
        ours.recv()
        cpu_s = server.cpu_s()
        size, seconds = ours.recv()
        cpu_s = server.cpu_s() - cpu_s
        process.join()
        return _figures(size, seconds, cpu_s)


def _fetch(
    control: Connection, server: Listener, topic: str, warm_up_s: float, seconds: float
) -> None:
    requests = [
        asked(
            FetchRequest(
                replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES,
                topics=[FetchTopic(topic=topic, partitions=[
                    FetchPartition(partition=partition, partition_max_bytes=FETCH_BYTES)
                ])],
            ), 4,
        ) for partition in range(PARTITIONS)
    ]  # fmt: skip
    peer = socket.create_connection(("127.0.0.1", server.secured_port), TIMEOUT_S)
    if server.is_tls:
        context = ssl.create_default_context(cafile=server.ca_file)
        peer = context.wrap_socket(peer, server_hostname="localhost")
    with peer:
        _fetch_for(peer, requests, warm_up_s)
        control.send(None)
        begin = time.perf_counter()
        size = _fetch_for(peer, requests, seconds)
        control.send((size, time.perf_counter() - begin))


def _fetch_for(peer: socket.socket, requests: Sequence[bytes], seconds: float) -> int:
    """The bytes of the responses."""
    buffer = memoryview(bytearray(2 * FETCH_BYTES))
    end, size, number = time.perf_counter() + seconds, 0, 0
    while time.perf_counter() < end:
        peer.sendall(requests[number % len(requests)])
        number += 1
        filled, wanted = 0, 4
        while filled < wanted:
            count = peer.recv_into(buffer[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
            if wanted == 4 <= filled:
                wanted += int.from_bytes(buffer[:4], "big")
        if filled < FETCH_BYTES // 2:
            raise RuntimeError(f"a response of {filled} bytes, not of a MiB")
        size += filled
    return size


def _figures(size: int, seconds: float, cpu_s: float) -> Figures:
    megabytes = size / 1e6
    return {
        "megabytes_per_second": megabytes / seconds,
        "cpu_ms_per_mb": 1e3 * cpu_s / (megabytes or 1.0),
    }


# --- many connections


class Opening:
    """A connection on its way to the answer to its first request."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(0)
        self.socket.connect_ex(("127.0.0.1", port))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._is_secured = False

    def start(self) -> None:
        """Go on once TCP is connected, or not: OSError."""
        if error := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        self._step()

    def receive(self) -> bool:
        """Go on with what has arrived; whether the broker has answered. OSError: it never will."""
        data = self.socket.recv(RECEIVED_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._incoming.write(data)
        return self._step()

    def _step(self) -> bool:
        try:
            if not self._is_secured:
                self._tls.do_handshake()
                self._is_secured = True
                self._tls.write(PING)
            return bool(self._tls.read(RECEIVED_BYTES))
        except ssl.SSLWantReadError:
            return False
        finally:
            # A few hundred bytes, which a new socket has room for.
            self.socket.sendall(self._outgoing.read())


class Crowd:
    """Opens connections to one TLS listener, many at once."""

    def __init__(self, port: int, ca_file: str) -> None:
        self._context = ssl.create_default_context(cafile=ca_file)
        self._port = port
        self.failures = 0

    def open(self, count: int, at_once: int) -> Iterator[socket.socket]:
        """Yield each connection as soon as the broker has answered it; failures are counted."""
        deadline = time.monotonic() + OPENING_TIMEOUT_S
        begun = 0
        with selectors.DefaultSelector() as selector:
            while begun < count or selector.get_map():
                while begun < count and len(selector.get_map()) < at_once:
                    opening = Opening(self._context, self._port)
                    selector.register(opening.socket, selectors.EVENT_WRITE, opening)
                    begun += 1
                if time.monotonic() > deadline:
                    self.failures += len(selector.get_map())
                    return
                for key, events in selector.select(1):
                    yield from self._go_on(selector, key.data, events)

    def _go_on(
        self, selector: selectors.BaseSelector, opening: Opening, events: int
    ) -> Iterator[socket.socket]:
        try:
            if events & selectors.EVENT_WRITE:
                opening.start()
                selector.modify(opening.socket, selectors.EVENT_READ, opening)
            elif opening.receive():
                selector.unregister(opening.socket)
                yield opening.socket
        except OSError:
            self.failures += 1
            selector.unregister(opening.socket)
            opening.socket.close()


def storm(port: int, ca_file: str, count: int) -> tuple[float, int]:
    """`count` new connections at once, from another process: after how many seconds the last one
    was answered, and how many failed."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=_storm, args=(theirs, port, ca_file, count), daemon=True)
    process.start()
    # Without it, the end of the process is seen as the end of the pipe.
    theirs.close()
    try:
        seconds, failures = ours.recv()
    finally:
        process.join()
    return seconds, failures


def _storm(control: Connection, port: int, ca_file: str, count: int) -> None:
    os.nice(NICENESS)
    crowd = Crowd(port, ca_file)
    begin = time.perf_counter()
    for peer in crowd.open(count, count):
        peer.close()
    control.send((time.perf_counter() - begin, crowd.failures))


@contextmanager
def idle_connections(port: int, ca_file: str, count: int) -> Iterator[int]:
    """`count` connections that were answered once, held by another process; yields how many
    failed."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=_stay_idle, args=(theirs, port, ca_file, count), daemon=True)
    process.start()
    # Without it, the end of the process is seen as the end of the pipe.
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _stay_idle(control: Connection, port: int, ca_file: str, count: int) -> None:
    crowd = Crowd(port, ca_file)
    # The broker does not notice that nothing is left of TLS on this side.
    peers = list(crowd.open(count, OPENED_AT_ONCE))
    control.send(crowd.failures)
    control.recv()
    for peer in peers:
        peer.close()


# --- connections that never complete a handshake


class HalfOpen:
    """Connections of another process that wait for the broker to give up on them: `handshakes` send
    only the first flight of a handshake, and `silent` ones send nothing."""

    def __init__(self, port: int, ca_file: str, handshakes: int, silent: int) -> None:
        self._control, theirs = FORK.Pipe()
        self._process = FORK.Process(
            target=_stay_half_open, args=(theirs, port, ca_file, handshakes, silent), daemon=True
        )
        self._process.start()
        theirs.close()
        # All of them are open.
        self._control.recv()

    def gone_after_s(self) -> float:
        """Wait until the broker has closed all; return the seconds since the last one opened, or
        infinity if some are open after GIVING_UP_S."""
        seconds: float = self._control.recv()
        self._process.join()
        return seconds


def _stay_half_open(
    control: Connection, port: int, ca_file: str, handshakes: int, silent: int
) -> None:
    os.nice(NICENESS)
    context = ssl.create_default_context(cafile=ca_file)
    with selectors.DefaultSelector() as selector:
        for number in range(handshakes + silent):
            peer = socket.create_connection(("127.0.0.1", port), OPENING_TIMEOUT_S)
            if number < handshakes:
                peer.sendall(_first_flight(context))
            peer.settimeout(0)
            selector.register(peer, selectors.EVENT_READ)
        begin = time.perf_counter()
        control.send(None)
        while selector.get_map() and time.perf_counter() < begin + GIVING_UP_S:
            for key, _ in selector.select(0.5):
                waiting = key.fileobj
                assert isinstance(waiting, socket.socket)
                try:
                    is_closed = not waiting.recv(RECEIVED_BYTES)
                except ConnectionError:
                    is_closed = True
                if is_closed:
                    selector.unregister(waiting)
                    waiting.close()
        took = time.perf_counter() - begin
        control.send(float("inf") if selector.get_map() else took)


def _first_flight(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()
