"""How many partitions a lone broker bears: creating them, and starting again with them.

PYTHONPATH=. python benchmarks/partitions.py [--partitions N] [--kafka]

A topic of N partitions is created and every partition gets records; then the broker starts again
after a clean stop, and after `kill -9`. A start takes from exec until Metadata names a leader for
every partition and the last one takes another record. Open files are the most that were seen.
"""

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.servers import ApacheKafka, Client, Kctl, Server, leaders, zookeeper
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.records.builder import RecordBatchBuilder

TOPIC = "many"
# Records of every partition, and bytes of each.
RECORDS = 10
RECORD_BYTES = 100
PARTITIONS_PER_REQUEST = 500
# Seconds from exec to serving, and open files: the goals of the project for 10,000 partitions.
CLEAN_START_S_MAX = 5
UNCLEAN_START_S_MAX = 10
OPEN_FILES_MAX = 2048


class Watched:
    """A broker whose open files are counted while it runs."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.open_files_max = 0
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            with contextlib.suppress(OSError, AssertionError):
                self.open_files_max = max(self.open_files_max, self.server.open_files())

    def __enter__(self) -> "Watched":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watcher.join()
        self.server.stop()


@contextmanager
def running(make: Callable[[], Server], partitions: int) -> Iterator[tuple[Watched, float]]:
    """A broker that serves every partition, and how long that took from exec."""
    with Watched(make()) as watched:
        begin = time.perf_counter()
        watched.server.start()
        if partitions:
            with contextlib.closing(Client(watched.server.port)) as client:
                while leaders(client, TOPIC) < partitions:
                    time.sleep(0.01)
                produce(client, [partitions - 1])
        yield watched, time.perf_counter() - begin


def produce(client: Client, partitions: list[int]) -> None:
    """A batch for each partition; waits until all are taken."""
    builder = RecordBatchBuilder()
    for number in range(RECORDS):
        builder.append(timestamp=1_600_000_000_000 + number, key=None, value=bytes(RECORD_BYTES))
    batch = bytes(builder.build())
    for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        wanted = partitions[start : start + PARTITIONS_PER_REQUEST]
        while wanted:
            data = [PartitionProduceData(partition_index=index, records=batch) for index in wanted]
            request = ProduceRequest(
                acks=1, timeout_ms=60_000, topics=[TopicProduceData(name=TOPIC, partitions=data)]
            )
            answer = client.ask(request, 8)
            # Who has just been elected may not know it yet.
            wanted = [it.partition_index for it in answer.responses[0].partitions if it.error_code]


def measure(make: Callable[[], Server], partitions: int) -> None:
    """Print a line for every step."""
    every = list(range(partitions))
    with running(make, 0) as (watched, _):
        begin = time.perf_counter()
        watched.server.create_topic(TOPIC, partitions)
        show(watched, "create", time.perf_counter() - begin)
        produce_to_all(watched, every)
        begin = time.perf_counter()
        watched.server.stop()
        print(  # noqa: T201 - a benchmark prints
            f"{watched.server.title:20} {'clean stop':28} {time.perf_counter() - begin:8.2f} s",
            flush=True,
        )
    with running(make, partitions) as (watched, seconds):
        show(watched, "start after a clean stop", seconds)
        produce_to_all(watched, every)
        watched.server.kill()
    with running(make, partitions) as (watched, seconds):
        show(watched, "start after kill -9", seconds)


def produce_to_all(watched: Watched, partitions: list[int]) -> None:
    with contextlib.closing(Client(watched.server.port)) as client:
        begin = time.perf_counter()
        produce(client, partitions)
        show(watched, f"{RECORDS} records to each", time.perf_counter() - begin)


def show(watched: Watched, what: str, seconds: float) -> None:
    """One line: the step's seconds, and what the broker has used so far."""
    print(  # noqa: T201 - a benchmark prints
        f"{watched.server.title:20} {what:28} {seconds:8.2f} s {watched.server.cpu_s():8.2f} s CPU"
        f" {watched.open_files_max:7} files {watched.server.resident_mb():7.0f} MB",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka 2.7.2, too")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        measure(lambda: Kctl(directory / "kctl"), options.partitions)
        if options.kafka:
            address = stack.enter_context(zookeeper(directory / "zookeeper"))
            measure(lambda: ApacheKafka(directory / "kafka", address), options.partitions)
    print(  # noqa: T201 - a benchmark prints
        f"goals for 10,000 partitions: {CLEAN_START_S_MAX} s after a clean stop, "
        f"{UNCLEAN_START_S_MAX} s after kill -9, {OPEN_FILES_MAX} open files"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
