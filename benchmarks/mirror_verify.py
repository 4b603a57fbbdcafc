"""Measures `kctl mirror verify`, in MB of the source's log per second.

    python -m benchmarks.mirror_verify [--mb 400] [--brokers]

Each case has two partitions, compared by two processes. The cases: equal batches (what a mirror
writes that passes batches on), other batches without compression, and other batches of lz4; records
of 1 KiB and of 100 bytes. `--brokers` also compares two `kctl serve` over fetch, whose processor
time is not counted. The output is elapsed and processor time; the goal is 200 MB/s of elapsed time
on two cores, which depends on what else the machine does.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kctl.mirror.places import ClusterPlace, DirectoryPlace, Loop, Place
from kctl.mirror.verification import VerifyRequest, plan_verification, verify_partition
from kctl.records.builder import RecordBatchBuilder
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.processes import map_in_processes
from kctl.runtime.trace import NullTrace
from tests.export.log_files import write_segment
from tests.support.kctl_process import KctlBroker

PARTITIONS = 2
PROCESSES = 2
BATCH_BYTES = 64 * 1024
SEGMENT_BYTES = 256 * 1024 * 1024
LZ4 = 3
# Values are cut from this; it compresses about as well as JSON.
TEXT = os.urandom(4_000).hex().encode() * 2


def write_log(
    root: Path, records: int, value_bytes: int, batch_bytes: int, compression_type: int = 0
) -> None:
    """Write the same records to each partition of a directory, in batches of the given size."""
    count = max(1, batch_bytes // (value_bytes + 20))
    for number in range(PARTITIONS):
        segment, base, size = [], 0, 0
        for offset in range(0, records, count):
            builder = RecordBatchBuilder(base_offset=offset, compression_type=compression_type)
            for each in range(offset, min(offset + count, records)):
                at = each * 7 % 7_000
                builder.append(
                    timestamp=1_700_000_000_000 + each // 10,
                    key=b"%d" % (each % 5_000),
                    value=TEXT[at : at + value_bytes],
                )
            segment.append(bytes(builder.build()))
            size += len(segment[-1])
            if size >= SEGMENT_BYTES:
                write_segment(RealDisk(), root / f"t-{number}", base, segment)
                segment, base, size = [], builder.next_offset, 0
        if segment:
            write_segment(RealDisk(), root / f"t-{number}", base, segment)


def measure(name: str, source: Place, target: Place) -> float:
    """Compare all partitions in two processes; print the figures and return the elapsed MB/s."""
    with Loop(partial(make_runtime, NullTrace())) as loop:
        tasks = plan_verification(VerifyRequest(source, target, ("t",)), loop)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    found = list(map_in_processes(verify_partition, tasks, PROCESSES, lambda _done: None))
    elapsed = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if not all(it.is_equal for it in found):
        raise SystemExit(f"{name}: not equal")
    mb = sum(it.result.source_bytes for it in found) / 1e6
    records = sum(it.result.equal for it in found)
    sys.stdout.write(
        f"{name:34}{mb:7.0f} MB{records:10,} records  {mb / elapsed:6.0f} MB/s elapsed "
        f"({elapsed:5.2f} s){mb / cpu:7.0f} MB per s of processor\n"
    )
    return mb / elapsed


def measured_directories(root: Path, mb: int) -> Iterator[tuple[str, float]]:
    """Measure all cases on directories; yield the name and the elapsed MB/s of each."""
    for value_bytes in (1024, 100):
        records = mb * 1_000_000 // PARTITIONS // (value_bytes + 20)
        place = root / f"{value_bytes}"
        write_log(place / "source", records, value_bytes, BATCH_BYTES)
        write_log(place / "equal", records, value_bytes, BATCH_BYTES)
        write_log(place / "other", records, value_bytes, BATCH_BYTES // 3)
        write_log(place / "lz4", records, value_bytes, BATCH_BYTES // 3, LZ4)
        source = DirectoryPlace((str(place / "source"),))
        for name in ("equal", "other", "lz4"):
            text = f"{value_bytes} bytes, {name}"
            yield text, measure(text, source, DirectoryPlace((str(place / name),)))


def compare_brokers(root: Path, mb: int) -> None:
    """Measure equal records that a real client wrote to two brokers."""
    from confluent_kafka import Producer

    records = mb * 1_000_000 // 1_050
    with (
        KctlBroker(root / "a", "--seed-topic", "t:2") as source,
        KctlBroker(root / "b", "--seed-topic", "t:2") as target,
    ):
        for broker in (source, target):
            producer = Producer(
                {"bootstrap.servers": broker.address, "linger.ms": 20, "batch.size": 65536}
            )
            for number in range(records):
                at = number * 7 % 7_000
                while True:
                    try:
                        producer.produce(
                            "t", TEXT[at : at + 1024], b"%d" % number, partition=number % 2,
                            timestamp=1_700_000_000_000 + number,
                        )  # fmt: skip
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.flush(120)
        places = [
            ClusterPlace(((broker.host, broker.port),), 30_000) for broker in (source, target)
        ]
        measure("1024 bytes, two brokers", *places)


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=400, help="of each case's source")
    parser.add_argument("--brokers", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for _ in measured_directories(Path(directory), given.mb):
            pass
        if given.brokers:
            compare_brokers(Path(directory), given.mb)


if __name__ == "__main__":
    sys.exit(main())
