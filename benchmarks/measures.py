"""What is measured of a broker, one function per group of figures.

A measure takes the Bench and a running Server and returns figures by name. Whatever it creates
is deleted again, so that one measure does not weigh on the next.
"""

import contextlib
import json
import random  # noqa: TID251 - only ever seeded
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.servers import (
    Client,
    Server,
    create_topic,
    java_tool,
    leaders,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import LZ4, NONE

Figures = dict[str, float]
Measure = Callable[["Bench", Server], Figures]

TOOL_TIMEOUT_S = 120
# Page cache that the machine gives before a broker fills it; see Bench.touch_memory.
TOUCHED_MB = 1_500
# What hot data is, and what is read again and again.
HOT_MB = 200


@dataclass
class Bench:
    """What all measures share."""

    directory: Path
    zookeeper: str
    load: Path
    # How long a load runs before it is measured, and then.
    warm_up_s: float = 1.0
    seconds: float = 3.0
    # Records of the Java tools.
    records: int = 3_000_000
    # Topics, and partitions, that are created.
    many: int = 1_000
    touched_mb: int = TOUCHED_MB
    hot_mb: int = HOT_MB
    _names: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def new_number(self) -> int:
        """Return a number that makes a name unique."""
        return next(self._names)

    def fresh(self, like: Server) -> Server:
        """Another broker of the same kind, on an empty directory, not started yet."""
        return like.fresh(self.directory / f"fresh-{self.new_number()}")

    @contextmanager
    def topic(self, server: Server, partitions: int = 1) -> Iterator[str]:
        """A topic for a while."""
        name = f"topic-{self.new_number()}"
        server.create_topic(name, partitions)
        try:
            yield name
        finally:
            server.delete_topics([name])

    def touch_memory(self) -> None:
        """Have as much page cache as a load fills, and give it back.

        On a virtual machine the first touch of a page costs up to ten times as much as writing to
        it: without this the second server would profit from pages that the first one touched.
        """
        path = self.directory / "touched"
        chunk = bytes(1 << 20)
        with path.open("wb", buffering=0) as file:
            for _ in range(self.touched_mb):
                file.write(chunk)
        path.unlink()

    def load_command(self, server: Server, mode: str, topic: str, **options: object) -> list[str]:
        """The command line of the load generator; `options` as it names them."""
        given = {"topic": topic, "seconds": self.seconds, "warmup": self.warm_up_s, **options}
        flags = [
            text
            for name, value in given.items()
            for text in (f"--{name.replace('_', '-')}", str(value))
        ]
        return [str(self.load), "127.0.0.1", str(server.port), mode, *flags]

    def run_load(self, server: Server, mode: str, topic: str, **options: object) -> Figures:
        """Run it to its end; its figures."""
        with server.connections(int(str(options.get("connections", 1)))) as fds:
            if fds:
                options["fds"] = ",".join(map(str, fds))
            command = self.load_command(server, mode, topic, **options)
            figures: Figures = json.loads(_run(command, fds=fds))
        return figures

    def run_load_counting_cpu(
        self, server: Server, mode: str, topic: str, **options: object
    ) -> Figures:
        """The same, with the broker's processor time over the whole run, warm-up included."""
        before = server.cpu_s()
        found = self.run_load(server, mode, topic, **options)
        cpu_s = server.cpu_s() - before
        share = cpu_s / (self.seconds + self.warm_up_s)
        found["cpu_percent"] = 100 * share
        found["cpu_us_per_request"] = 1e6 * share / (found["requests_per_second"] or 1.0)
        found["cpu_ms_per_mb"] = 1e3 * share / (found["megabytes_per_second"] or 1.0)
        return found

    @contextmanager
    def beside(self, server: Server, mode: str, topic: str, **options: object) -> Iterator[None]:
        """The load in the background."""
        command = self.load_command(server, mode, topic, **{**options, "seconds": 600})
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            time.sleep(self.warm_up_s)
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(command)} ended early")
            yield
        finally:
            process.kill()
            process.wait()

    def fill(self, server: Server, topic: str, partitions: int, **options: object) -> None:
        """Have `hot_mb` in `partitions`, just written."""
        filled = 0.0
        while filled < self.hot_mb:
            found = self.run_load(
                server, "produce", topic, connections=partitions, depth=2, partitions=partitions,
                batch_bytes=262_144, warmup=0, seconds=0.3, **options,
            )  # fmt: skip
            filled += found["megabytes_per_second"] * found["seconds"]


