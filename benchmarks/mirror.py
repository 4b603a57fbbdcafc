"""What `kctl mirror run` costs, beside MirrorMaker 2 of Apache Kafka 2.7.2.

    python -m benchmarks.mirror [--megabytes N] [--codec none|lz4] [--record-bytes N]
        [--without-mm2]

Source and target are kctl brokers, 16 partitions, batches of 16 KiB, filled before. Each mirror
copies the whole topic once into a topic of its own: `kctl mirror run --once` exactly once and at
least once, and MirrorMaker 2 (`tasks.max` 4), at least once. Figures are those of the mirror's
process: seconds from its start to the first and to the last record in the target, megabytes per
second between these two, CPU seconds, and the peak of its resident memory. On a machine that does
other things, only ratios of CPU times and memory within a run count.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kctl.admin.admin_client import AdminClient
from kctl.admin.topics import NewTopic
from kctl.mirror.raw_batches import BatchCopy
from kctl.mirror.target_writer import TargetWriter
from kctl.model import TopicPartition
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import LZ4, NONE
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support.apache_kafka import jars_of
from tests.support.kctl_process import KctlBroker

PARTITIONS = 16
BATCH_BYTES = 16 << 10
LIMIT_S = 300
TOPIC = "perf"
CODECS = {"none": NONE, "lz4": LZ4}
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kctl</groupId><artifactId>mm2</artifactId><version>1</version><dependencies>{}
</dependencies></project>"""
_JAR = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_JARS = [
    ("org.apache.kafka", "connect-mirror", "2.7.2"),
    ("org.apache.kafka", "connect-runtime", "2.7.2"),
    ("org.apache.kafka", "connect-json", "2.7.2"),
    ("org.slf4j", "slf4j-nop", "1.7.30"),
]


