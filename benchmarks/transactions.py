"""Transactions per second of kctl and of Apache Kafka 2.7.2, side by side.

    python -m benchmarks.transactions [--rounds N] [--seconds S]

One producer (librdkafka) commits transactions of 10 and of 100 records one after the other, on each
broker in turn; and a bare connection does the same without a client's back-offs. Medians of the
rounds, and their ratio: above 1.0 kctl is faster. The goal is 1.0.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.servers import ApacheKafka, Kctl, Server, zookeeper
from kctl.protocol.error_codes import ErrorCode
from tests.support.transaction_requests import RawProducer, find_coordinators

SIZES = (10, 100)
TIMEOUT_S = 30
VALUE = "x" * 100
GOAL = 1.0


def with_librdkafka(server: Server, topic: str, size: int, seconds: float) -> float:
    """Transactions per second of a client that waits for each commit."""
    producer = Producer(
        {"bootstrap.servers": server.address, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)

    def once() -> None:
        producer.begin_transaction()
        for _ in range(size):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(TIMEOUT_S)

    return per_second(once, seconds)


def with_a_connection(server: Server, topic: str, size: int, seconds: float) -> float:
    """Transactions per second where only the broker is waited for."""
    producer = RawProducer(server.address, f"{topic}-raw")
    producer.init()
    values = [VALUE] * size
    request = producer.add_request(topic, 0)

    def once() -> None:
        # Until the markers of the last one are written.
        while producer.client.ask(request).results[0].results[0].error_code:
            pass
        assert producer.produce(topic, *values) is ErrorCode.NONE
        end = producer.end_request(commit=True)
        assert producer.client.ask(end).error_code == 0

    try:
        return per_second(once, seconds)
    finally:
        producer.close()


def per_second(once: Callable[[], None], seconds: float) -> float:
    """How often `once` goes into a second, after a warm-up."""
    warm_until = time.monotonic() + seconds / 3
    while time.monotonic() < warm_until:
        once()
    began, count = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        once()
        count += 1
    return count / (time.monotonic() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    ways = {"librdkafka": with_librdkafka, "connection": with_a_connection}
    found: dict[tuple[str, int, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name, zookeeper(Path(name) / "zk") as address:
        servers = {
            "kctl": Kctl(Path(name) / "kctl"),
            "apache": ApacheKafka(Path(name) / "apache", address),
        }
        try:
            for server in servers.values():
                server.start()
                server.create_topic("t")
                find_coordinators(server.address, "t", "t")
            for _ in range(options.rounds):
                for way, measure in ways.items():
                    for size in SIZES:
                        for which, server in servers.items():
                            rate = measure(server, "t", size, options.seconds)
                            found.setdefault((way, size, which), []).append(rate)
        finally:
            for server in servers.values():
                server.stop()
    for way in ways:
        for size in SIZES:
            ours, theirs = (
                statistics.median(found[way, size, which]) for which in ("kctl", "apache")
            )
            print(  # noqa: T201
                f"{way:10} {size:4} records: kctl {ours:7.1f}/s  Apache Kafka {theirs:7.1f}/s  "
                f"ratio {ours / theirs:.2f} (goal {GOAL})"
            )


if __name__ == "__main__":
    main()