def make_batch(size: int, compression: int) -> bytes:
    """One batch of about `size` bytes as sent, of records like those of logs and events."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(500)]
    count = 1
    while True:
        rng.seed(2)
        builder = RecordBatchBuilder(compression_type=compression)
        for offset in range(count):
            value = " ".join(rng.choices(words, k=12)) + f" {rng.random()}"
            timestamp = 1_600_000_000_000 + offset
            builder.append(timestamp=timestamp, key=None, value=value.encode())
        data = bytes(builder.build())
        if len(data) >= size:
            return data
        count += max(1, count * (size - len(data)) // len(data) // 2)


def raw_produce(size: int, compression: int) -> Measure:
    """Produce batches that are ready, two connections with five requests under way each."""

    def measure(bench: Bench, server: Server) -> Figures:
        path = bench.directory / f"batch-{size}-{compression}"
        if not path.exists():
            path.write_bytes(make_batch(size, compression))
        bench.touch_memory()
        with bench.topic(server, 2) as topic:
            return bench.run_load_counting_cpu(
                server, "produce", topic,
                connections=2, depth=5, partitions=2, batch_file=path,
            )  # fmt: skip

    return measure


def small_produce(connections: int) -> Measure:
    """One record of 100 bytes a request, acks=1."""

    def measure(bench: Bench, server: Server) -> Figures:
        with bench.topic(server) as topic:
            return bench.run_load_counting_cpu(server, "produce", topic, connections=connections)

    return measure


def commits(connections: int) -> Measure:
    """One offset of one partition a request, each connection for a group of its own."""

    def measure(bench: Bench, server: Server) -> Figures:
        with bench.topic(server) as topic:
            server.wait_for_coordinators([f"load-{number}" for number in range(connections)])
            return bench.run_load_counting_cpu(server, "commit", topic, connections=connections)

    return measure


def small_produce_beside(mode: str, connections: int, **options: object) -> Measure:
    """The same on one connection while others move a lot."""

    def measure(bench: Bench, server: Server) -> Figures:
        with bench.topic(server) as topic, bench.topic(server, connections) as bulk:
            if mode == "fetch":
                bench.fill(server, bulk, connections)
            others = {"connections": connections, "partitions": connections, **options}
            with bench.beside(server, mode, bulk, **others):
                return bench.run_load(server, "produce", topic)

    return measure


def fetch(connections: int) -> Measure:
    """Read what was just written, 1 MiB a request."""

    def measure(bench: Bench, server: Server) -> Figures:
        with bench.topic(server, connections) as topic:
            bench.fill(server, topic, connections)
            return bench.run_load_counting_cpu(
                server, "fetch", topic, connections=connections, partitions=connections
            )

    return measure


def latency(bench: Bench, server: Server) -> Figures:
    """From a record's request to its arrival at a waiting consumer, one after the other."""
    with bench.topic(server) as topic:
        return bench.run_load(server, "latency", topic, pause_us=500)


def parked(bench: Bench, server: Server) -> Figures:
    """One record for 1,000 waiting consumers: first and last answer."""
    with bench.topic(server) as topic:
        return bench.run_load(server, "parked", topic, connections=1_001)


def idle(bench: Bench, server: Server) -> Figures:
    """1,000 consumers that wait for 500 ms, again and again."""
    with bench.topic(server) as topic:
        return bench.run_load_counting_cpu(server, "idle", topic, connections=1_000)


def java_clients(bench: Bench, server: Server) -> Figures:
    """Kafka's own performance tools: records of 100 bytes in, then out again."""
    bench.touch_memory()
    with bench.topic(server) as topic:
        produced = _run([
            *java_tool("org.apache.kafka.tools.ProducerPerformance"),
            "--topic", topic, "--num-records", str(bench.records), "--record-size", "100",
            "--throughput", "-1", "--producer-props", f"bootstrap.servers={server.address}",
        ]).strip().splitlines()[-1]  # fmt: skip
        consumed = _run([
            *java_tool("kafka.tools.ConsumerPerformance"),
            "--bootstrap-server", server.address, "--topic", topic,
            "--messages", str(bench.records), "--timeout", "60000",
        ]).strip().splitlines()[-1]  # fmt: skip
    return {
        "produced": float(produced.partition("(")[2].partition(" ")[0]),
        "consumed": float(consumed.split(",")[3]),
    }


