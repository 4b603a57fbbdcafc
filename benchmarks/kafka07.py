"""What a request costs `kctl serve --kafka-0.7`, beside a fetch from `kctl serve`.

    python -m benchmarks.kafka07 [--rounds N] [--requests N]

Both brokers run at once with their defaults. One blocking socket per broker sends frames that are
built beforehand, one at a time, and reads the answers without decoding them. Produce: sets of 200
messages of 1 KiB to 0.7; as nothing is answered, a request for the log's end follows the last set.
Fetch: 1 MiB per request, at 50 positions of a log in the page cache. Rounds alternate the order of
the measures, after one round that is not counted; a figure is the median of the rounds. CPU time
is that of all threads of the broker, fsync included. On a machine that does other things, only the
ratios of CPU times count; they vary, so run it again.
"""

import argparse
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.measures import make_batch
from kctl.protocol import kafka07
from kctl.protocol.connection import ClientConnection
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.protocol.schema import Message
from kctl.records.compression import GZIP, NONE, SNAPPY
from kctl.records.message07 import message_set
from kctl.records.record_batch import read_header
from tests.support.kctl_process import KctlBroker

TOPIC = "bench"
FETCH_BYTES = 1 << 20
POSITIONS = 50
LOG_BYTES = (POSITIONS + 2) * FETCH_BYTES
MESSAGES_PER_SET = 200
MESSAGE_BYTES = 1024
BATCH_BYTES = 200 * 1024
PRODUCE_VERSION = 8
FETCH_VERSION = 11
# No answer takes longer, also on a busy machine.
ANSWER_TIMEOUT_S = 60
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY}


OLD_FETCH, NEW_FETCH = "0.7: fetch of 1 MiB", "2.7: fetch of 1 MiB"


class Cost(NamedTuple):
    """What one request took, in microseconds."""

    cpu_us: float
    wall_us: float


# What measures a number of requests, by its title.
Measures = dict[str, Callable[[int], Cost]]


class Client:
    """One blocking connection, which knows frames only."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S)
        self._answer = bytearray(2 * FETCH_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        """Send a frame that has no answer, or whose answer is read later."""
        self._socket.sendall(frame)

    def ask(self, frame: bytes) -> memoryview:
        """Send a frame; return the answer without its size, until the next one."""
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> memoryview:
        view = memoryview(self._answer)[:size]
        if len(view) < size:
            raise ValueError(f"an answer of {size} bytes")
        got = 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            got += count
        return view


class Broker:
    """A broker that runs, a connection to it, and its CPU time."""

    def __init__(self, process: KctlBroker, client: Client) -> None:
        assert process.process is not None
        self._tasks = Path(f"/proc/{process.process.pid}/task")
        self.client = client

    def cpu_s(self) -> float:
        """CPU time of the threads, to the nanosecond; /proc/PID/stat counts in ticks of 10 ms."""
        found = [(task / "schedstat").read_text() for task in self._tasks.iterdir()]
        return sum(int(it.split()[0]) for it in found) / 1e9

    def cost(self, work: Callable[[], object], requests: int) -> Cost:
        """What each of the `requests` of `work` costs."""
        began, began_cpu = time.perf_counter(), self.cpu_s()
        work()
        spent, cpu = time.perf_counter() - began, self.cpu_s() - began_cpu
        return Cost(cpu / requests * 1e6, spent / requests * 1e6)


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[Broker]:
    """A broker, until the block ends."""
    with KctlBroker(directory, *arguments) as process, Client(process.port) as client:
        yield Broker(process, client)


class Kafka07:
    """The measures of Kafka 0.7's protocol."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        payload = make_batch(MESSAGE_BYTES * MESSAGES_PER_SET, NONE)
        starts = range(0, MESSAGES_PER_SET * MESSAGE_BYTES, MESSAGE_BYTES)
        payloads = [payload[it : it + MESSAGE_BYTES] for it in starts]
        self._sets = {name: message_set(payloads, codec) for name, codec in CODECS.items()}
        self._fetches = [
            kafka07.encode_request(kafka07.FetchRequest("none", 0, it * FETCH_BYTES, FETCH_BYTES))
            for it in range(POSITIONS)
        ]
        sets = LOG_BYTES // len(self._sets["none"]) + 1
        self.produce("none", sets)
        # Readers see what is flushed.
        while self._end("none") < LOG_BYTES:
            time.sleep(0.1)

    def produce(self, codec: str, count: int) -> Cost:
        """Sets of one codec, to a topic of that name."""
        frame = kafka07.encode_request(kafka07.ProduceRequest(codec, 0, self._sets[codec]))

        def work() -> None:
            for _ in range(count):
                self._broker.client.send(frame)
            self._end(codec)

        return self._broker.cost(work, count)

    def fetch(self, count: int) -> Cost:
        """Reads at changing positions."""
        return fetch(self._broker, self._fetches, count)

    def _end(self, topic: str) -> int:
        request = kafka07.OffsetsRequest(topic, 0, kafka07.LATEST_TIME, 1)
        answer = self._broker.client.ask(kafka07.encode_request(request))
        return kafka07.decode_offsets_answer(answer).offsets[0]


