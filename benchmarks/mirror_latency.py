"""How long after its acknowledgement a record can be read in the target of a mirror, beside
MirrorMaker 2 of Apache Kafka 2.7.2.

    python -m benchmarks.mirror_latency [--seconds N] [--rate N] [--without-mm2]

One producer sends `--rate` records of 100 bytes a second, acks=all, to a topic of four partitions;
a consumer of the target with isolation.level=read_committed notes when it has each. Both are
librdkafka in this process. Latency is the time between the two, in milliseconds. Each mirror runs
alone, and has copied records for WARM_UP_S before the measurement begins.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.innocent_producer import percentile
from benchmarks.mirror import TOPIC, kctl_command, mm2_command, on_cluster, show
from kctl.admin.admin_client import AdminClient
from kctl.admin.topics import NewTopic
from tests.support.kctl_process import KctlBroker

PARTITIONS = 4
WARM_UP_S = 5.0
START_S = 60.0
PADDING = b"x" * 90


class Acknowledged:
    """When each record was acknowledged, by its number; the first one is `first`."""

    def __init__(self, source: KctlBroker, rate: int, first: int) -> None:
        self.first = self.end = first
        self.at_s: dict[int, float] = {}
        self._rate = rate
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": source.address, "linger.ms": 0, "acks": "all", "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _note(self, error: object, message: Message) -> None:
        if error is None:
            self.at_s[int(message.key() or b"0")] = time.monotonic()

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._stop.is_set():
            due = self.first + int((time.monotonic() - begin) * self._rate)
            while self.end < due:
                self._producer.produce(
                    TOPIC, PADDING, b"%010d" % self.end, self.end % PARTITIONS,
                    on_delivery=self._note,
                )  # fmt: skip
                self.end += 1
            self._producer.poll(0.0005)

    def stop(self) -> None:
        """Stop sending and wait until what was sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)


def latencies(  # noqa: ANN201 - (sorted milliseconds, of how many)
    acknowledged: Acknowledged, target: KctlBroker, topic: str, seconds: float
):
    """Read the target until records have been copied for `seconds` after the warm-up."""
    consumer = Consumer(
        {"bootstrap.servers": target.address, "group.id": "latency", "fetch.wait.max.ms": 100,
         "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[float] = []
    deadline, begin = time.monotonic() + START_S, 0.0
    while not begin or time.monotonic() < begin + WARM_UP_S + seconds:
        message = consumer.poll(0.1)
        now = time.monotonic()
        if message is None or message.error():
            if not begin and now > deadline:
                raise RuntimeError(f"nothing was copied to {topic} within {START_S:.0f} s")
            continue
        number = int(message.key() or b"0")
        if number < acknowledged.first:
            # Of a mirror that was measured before.
            continue
        begin = begin or now
        acked_s = acknowledged.at_s.get(number)
        if now > begin + WARM_UP_S:
            # The consumer may be ahead of the callback.
            found.append(0.0 if acked_s is None else max(0.0, now - acked_s) * 1e3)
    consumer.close()
    return sorted(found)


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    """A mirror in the background."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def measured_latencies(
    seconds: float, rate: int, *, with_mm2: bool = True
) -> Iterator[tuple[str, list[float]]]:
    """Measure one mirror after the other; yield its name and its sorted latencies."""
    with (
        tempfile.TemporaryDirectory() as home,
        KctlBroker(Path(home) / "a") as source,
        KctlBroker(Path(home) / "b") as target,
    ):

        async def create(admin: AdminClient) -> None:
            await admin.topics.create([NewTopic(TOPIC, PARTITIONS, 1)])

        on_cluster(source, create)
        mirrors = [
            ("kctl, exactly once", f"eo-{TOPIC}", kctl_command(source, target, "eo")),
            ("kctl, at least once", f"al-{TOPIC}",
             kctl_command(source, target, "al", "--at-least-once")),
        ]  # fmt: skip
        if with_mm2:
            command = mm2_command(source, target, Path(home))
            mirrors.append(("MirrorMaker 2", f"A.{TOPIC}", command))
        first = 0
        for name, topic, command in mirrors:
            acknowledged = Acknowledged(source, rate, first)
            with running(command):
                found = latencies(acknowledged, target, topic, seconds)
            acknowledged.stop()
            first = acknowledged.end
            yield name, found


def main() -> int:
    """Measure each mirror and print a row for it."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--without-mm2", action="store_true")
    given = parser.parse_args()
    show("| | records | p50 ms | p99 ms | worst ms |")
    show("|---|--:|--:|--:|--:|")
    measured = measured_latencies(given.seconds, given.rate, with_mm2=not given.without_mm2)
    for name, found in measured:
        p50, p99 = percentile(found, 50), percentile(found, 99)
        show(f"| {name} | {len(found):,} | {p50:.1f} | {p99:.1f} | {found[-1]:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
