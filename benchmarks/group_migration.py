"""D3: `kctl group migrate` of many groups from ZooKeeper to Kafka, its rollback, and the same back.

    python -m benchmarks.group_migration [--groups 1000] [--partitions 100]

One `kctl serve` is both broker and ZooKeeper. Seconds of the clock and of the command's processor,
and the number of offsets that differ afterwards: 0.
"""

import argparse
import csv
import io
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kazoo.client import KazooClient

from tests.support.apache_kafka import free_port
from tests.support.kctl_process import KctlBroker


def run(broker: KctlBroker, *words: object) -> str:
    """Run a command, print what it took, and return its output; CalledProcessError if it fails."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "kctl", *map(str, words), "-b", broker.address]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    what = " ".join(map(str, words[:4])).replace(tempfile.gettempdir(), "")
    sys.stdout.write(f"{what}: {time.monotonic() - start:.1f} s, {cpu_s:.1f} s of CPU\n")
    return out


def fill(zookeeper: str, groups: int, partitions: int) -> None:
    """Commit offsets to ZooKeeper: group + partition, to find one in the wrong place."""
    client = KazooClient(zookeeper)
    client.start()
    client.ensure_path("/consumers")
    for group in range(groups):
        root = f"/consumers/g{group}"
        transaction = client.transaction()
        for path in (root, f"{root}/offsets", f"{root}/offsets/t"):
            transaction.create(path, b"")
        for partition in range(partitions):
            transaction.create(f"{root}/offsets/t/{partition}", b"%d" % (group + partition))
        assert all(isinstance(it, str) for it in transaction.commit())
    client.stop()
    client.close()


def expected(groups: int, partitions: int) -> dict[tuple[str, str, int], int]:
    """The offsets of `fill`."""
    return {
        (f"g{group}", "t", partition): group + partition
        for group in range(groups)
        for partition in range(partitions)
    }


def exported(text: str) -> dict[tuple[str, str, int], int]:
    """The offsets in a file of `kctl group export-offsets`."""
    rows = csv.reader(io.StringIO(text))
    return {(group, topic, int(number)): int(offset) for group, topic, number, offset in rows}


def main() -> None:
    """Move all groups there and back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=100)
    given = parser.parse_args()
    zookeeper = f"127.0.0.1:{free_port()}"
    wanted = expected(given.groups, given.partitions)
    with tempfile.TemporaryDirectory() as folder:
        undo, port = Path(folder) / "undo.json", zookeeper.rpartition(":")[2]
        with KctlBroker(Path(folder) / "broker", "--zookeeper-port", port) as broker:
            run(broker, "topic", "create", "t", "-p", given.partitions)
            fill(zookeeper, given.groups, given.partitions)
            there = ("--to", "kafka", "--undo-file", undo, "-y", "-o", "name")
            on = ("--zookeeper", zookeeper)
            run(broker, "group", "migrate", "g*", *there, *on)
            found = exported(run(broker, "group", "export-offsets", "g*"))
            sys.stdout.write(f"differences in Kafka: {len(wanted.items() ^ found.items())}\n")
            run(broker, "group", "migrate", "--rollback", undo, *on, "-y", "-o", "name")
            left = run(broker, "group", "list", "g*", "-o", "name").splitlines()
            sys.stdout.write(f"groups with offsets in Kafka after the rollback: {len(left)}\n")


if __name__ == "__main__":
    main()