def show(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


class Figures(NamedTuple):
    """What one mirror took."""

    name: str
    first_s: float
    last_s: float
    cpu_s: float
    peak_mb: float


def on_cluster(broker: KctlBroker, work):  # noqa: ANN001, ANN201 - any coroutine function
    """Run `work(admin)`."""
    runtime = make_runtime(NullTrace())
    admin = AdminClient.connect(runtime, [(broker.host, broker.port)], 30_000)
    try:
        return runtime.scheduler.run_until(runtime.scheduler.spawn(work(admin)))
    finally:
        admin.close()
        runtime.scheduler.close()


def one_batch(codec: int, record_bytes: int) -> tuple[bytes, int]:
    """Return a batch of about BATCH_BYTES before compression, and its number of records."""
    builder = RecordBatchBuilder(compression_type=codec)
    count = max(BATCH_BYTES // record_bytes, 1)
    for number in range(count):
        value = os.urandom(record_bytes // 2).hex().encode()
        builder.append(timestamp=1_700_000_000_000 + number, key=None, value=value, headers=())
    return bytes(builder.build()), count


def fill(broker: KctlBroker, megabytes: int, codec: int, record_bytes: int) -> int:
    """Fill the topic of the source; return its number of records."""
    data, count = one_batch(codec, record_bytes)
    each = (megabytes << 20) // BATCH_BYTES // PARTITIONS

    async def work(admin: AdminClient) -> None:
        await admin.topics.create([NewTopic(TOPIC, PARTITIONS, 1)])
        writer = TargetWriter(admin.router, None)
        await writer.open()
        for begin in range(0, each, 32):
            copies = min(32, each - begin)
            await writer.write(
                {
                    TopicPartition(TOPIC, number): [
                        BatchCopy(bytearray(data), count) for _ in range(copies)
                    ]
                    for number in range(PARTITIONS)
                }
            )

    on_cluster(broker, work)
    return each * PARTITIONS * count


def measure(
    name: str, command: list[str], target: KctlBroker, topic: str, is_whole: Callable[[int], bool]
) -> Figures:
    """Run a mirror until the target's topic is whole, and stop it."""

    async def ends(admin: AdminClient) -> int:
        await admin.router.refresh([topic])
        numbers = admin.router.view.partitions_of(topic)
        found = await admin.offsets.latest([TopicPartition(topic, number) for number in numbers])
        return sum(max(it.offset, 0) for it in found.values())

    begin = time.monotonic()
    first_s = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while True:
            time.sleep(0.1)
            count = on_cluster(target, ends)
            elapsed_s = time.monotonic() - begin
            if count and not first_s:
                first_s = elapsed_s
            if is_whole(count):
                break
            if elapsed_s > LIMIT_S:
                show(f"{name}: only {count} records in {LIMIT_S} s")
                break
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak_kb = int(status.split("VmHWM:")[1].split()[0]) if "VmHWM:" in status else 0
        process.send_signal(signal.SIGKILL)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    peak_kb = peak_kb or usage.ru_maxrss
    return Figures(name, first_s, elapsed_s, usage.ru_utime + usage.ru_stime, peak_kb / 1024)


def kctl_command(source: KctlBroker, target: KctlBroker, name: str, *more: str) -> list[str]:
    """Return the command line of kctl's mirror into NAME-perf."""
    return [
        sys.executable, "-m", "kctl", "mirror", "run", "--source", source.address, "--target",
        target.address, "--topics", TOPIC, "--name", name, "--rename", name + "-{topic}", *more,
    ]  # fmt: skip


def mm2_command(
    source: KctlBroker,
    target: KctlBroker,
    directory: Path,
    topics: str = TOPIC,
    more: str = "",
) -> list[str]:
    """Return the command line of MirrorMaker 2 into A.perf, with `more` settings."""
    pom = _POM.format("".join(_JAR.format(*jar) for jar in _JARS))
    libs = jars_of("mirror-maker-2.7.2", pom, fetch=True)
    factors = "".join(
        f"{name}.replication.factor=1\n"
        for name in (
            "checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage",
            "status.storage", "config.storage",
        )
    )  # fmt: skip
    path = directory / "mm2.properties"
    path.write_text(
        f"clusters=A,B\nA.bootstrap.servers={source.address}\n"
        f"B.bootstrap.servers={target.address}\n"
        f"A->B.enabled=true\nA->B.topics={topics}\nB->A.enabled=false\nreplication.factor=1\n"
        f"tasks.max=4\n{factors}{more}"
    )
    return [
        "java", "-Xmx1g", "-cp", f"{libs}/*", "org.apache.kafka.connect.mirror.MirrorMaker",
        str(path),
    ]  # fmt: skip


def run_mirrors(
    megabytes: int, codec: int, record_bytes: int, *, with_mm2: bool = True
) -> list[Figures]:
    """Copy a topic with kctl exactly once and at least once, and with MirrorMaker 2; print and
    return the figures in this order."""
    with (
        tempfile.TemporaryDirectory() as home,
        KctlBroker(Path(home) / "a") as source,
        KctlBroker(Path(home) / "b") as target,
    ):
        total = fill(source, megabytes, codec, record_bytes)

        def is_whole(count: int) -> bool:
            return count >= total

        found = [
            measure(label, kctl_command(source, target, name, *more), target, f"{name}-{TOPIC}",
                    is_whole)
            for label, name, more in (
                ("kctl, exactly once", "eo", ()),
                ("kctl, at least once", "al", ("--at-least-once",)),
            )
        ]  # fmt: skip
        if with_mm2:
            command = mm2_command(source, target, Path(home))
            found.append(measure("MirrorMaker 2", command, target, f"A.{TOPIC}", is_whole))
    show(f"{megabytes} MB, {total} records of {record_bytes} bytes, codec {codec}")
    show("| | first record s | last record s | MB/s | CPU s | MB per CPU s | peak MB |")
    show("|---|---:|---:|---:|---:|---:|---:|")
    for it in found:
        speed = megabytes / max(it.last_s - it.first_s, 0.1)
        show(
            f"| {it.name} | {it.first_s:.1f} | {it.last_s:.1f} | {speed:.0f} | {it.cpu_s:.1f} |"
            f" {megabytes / it.cpu_s:.0f} | {it.peak_mb:.0f} |"
        )
    return found


def main() -> None:
    """Run the mirrors one after the other and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--codec", choices=list(CODECS), default="none")
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--without-mm2", action="store_true")
    given = parser.parse_args()
    run_mirrors(
        given.megabytes, CODECS[given.codec], given.record_bytes, with_mm2=not given.without_mm2
    )


if __name__ == "__main__":
    main()