class Kafka27:
    """The measure of today's protocol: the same fetch."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        batch = make_batch(BATCH_BYTES, NONE)
        header = read_header(batch)
        records, step = header.record_count, len(batch)
        data = PartitionProduceData(partition_index=0, records=batch)
        frame = encoded(
            ProduceRequest(
                acks=1,
                timeout_ms=ANSWER_TIMEOUT_S * 1000,
                topics=[TopicProduceData(name=TOPIC, partitions=[data])],
            ),
            PRODUCE_VERSION,
        )
        for _ in range(LOG_BYTES // step + 1):
            broker.client.ask(frame)
        # Offsets are those of batches: the nearest to every mebibyte.
        self._fetches = [
            self._fetch_frame(it * FETCH_BYTES // step * records) for it in range(POSITIONS)
        ]

    def fetch(self, count: int) -> Cost:
        """Reads at changing positions."""
        return fetch(self._broker, self._fetches, count)

    def _fetch_frame(self, offset: int) -> bytes:
        partition = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        )
        return encoded(request, FETCH_VERSION)


def encoded(request: Message, version: int) -> bytes:
    """The frame of a request; its correlation id does not matter."""
    return b"".join(ClientConnection("benchmark").send_request(request, version)[1])


def fetch(broker: Broker, frames: Sequence[bytes], count: int) -> Cost:
    """Ask `count` times for a mebibyte, which must come."""

    def work() -> None:
        for number in range(count):
            size = len(broker.client.ask(frames[number % len(frames)]))
            if size < FETCH_BYTES:
                raise ValueError(f"a fetch answered with {size} bytes")

    return broker.cost(work, count)


def compare(rounds: int, requests: int) -> None:
    """Measure, and write a table."""
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory) / "old", "--kafka-0.7", "--no-zookeeper") as old_broker,
        running(Path(directory) / "new", "--seed-topic", f"{TOPIC}:1") as new_broker,
    ):
        old, new = Kafka07(old_broker), Kafka27(new_broker)
        fetches: Measures = {OLD_FETCH: old.fetch, NEW_FETCH: new.fetch}
        produces: Measures = {
            f"0.7: produce 200 x 1 KiB, {codec}": partial(old.produce, codec) for codec in CODECS
        }
        # Apart from each other: what was produced is still being written for a while.
        report(in_rounds(fetches, rounds, requests) | in_rounds(produces, rounds, requests))


def in_rounds(measures: Measures, rounds: int, requests: int) -> dict[str, list[Cost]]:
    """Measure each several times, with alternating order; the first round does not count."""
    found: dict[str, list[Cost]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name in measures if number % 2 else reversed(measures):
            cost = measures[name](requests)
            if number:
                found[name].append(cost)
    return found


def report(found: dict[str, list[Cost]]) -> None:
    """Write the medians, and how 0.7's fetch compares."""
    lines = ["| | CPU of the broker, us | wall, us |", "|---|---:|---:|"]
    for name, costs in found.items():
        cpu, wall = (statistics.median(it) for it in zip(*costs, strict=True))
        lines.append(f"| {name} | {cpu:,.0f} | {wall:,.0f} |")
    pairs = zip(found[OLD_FETCH], found[NEW_FETCH], strict=True)
    ratios = [(old.cpu_us / new.cpu_us, old.wall_us / new.wall_us) for old, new in pairs]
    cpu, wall = (statistics.median(it) for it in zip(*ratios, strict=True))
    lines.append(f"| fetch, 0.7 / 2.7 | {cpu:.2f} | {wall:.2f} |")
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    """Run as the module's docstring says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=100, help="of each kind, per round")
    arguments = parser.parse_args()
    compare(arguments.rounds, arguments.requests)


if __name__ == "__main__":
    main()
