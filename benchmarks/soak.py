"""Whether the memory of a broker stays flat under mixed load, for as long as wanted.

PYTHONPATH=. python -m benchmarks.soak [--seconds 3600] [--rate 400] [--directory DIRECTORY]

`kctl serve` with segments that roll and go, and at the same time: producers (idempotent, lz4,
small requests), a group whose members come and go and commit, readers too slow for what they ask,
connections that come and go, and an admin who creates, alters, describes and deletes topics.
Resident memory and open files are printed every so often. Exit status 1 with the reason when
memory or open files of the last quarter are above those of the second one (the first is for
warming up): by more than 5 % and 2 MB, or by more than 20 files.
"""

import argparse
import contextlib
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from benchmarks.servers import Kctl, Server
from kctl.protocol.connection import ClientConnection
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetRequest,
    ListOffsetTopic,
)
from kctl.protocol.schema import Message

TOPIC, PARTITIONS = "load", 6
RECORD_BYTES = 1_000
SLOW_READERS = 16
SLOW_READ_BYTES = 4_096
EARLIEST = -2
GROUP_MEMBERS = 3
SAMPLE_S = 5.0
GROWTH_MAX, GROWTH_MAX_MB, FILES_GROWTH_MAX = 1.05, 2.0, 20
SETTINGS = {
    "log.segment.bytes": "4000000",
    "log.retention.bytes": "20000000",
    "log.retention.check.interval.ms": "5000",
    "offsets.topic.num.partitions": "3",
}


class SoakedKctl(Kctl):
    """A broker whose segments roll and go."""

    def command(self) -> list[str]:
        settings = [text for item in SETTINGS.items() for text in ("-c", "=".join(item))]
        return [*super().command(), *settings, "--seed-topic", f"{TOPIC}:{PARTITIONS}"]

    def open_files(self) -> int:
        """Descriptors: files and connections."""
        assert self._process is not None
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())


class Soak:
    """The load; every part of it runs on a thread of its own until `stopping` is set."""

    def __init__(self, server: Server, rate: int) -> None:
        self.address = server.address
        self.port = server.port
        self.rate = rate
        self.stopping = threading.Event()
        self.counts = dict.fromkeys(("produced", "consumed", "joins", "slow bytes", "topics"), 0)
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def parts(self) -> list[Callable[[], None]]:
        """What is to run."""
        return [
            lambda: self.produce({"enable.idempotence": True}),
            lambda: self.produce({"compression.type": "lz4", "linger.ms": 50}),
            lambda: self.produce({"batch.num.messages": 1, "acks": 1}),
            *[self.consume] * GROUP_MEMBERS,
            *[self.read_slowly] * SLOW_READERS,
            self.connect_again_and_again,
            self.administer,
        ]

    def run(self, part: Callable[[], None]) -> None:
        """A thread: whatever ends it early is a failure."""
        try:
            part()
        finally:
            if not self.stopping.is_set():
                self.failures.append("a part of the load ended early")
                self.stopping.set()

    def count(self, name: str, number: int = 1) -> None:
        """For the summary."""
        with self._lock:
            self.counts[name] += number

    def produce(self, settings: dict[str, Any]) -> None:
        """A third of the rate, in ticks of 50 ms; a tenth goes with keys of its own."""
        producer = Producer({"bootstrap.servers": self.address, **settings})
        value, tick_s = bytes(RECORD_BYTES), 0.05
        per_tick = max(1, round(self.rate * tick_s / 3))
        while not self.stopping.wait(tick_s):
            for number in range(per_tick):
                producer.produce(TOPIC, value, key=f"key-{number % 10}")
            producer.poll(0)
            self.count("produced", per_tick)
        producer.flush(10)

    def consume(self) -> None:
        """A member of the group: stays for a while, leaves, and joins again."""
        stay_s = 20.0
        while not self.stopping.is_set():
            consumer = Consumer({
                "bootstrap.servers": self.address, "group.id": "soak",
                "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000,
            })  # fmt: skip
            consumer.subscribe([TOPIC])
            deadline = time.monotonic() + stay_s
            while time.monotonic() < deadline and not self.stopping.is_set():
                self.count("consumed", len(consumer.consume(500, 0.2)))
            consumer.close()
            self.count("joins")
            stay_s = 20.0 + (stay_s * 7) % 30

    def read_slowly(self) -> None:
        """Ask for a megabyte and take it in small pieces with pauses, again and again."""
        offset = 0
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_READ_BYTES)
            protocol = ClientConnection("slow")
            while not self.stopping.is_set():
                wanted = FetchPartition(
                    partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                )
                request = FetchRequest(
                    replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20,
                    topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
                )  # fmt: skip
                answer = self.ask_slowly(connection, protocol, request, 11)
                if answer is None:
                    return
                found = answer.responses[0].partition_responses[0]
                self.count("slow bytes", len(found.record_set or b""))
                if found.error_code:
                    # That segment went while it read: the oldest that is left.
                    oldest = ListOffsetPartition(partition_index=0, timestamp=EARLIEST)
                    where = ListOffsetRequest(
                        replica_id=-1, topics=[ListOffsetTopic(name=TOPIC, partitions=[oldest])]
                    )
                    answer = self.ask_slowly(connection, protocol, where, 4)
                    if answer is None:
                        return
                    offset = answer.topics[0].partitions[0].offset

    def ask_slowly(
        self, connection: socket.socket, protocol: ClientConnection, request: Message, version: int
    ) -> Any:
        """The answer, read piece by piece; None if it is time to stop."""
        _, sent = protocol.send_request(request, version)
        connection.sendall(b"".join(sent))
        while (event := protocol.next_event()) is None:
            if self.stopping.wait(0.02):
                return None
            count = connection.recv_into(protocol.get_buffer()[:SLOW_READ_BYTES])
            if not count:
                raise RuntimeError("a slow reader lost its connection")
            protocol.buffer_updated(count)
        return event.body

    def connect_again_and_again(self) -> None:
        """Some connections say something, others nothing."""
        while not self.stopping.wait(0.2):
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                if time.monotonic() % 1 < 0.5:
                    connection.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00")
                    connection.recv(4_096)

    def administer(self) -> None:
        """Topics come and go; groups and configs are looked at."""
        admin = AdminClient({"bootstrap.servers": self.address})
        number = 0
        while not self.stopping.wait(2):
            number += 1
            name = f"comes-and-goes-{number}"
            admin.create_topics([NewTopic(name, 3, 1)])[name].result(30)
            resource = ConfigResource("topic", name)
            admin.describe_configs([resource])[resource].result(30)
            admin.list_topics(timeout=30)
            admin.list_consumer_groups().result()
            admin.describe_consumer_groups(["soak"])["soak"].result()
            admin.delete_topics([name])[name].result(30)
            self.count("topics")


