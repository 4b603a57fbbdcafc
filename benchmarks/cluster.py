"""What a cluster of three brokers does, kctl's beside Apache Kafka 2.7.2, in one run.

    python -m benchmarks.cluster [--rounds 1] [--only kctl] [--seconds 4]

`kctl serve --brokers 3` and three brokers of Apache Kafka on a ZooKeeper, with the same session
timeout; every topic has three replicas unless said otherwise. Gaps are the longest time between two
acknowledgements, with acks=all, that one producer has around a `kill -9`. Medians of the rounds and
their ratio.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cluster_client import ClusterClient, Prober
from benchmarks.measures import build_load
from benchmarks.three_brokers import BROKERS, ApacheCluster, Cluster, KctlCluster

SESSION_TIMEOUT_MS = 6000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "200",
}
TOPICS = 1000
PARTITIONS = 2000
MOVES = 100
# What is killed leads; after so long it must have been replaced.
GAP_MS_MAX = 60_000
SETTLE_S = 2.0

Figures = dict[str, float]
# What is measured, and the largest ratio to Apache Kafka's figure that is the goal.
GOALS = {
    "acks=all, 16 KiB batches, s/GB": 1 / 1.5,
    "acks=all, one record on 16 connections, µs": 1 / 1.5,
    "gap, leader killed, s": 1.0,
    "gap, controller and leader killed, s": 1.0,
    f"{PARTITIONS:,} partitions: broker restarted, s": 0.5,
    "1,000 preferred leaders elected, s": 0.5,
    f"{MOVES} partitions reassigned, s": 0.5,
    f"{TOPICS:,} topics created, s": 0.5,
}


def produce(load: Path, seconds: float) -> Callable[[Cluster, ClusterClient], Figures]:
    """Raw load with acks=all on partitions that one broker leads."""

    def run(port: int, *words: object) -> dict[str, float]:
        command = [load, "127.0.0.1", port, "produce", "--acks", -1, "--topic", "load", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, check=True)
        found: dict[str, float] = json.loads(done.stdout)
        return found

    def measure(cluster: Cluster, client: ClusterClient) -> Figures:
        client.create("load", [list(BROKERS)] * 4)
        port, timed = cluster.ports[BROKERS[0]], ("--seconds", seconds, "--warmup", 2)
        bulk = run(port, "--batch-bytes", 16384, "--connections", 4, "--partitions", 4, *timed)
        small = run(port, "--connections", 16, "--partitions", 4, *timed)
        return {
            "acks=all, 16 KiB batches, s/GB": 1e3 / bulk["megabytes_per_second"],
            "acks=all, one record on 16 connections, µs": 1e6 / small["requests_per_second"],
        }

    return measure


def kills(cluster: Cluster, client: ClusterClient) -> Figures:
    """The gap of a producer whose leader is killed, and of one whose leader is controller too."""
    found: Figures = {}
    for name, is_controller in (("leader", False), ("controller and leader", True)):
        controller = client.controller()
        victim = controller if is_controller else next(b for b in BROKERS if b != controller)
        others = [broker for broker in BROKERS if broker != victim]
        topic = f"gap-{int(is_controller)}"
        client.create(topic, [[victim, *others]])
        with Prober(cluster.ports, topic) as prober:
            time.sleep(SETTLE_S)
            cluster.kill_broker(victim)
            found[f"gap, {name} killed, s"] = prober.gap_ms(GAP_MS_MAX) / 1e3
        cluster.start_broker(victim)
        cluster.wait_until_ready()
        client.wait_for_isr(topic, len(BROKERS))
    return found


def restart(cluster: Cluster, client: ClusterClient) -> Figures:
    """A broker with many partitions stops and starts, then leads again what it should."""
    controller = client.controller()
    broker = next(b for b in BROKERS if b != controller)
    others = [b for b in BROKERS if b != broker]
    led = [[broker, *others]] * (PARTITIONS // 2)
    client.create("many", [*led, *[[*others, broker]] * (PARTITIONS - len(led))])
    client.wait_for_isr("many", len(BROKERS))
    begin = time.perf_counter()
    cluster.stop_broker(broker)
    cluster.start_broker(broker)
    client.wait_for_isr("many", len(BROKERS))
    restarted_s = time.perf_counter() - begin
    begin = time.perf_counter()
    client.elect_preferred("many", range(len(led)))
    client.wait_for_leader("many", range(len(led)), broker)
    return {
        f"{PARTITIONS:,} partitions: broker restarted, s": restarted_s,
        "1,000 preferred leaders elected, s": time.perf_counter() - begin,
    }


def reassign(_cluster: Cluster, client: ClusterClient) -> Figures:
    """Two replicas each, of which one moves; there are a few records."""
    first, second, third = BROKERS
    client.create("moved", [[first, second]] * MOVES)
    client.fill("moved", MOVES)
    begin = time.perf_counter()
    client.reassign("moved", {number: [second, third] for number in range(MOVES)})
    client.wait_for_moves()
    return {f"{MOVES} partitions reassigned, s": time.perf_counter() - begin}


def create(_cluster: Cluster, client: ClusterClient) -> Figures:
    """Topics of one partition, in requests of a hundred, until all are led."""
    begin = time.perf_counter()
    names = [f"topic-{number}" for number in range(TOPICS)]
    client.create_many(names)
    return {f"{TOPICS:,} topics created, s": time.perf_counter() - begin}


def run(
    kind: type[Cluster], steps: Sequence[Callable[[Cluster, ClusterClient], Figures]]
) -> Figures:
    """One round of one of them."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as directory, kind(Path(directory), SETTINGS) as cluster:
        cluster.start()
        client = ClusterClient(cluster.ports)
        for step in steps:
            found = step(cluster, client)
            for name, value in found.items():
                words = f"  {kind.title}: {name}: {value:.3f}"
                print(words, file=sys.stderr, flush=True)  # noqa: T201
            figures |= found
    return figures


def table(found: dict[type[Cluster], list[Figures]]) -> str:
    """A row for each figure."""
    kinds = list(found)
    lines = ["| | " + " | ".join(kind.title for kind in kinds) + " | ratio | goal |"]
    lines.append("|---" * (len(kinds) + 3) + "|")
    for name, goal in GOALS.items():
        medians = [statistics.median(each[name] for each in rounds) for rounds in found.values()]
        cells = " | ".join(f"{value:.2f}" for value in medians)
        ratio = f"{medians[0] / medians[-1]:.2f}" if len(medians) > 1 else ""
        lines.append(f"| {name} | {cells} | {ratio} | ≤ {goal:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each load")
    parser.add_argument("--only", choices=["kctl", "kafka"])
    options = parser.parse_args()
    kinds = {"kctl": KctlCluster, "kafka": ApacheCluster}
    chosen = [kinds[options.only]] if options.only else list(kinds.values())
    with tempfile.TemporaryDirectory() as directory:
        steps = [produce(build_load(Path(directory)), options.seconds), kills, restart, reassign]
        found = {
            kind: [run(kind, [*steps, create]) for _ in range(options.rounds)] for kind in chosen
        }
    print(table(found))  # noqa: T201


if __name__ == "__main__":
    main()
