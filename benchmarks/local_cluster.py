"""Three brokers with their metadata store: how soon they are ready, and what they take of memory.

    python -m benchmarks.local_cluster --rounds 3

`kctl serve --brokers 3` beside ZooKeeper and three brokers of Apache Kafka 2.7.2. Ready: every
broker names a controller and three brokers. Memory is the sum of all processes, pages that they
share counted once (Pss), five seconds later, idle. Rounds alternate; medians and their ratio are
printed.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.three_brokers import ApacheCluster, Cluster, KctlCluster, cpu_s, proportional_mb

GOAL = 1 / 8
IDLE_S = 5


@dataclass
class Started:
    """One cluster that was started."""

    seconds: float
    megabytes: float
    cpu_s: float


def measured(cluster: Cluster) -> Started:
    """Start it, wait until all are ready, then for quiet."""
    with cluster:
        seconds = cluster.start()
        used_s = sum(map(cpu_s, cluster.pids()))
        time.sleep(IDLE_S)
        return Started(seconds, sum(map(proportional_mb, cluster.pids())), used_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    results: dict[type[Cluster], list[Started]] = {KctlCluster: [], ApacheCluster: []}
    for _ in range(rounds):
        for kind, found in results.items():
            with tempfile.TemporaryDirectory() as directory:
                found.append(measured(kind(Path(directory))))
    for title, attribute, unit in (
        ("Three brokers with their store: ready after", "seconds", "s"),
        ("Processor time until then", "cpu_s", "s"),
        ("Resident memory, idle", "megabytes", "MB"),
    ):
        ours, theirs = (
            statistics.median(getattr(each, attribute) for each in started)
            for started in results.values()
        )
        verdict = "met" if ours / theirs <= GOAL else "not met"
        print(  # noqa: T201
            f"{title}: kctl {ours:.2f} {unit}, {ApacheCluster.title} {theirs:.2f} {unit}:"
            f" {ours / theirs:.3f} of it (goal {GOAL}: {verdict})"
        )


if __name__ == "__main__":
    main()
