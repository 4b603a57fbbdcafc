"""What one broker would gain from several processes: a prototype, measured against its upper bound.

    python -m benchmarks.shards [--rounds 5] [--seconds 3]

The prototype: one process per shard, each accepts connections, and decides alone for the partitions
whose number modulo the number of shards is its own. It forwards requests for others over one
connection to their shard, and relays the responses. A client cannot choose its shard, so with two
shards half of all requests are forwarded. The upper bound are shards that own every partition that
they are asked for, as the brokers of `kctl serve --brokers N` do, whose clients connect to the
leader.

The load is one record a request on CONNECTIONS connections, of one client process for each shard.
Requests per second depend on the cores that the machine has left for the shards; processor time for
a request does not, so it says what more cores would give.

Not in the prototype, all of which costs more: topics, groups and transactions that several shards
share, requests for partitions of several shards, one directory, fetches, and a shard that dies.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.measures import build_load
from kctl.broker.fast_paths import fast_paths
from kctl.broker.network.connection_host import FastPath
from kctl.broker.request import RequestContext
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.framing import BufferPool, FrameBuffer, Scratch
from kctl.protocol.primitives import Buffer
from kctl.runtime.network import Transport
from kctl.testing.kafka_broker import KafkaBroker

CONNECTIONS = 16
TOPIC = "load"
CONNECT_TIMEOUT_MS = 10_000
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Post = Callable[[bytes], object]
_PRODUCE = int(ApiKey.PRODUCE).to_bytes(2, "big")
_int16_at = struct.Struct(">h").unpack_from
_int32_at = struct.Struct(">i").unpack_from
_size_of = struct.Struct(">i").pack


def partition_of(frame: Buffer) -> int:
    """The partition of a produce request with one of them and no transactional id."""
    topic = 8 + max(0, _int16_at(frame, 8)[0]) + 2 + 2 + 2 + 4 + 4
    return int(_int32_at(frame, topic + 2 + _int16_at(frame, topic)[0] + 4)[0])


class Forwarder:
    """A connection to another shard, as the Receiver of its transport: responses come in the order
    of the requests."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._frames = FrameBuffer(Scratch(), BufferPool())
        self._waiting: deque[Post] = deque()
        self.get_buffer = self._frames.get_buffer

    def forward(self, frame: Buffer, post: Post) -> None:
        self._waiting.append(post)
        self._transport.send((_size_of(len(frame)) + frame,))

    def buffer_updated(self, count: int) -> None:
        frames = self._frames
        frames.buffer_updated(count)
        while (frame := frames.next_frame()) is not None:
            self._waiting.popleft()(_size_of(len(frame)) + frame)
        if frames.buffered_bytes:
            frames.release()

    def connection_lost(self, _error: Exception | None) -> None:
        self._waiting.clear()


def sharded(own: FastPath, shard: int, forwarders: dict[int, Forwarder], shards: int) -> FastPath:
    """The fast path of Produce that forwards what belongs to other shards."""

    def answer(frame: Buffer, post: Post, context: RequestContext) -> bool:
        owner = partition_of(frame) % shards
        if owner == shard:
            return own(frame, post, context)
        forwarders[owner].forward(frame, post)
        return True

    return answer


def run_shard(shard: int, shards: int, line: Connection) -> None:
    """A shard's process: sends its port, receives those of all, and serves until the line ends."""
    with KafkaBroker(topics=[f"{TOPIC}:{max(2, shards)}"]) as broker:
        services = broker._services()  # noqa: SLF001 - a prototype that is no part of the broker
        server = broker._running().server  # noqa: SLF001
        assert server is not None
        server.fast_paths.update(fast_paths(services))
        line.send(broker.port)
        ports: list[int] = line.recv()
        forwarders: dict[int, Forwarder] = {}
        broker._call(connect_all, services, shard, ports, forwarders)  # noqa: SLF001
        if forwarders:
            own = server.fast_paths[_PRODUCE]
            server.fast_paths[_PRODUCE] = sharded(own, shard, forwarders, shards)
        line.send("ready")
        line.poll(None)


async def connect_all(
    services: Any, shard: int, ports: list[int], forwarders: dict[int, Forwarder]
) -> None:
    """Connect to all other shards."""
    for number, port in enumerate(ports):
        if number != shard:

            def attach(transport: Transport, number: int = number) -> Forwarder:
                forwarders[number] = Forwarder(transport)
                return forwarders[number]

            network = services.runtime.network
            await network.connect("127.0.0.1", port, attach, CONNECT_TIMEOUT_MS)


@contextmanager
def started(shards: int, *, forwards: bool) -> Iterator[list[tuple[int, int]]]:
    """Shards as (pid, port)."""
    context = multiprocessing.get_context("spawn")
    lines: list[Connection] = []
    processes = []
    try:
        for shard in range(shards):
            ours, theirs = context.Pipe()
            process = context.Process(target=run_shard, args=(shard, shards, theirs))
            process.start()
            lines.append(ours)
            processes.append(process)
        ports = [line.recv() for line in lines]
        for line in lines:
            line.send(ports if forwards else [])
        for line in lines:
            line.recv()
        yield [(process.pid or 0, port) for process, port in zip(processes, ports, strict=True)]
    finally:
        for line in lines:
            line.send("stop")
        for process in processes:
            process.join()


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def measured(load: Path, shards: list[tuple[int, int]], seconds: float) -> tuple[float, float]:
    """Requests per second of all shards, and microseconds of processor time for a request."""
    each = CONNECTIONS // len(shards)
    warm_up_s = 1.0
    before = sum(cpu_s(pid) for pid, _ in shards)
    clients = [
        subprocess.Popen(
            [load, "127.0.0.1", str(port), "produce", "--topic", TOPIC, "--partitions", "2",
             "--connections", str(each), "--seconds", str(seconds), "--warmup", str(warm_up_s)],
            stdout=subprocess.PIPE,
        )
        for _, port in shards
    ]  # fmt: skip
    rates = [json.loads(client.communicate()[0])["requests_per_second"] for client in clients]
    if any(client.returncode for client in clients):
        raise RuntimeError("a client of the load failed")
    share = (sum(cpu_s(pid) for pid, _ in shards) - before) / (seconds + warm_up_s)
    return sum(rates), 1e6 * share / sum(rates)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    cases = {
        "one process": (1, False),
        "two, each owns what it is asked for": (2, False),
        "two, half of the requests forwarded": (2, True),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory(prefix="kctl-shards-") as directory:
        load = build_load(Path(directory))
        for _ in range(options.rounds):
            for name, (shards, forwards) in cases.items():
                with started(shards, forwards=forwards) as running:
                    time.sleep(0.5)
                    found[name].append(measured(load, running, options.seconds))
    rows = [
        f"{os.cpu_count()} cores; medians of {options.rounds} rounds, {CONNECTIONS} connections"
    ]
    alone = statistics.median(rate for rate, _ in found["one process"])
    for name, values in found.items():
        rate = statistics.median(rate for rate, _ in values)
        cpu_us = statistics.median(cpu for _, cpu in values)
        rows.append(
            f"{name:36} {rate:>9,.0f} requests/s {rate / alone:>5.2f}"
            f" {cpu_us:>6.1f} µs of a core each"
        )
    print("\n".join(rows))  # noqa: T201 - a benchmark prints
    return 0


if __name__ == "__main__":
    sys.exit(main())