@dataclass(frozen=True)
class Sample:
    """The broker at one moment."""

    at_s: float
    resident_mb: float
    open_files: int


def watch(server: SoakedKctl, soak: Soak, seconds: float, every_s: float) -> list[Sample]:
    """Samples until the time is over or the load failed; says one now and then."""
    samples: list[Sample] = []
    begin = time.monotonic()
    next_words_s = 0.0
    while (at_s := time.monotonic() - begin) < seconds and not soak.stopping.wait(SAMPLE_S):
        samples.append(Sample(at_s, server.resident_mb(), server.open_files()))
        if at_s >= next_words_s:
            next_words_s += every_s
            it = samples[-1]
            say(f"{it.at_s:6.0f} s  {it.resident_mb:7.2f} MB  {it.open_files:4} files")
    return samples


def complaints(samples: Sequence[Sample]) -> list[str]:
    """Why the series is not flat; empty if it is."""
    quarter = len(samples) // 4
    if quarter < 3:
        return [f"{len(samples)} samples say nothing: run it for longer"]
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    found = []
    before, after = (statistics.median(it.resident_mb for it in part) for part in (second, last))
    if after > max(before * GROWTH_MAX, before + GROWTH_MAX_MB):
        found.append(f"memory is not flat: {before:.1f} MB, later {after:.1f} MB")
    before, after = (statistics.median(it.open_files for it in part) for part in (second, last))
    if after > before + FILES_GROWTH_MAX:
        found.append(f"open files are not flat: {before:.0f}, later {after:.0f}")
    return found


def slope_mb_per_hour(samples: Sequence[Sample]) -> float:
    """Of a straight line through what comes after the first quarter."""
    later = samples[len(samples) // 4 :]
    line = statistics.linear_regression([it.at_s for it in later], [it.resident_mb for it in later])
    return line.slope * 3600


def say(words: str) -> None:
    """Print progress to stderr."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> int:
    """Soak and judge."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3_600)
    parser.add_argument("--rate", type=int, default=400, help="records of 1 kB a second")
    parser.add_argument("--every", type=float, default=30, help="seconds between lines")
    parser.add_argument("--directory", help="where the broker keeps its data")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        server = SoakedKctl(directory / "kctl")
        stack.callback(server.stop)
        server.start()
        soak = Soak(server, options.rate)
        threads = [threading.Thread(target=soak.run, args=[part]) for part in soak.parts()]
        for thread in threads:
            thread.start()
        try:
            samples = watch(server, soak, options.seconds, options.every)
        finally:
            soak.stopping.set()
            for thread in threads:
                thread.join()
        cpu_s = server.cpu_s()
    failed = soak.failures or complaints(samples)
    counted = ", ".join(f"{number:,} {name}" for name, number in soak.counts.items())
    say(f"{counted}; {cpu_s:.0f} s of CPU")
    if len(samples) > 8:
        say(f"slope after the first quarter: {slope_mb_per_hour(samples):+.2f} MB an hour")
    for words in failed:
        say(words)
    say("not flat" if failed else "flat")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
