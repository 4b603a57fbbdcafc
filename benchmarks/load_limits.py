"""Many connections at once: what they cost, and what an active producer notices of them.

PYTHONPATH=. python benchmarks/load_limits.py [--connections N] [--consumers N]

It starts a `kctl serve` of its own. Idle connections are opened by several processes from several
addresses of 127/8, as a process may have no more files than the broker; then consumers fetch with
a wait of 500 ms, again and again. A pinger of its own process produces one record after the other.
RLIMIT_NOFILE must allow the connections and some files of the broker.
"""

import argparse
import multiprocessing
import os
import resource
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.serve import bad_frames
from tests.support.heavy_requests import produced
from tests.support.kctl_process import KctlBroker
from tests.support.pinger import Memory, Pinger

OPENERS = 4
CONNECTIONS, CONSUMERS = 10_000, 1_000
FETCH_WAIT_MS = 500
IDLE_S = 5.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# The goals of the project.
OPENED_S_MAX, KB_EACH_MAX, WAIT_MS_MAX, CONSUMERS_CPU_MAX = 5.0, 3.0, 100.0, 25.0


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--consumers", type=int, default=CONSUMERS)
    options = parser.parse_args(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    missed = 0
    with tempfile.TemporaryDirectory() as directory, KctlBroker(Path(directory)) as broker:
        bad_frames.visible(broker.address, bad_frames.TOPIC_CREATION)
        with Pinger(broker.address, produced(bytes(bad_frames.batch()))) as pinger:
            time.sleep(1)
            print(f"{'':56} {'measured':>10} {'goal':>8}")  # noqa: T201 - a benchmark prints
            missed += _row("longest produce, nobody else, ms", pinger.worst_ms(), WAIT_MS_MAX)
            missed += _idle_connections(broker, pinger, options.connections)
            missed += _consumers(broker, pinger, options.consumers)
        if broker.errors:
            print(broker.errors[-2000:], file=sys.stderr)  # noqa: T201
    return 1 if missed else 0


def _row(what: str, measured: float, goal: float) -> bool:
    is_missed = measured > goal
    print(f"{what:56} {measured:10.2f} {goal:8.1f}{'  missed' * is_missed}")  # noqa: T201
    return is_missed


def _idle_connections(broker: KctlBroker, pinger: Pinger, count: int) -> int:
    assert broker.process is not None
    memory = Memory(broker.process.pid)
    with _Openers(broker.port, count) as openers:
        missed = _row(f"{count:,} connections opened, s", openers.seconds, OPENED_S_MAX)
        missed += _row("longest produce meanwhile, ms", pinger.worst_ms(), WAIT_MS_MAX)
        missed += _row("memory for each, kB", memory.growth() / count / 1e3, KB_EACH_MAX)
        cpu_s = _cpu_s(broker)
        time.sleep(IDLE_S)
        percent = 100 * (_cpu_s(broker) - cpu_s) / IDLE_S
        missed += _row("longest produce beside them, ms", pinger.worst_ms(), WAIT_MS_MAX)
        print(f"{'processor with them and the producer, %':56} {percent:10.2f}")  # noqa: T201
    time.sleep(1)
    return missed + _row("longest produce while they close, ms", pinger.worst_ms(), WAIT_MS_MAX)


class _Openers:
    """Processes that open connections, answer once all can be used, and keep them open."""

    def __init__(self, port: int, count: int) -> None:
        self._stop = multiprocessing.Event()
        ready: multiprocessing.Queue[int] = multiprocessing.Queue()
        begin = time.perf_counter()
        self._processes = [
            multiprocessing.Process(
                target=_keep_open, args=(port, count // OPENERS, number, ready, self._stop)
            )
            for number in range(OPENERS)
        ]
        for process in self._processes:
            process.start()
        for _ in self._processes:
            ready.get(timeout=120)
        self.seconds = time.perf_counter() - begin

    def __enter__(self) -> "_Openers":
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for process in self._processes:
            process.join()


def _keep_open(port: int, count: int, number: int, ready: object, stop: object) -> None:
    peers = []
    for _ in range(count):
        peer = socket.socket()
        peer.bind((f"127.0.1.{number + 1}", 0))
        peer.connect(("127.0.0.1", port))
        peers.append(peer)
    # The last one is answered only when those before it were accepted.
    peers[-1].sendall(bad_frames.raw(18, 0))
    peers[-1].recv(4)
    ready.put(count)  # type: ignore[attr-defined]
    stop.wait()  # type: ignore[attr-defined]


def _consumers(broker: KctlBroker, pinger: Pinger, count: int) -> int:
    """Consumers whose partition gets nothing wait until their time is over."""
    bad_frames.visible(broker.address, bad_frames.question("", bad_frames.create("quiet"), 4))
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="quiet", partitions=[part])]
    message = FetchRequest(
        replica_id=-1, max_wait_ms=FETCH_WAIT_MS, min_bytes=1, topics=topics, max_bytes=1 << 20
    )
    ask = bad_frames.asked(message, 4)
    with selectors.DefaultSelector() as selector:
        peers = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(count)]
        for number, peer in enumerate(peers):
            selector.register(peer, selectors.EVENT_READ)
            peer.sendall(ask)
            if number % 20 == 0:
                # They come one after the other, as consumers do.
                time.sleep(FETCH_WAIT_MS / 1000 / (count / 20))
        pinger.worst_ms()
        cpu_s, end, answers = _cpu_s(broker), time.monotonic() + IDLE_S, 0
        while time.monotonic() < end:
            for key, _ in selector.select(0.1):
                peer = key.fileobj
                assert isinstance(peer, socket.socket)
                peer.recv(65_536)
                peer.sendall(ask)
                answers += 1
        cpu_s = _cpu_s(broker) - cpu_s
        for peer in peers:
            peer.close()
    with_pinger = 100 * cpu_s / IDLE_S
    begin = _cpu_s(broker)
    time.sleep(IDLE_S)
    alone = 100 * (_cpu_s(broker) - begin) / IDLE_S
    missed = _row(f"longest produce beside {count:,} consumers, ms", pinger.worst_ms(), WAIT_MS_MAX)
    print(f"{'their answers a second':56} {answers / IDLE_S:10.2f}")  # noqa: T201
    return missed + _row("processor for them, %", with_pinger - alone, CONSUMERS_CPU_MAX)


def _cpu_s(broker: KctlBroker) -> float:
    """Processor time of the broker so far."""
    assert broker.process is not None
    stat = Path(f"/proc/{broker.process.pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