def start(bench: Bench, server: Server) -> Figures:
    """From exec to the first Metadata answer on an empty directory; memory a while later."""
    broker = bench.fresh(server)
    try:
        broker.start()
        time.sleep(bench.seconds)
        return {"started_s": broker.started_s, "resident_mb": broker.resident_mb()}
    finally:
        broker.stop()


def commands(_bench: Bench, server: Server) -> Figures:
    """The command line, from exec to exit."""
    found = {}
    for name in ("list", "help"):
        begin = time.perf_counter()
        _run(server.tool(name), is_checked=name != "help")
        found[name] = time.perf_counter() - begin
    return found


def memory(_bench: Bench, server: Server) -> Figures:
    """Resident memory as the measures before have left it."""
    return {"resident_mb": server.resident_mb()}


def many_partitions(bench: Bench, server: Server) -> Figures:
    """One topic of many partitions, until all are led."""
    name = f"many-{bench.new_number()}"
    begin = time.perf_counter()
    server.create_topic(name, bench.many)
    seconds = time.perf_counter() - begin
    server.delete_topics([name])
    return {"seconds": seconds}


def many_topics(bench: Bench, server: Server) -> Figures:
    """Many topics, one after the other, until all are led."""
    prefix = f"many-{bench.new_number()}"
    names = [f"{prefix}-{number}" for number in range(bench.many)]
    with contextlib.closing(Client(server.port)) as client:
        begin = time.perf_counter()
        for name in names:
            create_topic(client, name)
        while any(leaders(client, name) < 1 for name in reversed(names)):
            time.sleep(0.005)
        seconds = time.perf_counter() - begin
    server.delete_topics(names)
    return {"seconds": seconds}


def warm_up(bench: Bench, server: Server) -> None:
    """At least 250,000 records, and every road of the broker that is measured."""
    with bench.topic(server, 4) as topic:
        records = 0.0
        while records < 250_000:
            found = bench.run_load(server, "produce", topic, connections=16, warmup=0, seconds=2)
            records += found["requests"]
        for size in (16_384, 262_144):
            bench.run_load(
                server, "produce", topic, connections=2, depth=5, batch_bytes=size, seconds=1
            )
        bench.run_load(server, "fetch", topic, connections=4, seconds=2)
        bench.run_load(server, "latency", topic, seconds=1)
        bench.run_load(server, "parked", topic, connections=101, seconds=2)


def _run(command: list[str], *, is_checked: bool = True, fds: Sequence[int] = ()) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, pass_fds=fds
    )
    if is_checked and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


def build_load(directory: Path) -> Path:
    """Compile the load generator."""
    target = directory / "load"
    source = Path(__file__).parent / "load.c"
    subprocess.run(["cc", "-O2", "-o", str(target), str(source)], check=True)
    return target


# Group -> how to measure it, and how often at most: 0 is as often as asked.
MEASURES: dict[str, tuple[Measure, int]] = {
    "start": (start, 0),
    "commands": (commands, 0),
    "raw-16k": (raw_produce(16_384, NONE), 0),
    "raw-16k-lz4": (raw_produce(16_384, LZ4), 0),
    "raw-256k": (raw_produce(262_144, NONE), 0),
    "raw-256k-lz4": (raw_produce(262_144, LZ4), 0),
    "java": (java_clients, 3),
    "fetch-1": (fetch(1), 0),
    "fetch-4": (fetch(4), 0),
    "small-1": (small_produce(1), 0),
    "small-16": (small_produce(16), 0),
    "small-100": (small_produce(100), 0),
    "commits-1": (commits(1), 0),
    "commits-16": (commits(16), 0),
    "beside-producers": (small_produce_beside("produce", 2, depth=5, batch_bytes=262_144), 0),
    "beside-readers": (small_produce_beside("fetch", 4), 0),
    "latency": (latency, 0),
    "parked": (parked, 0),
    "idle": (idle, 0),
    "memory": (memory, 1),
    "partitions": (many_partitions, 3),
    "topics": (many_topics, 2),
}
