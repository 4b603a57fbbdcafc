"""What metrics cost: a broker with and without them, scrapes beside clients, and the collector.

    python -m benchmarks.metrics [cost] [scrape] [collector] [--apache]
        [--load produce|commit|metadata|fetch]... [--sets 4] [--rounds 10] [--seconds 1.5]

cost: small requests on 16 connections, with and without --metrics-port in turn: CPU of the broker
per request, with a confidence interval (`metrics_cost`; each load takes about 4 minutes). scrape:
p99 of a client alone, and while a text of 10,000 series is read again and again. collector: `kctl
metrics serve` on 1,000 groups with 100 partitions each: the time of a round, and its memory; with
--apache on Apache Kafka 2.7.2.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import closing, nullcontext
from pathlib import Path

from benchmarks.measures import Bench, build_load, latency
from benchmarks.metrics_cost import LOADS, MeasuredKctl, costs
from benchmarks.servers import ApacheKafka, Client, Kctl, Server, free_port, zookeeper
from kctl.metrics.parse import ParsedMetrics, parse_metrics
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

GROUPS, PARTITIONS = 1_000, 100
# With 18 series for each partition, more than 10,000.
WIDE_PARTITIONS = 650
COLLECTED_TIMEOUT_S = 100


def read(port: int) -> bytes:
    """What is at /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return bytes(response.read())


# The goals.
COST_PERCENT_MAX = 2.0
P99_MS_MAX = 5.0
ROUND_S_MAX = 10.0
MEMORY_MB_MAX = 150.0


def say(text: str) -> None:
    """Print a line of results."""
    print(text, flush=True)  # noqa: T201


def judge(what: str, value: float, goal: float) -> None:
    """Print whether a figure is at most its goal."""
    verdict = "reached" if value <= goal else "MISSED"
    say(f"  {what}: {value:.2f}, goal at most {goal:g}: {verdict}")


def cost(bench: Bench, options: argparse.Namespace) -> None:
    """CPU per request, in turn with and without metrics."""
    for load in options.load or LOADS:
        found = costs(
            bench, sets=options.sets, rounds=options.rounds, seconds=options.seconds, load=load
        )
        say(
            f"{load}: {found.plain_us:.2f} us of CPU per request; with metrics {found.metered}; "
            f"two brokers without {found.null}"
        )
        slower = 100 * (1 - 1 / (1 + found.metered.median / 100))
        judge("requests/s that metrics cost, %", slower, COST_PERCENT_MAX)


def scrape(bench: Bench, _options: argparse.Namespace) -> None:
    """p99 of a client beside scrapes."""
    server = MeasuredKctl(bench.directory / "scraped")
    server.start()
    try:
        server.create_topic("wide", WIDE_PARTITIONS)
        text = read(server.metrics_port)
        series = sum(map(len, parse_metrics(text.decode()).samples.values()))
        alone = latency(bench, server)
        is_over = threading.Event()
        took: list[float] = []

        def keep_scraping() -> None:
            while not is_over.is_set():
                began = time.perf_counter()
                read(server.metrics_port)
                took.append(time.perf_counter() - began)

        thread = threading.Thread(target=keep_scraping)
        thread.start()
        beside = latency(bench, server)
        is_over.set()
        thread.join()
    finally:
        server.stop()
    say(f"{series} series, {len(text)} bytes, scraped in {1e3 * statistics.median(took):.0f} ms")
    for what in ("p50_us", "p99_us", "max_us"):
        say(f"{what}: alone {alone[what]:.0f}, beside scrapes {beside[what]:.0f}")
    judge("p99 beside scrapes, ms", beside["p99_us"] / 1e3, P99_MS_MAX)


def collector(server: Server) -> None:
    """Time and memory of rounds of `kctl metrics serve`."""
    server.start()
    try:
        server.create_topic("orders", PARTITIONS)
        names = [f"group-{number}" for number in range(GROUPS)]
        server.wait_for_coordinators(names[:1])
        commit_all(server, names)
        port = free_port()
        command = [
            sys.executable, "-m", "kctl", "metrics", "serve",
            "-b", server.address, "--port", str(port), "--interval", "1s",
        ]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            report(server, wait_for_round(port, 2))
        finally:
            process.terminate()
            process.wait()
    finally:
        server.stop()


def commit_all(server: Server, names: list[str]) -> None:
    """Commit offset N for partition N, in each group."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=number)
        for number in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    with closing(Client(server.port)) as client:
        for name in names:
            while True:
                answer = client.ask(OffsetCommitRequest(group_id=name, topics=topics), 7)
                if not answer.topics[0].partitions[0].error_code:
                    break
                time.sleep(0.2)


def wait_for_round(port: int, rounds: int) -> ParsedMetrics:
    """The figures after so many rounds."""
    seen: set[float] = set()
    deadline = time.monotonic() + COLLECTED_TIMEOUT_S
    while True:
        try:
            found = parse_metrics(read(port).decode())
        except OSError:
            time.sleep(0.2)
            continue
        if found.value("kctl_collector_age_seconds", kind="log_dirs") is not None:
            seen.add(found.value("kctl_collector_seconds", kind="groups") or 0.0)
            if len(seen) >= rounds or time.monotonic() > deadline:
                return found
        time.sleep(0.5)


def report(server: Server, found: ParsedMetrics) -> None:
    """Print times and memory, after a look at each lag."""
    lags = found.of("kafka_consumergroup_lag")
    assert len(lags) == GROUPS * PARTITIONS
    assert all(it.value == -int(it.labels["partition"]) for it in lags)
    kinds = {it.labels["kind"]: it.value for it in found.of("kctl_collector_seconds")}
    memory = (found.value("process_resident_memory_bytes") or 0) / 1e6
    cpu = found.value("process_cpu_seconds_total")
    say(
        f"{server.title}: a round {sum(kinds.values()):.2f} s {kinds}, {memory:.0f} MB, CPU {cpu} s"
    )
    judge("a round, s", sum(kinds.values()), ROUND_S_MAX)
    judge("memory, MB", memory, MEMORY_MB_MAX)


def main() -> None:
    """Print what each measure found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["cost", "scrape", "collector"])
    parser.add_argument("--apache", action="store_true")
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--load", action="append", choices=LOADS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        needs_apache = options.apache and "collector" in options.what
        with zookeeper(directory / "zookeeper") if needs_apache else nullcontext("") as address:
            bench = Bench(directory, address, build_load(directory))
            for what, measure in (("cost", cost), ("scrape", scrape)):
                if what in options.what:
                    measure(bench, options)
            if "collector" in options.what:
                collector(Kctl(directory / "kctl"))
                if needs_apache:
                    collector(ApacheKafka(directory / "apache", address))


if __name__ == "__main__":
    main()
