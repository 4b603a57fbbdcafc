"""What an fsync before each answer costs: kctl and Apache Kafka 2.7.2, with and without, one run.

PYTHONPATH=. python -m benchmarks.durable [--rounds N] [--quick] [--directory DIRECTORY]

All producers use acks=all. Topics are durable by `flush.messages=1`, what `kctl serve --durable`
and `log.flush.interval.messages=1` make the default. Each round measures a load in the four
settings, one after the other, and the next round begins with another of them. A figure is the
median of its rounds, a ratio the median of the rounds' ratios. `--directory` says whose fsyncs are
measured: where the brokers keep their data. It needs what benchmarks/broker.py needs, and
confluent-kafka.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.measures import Bench, build_load
from benchmarks.servers import ApacheKafka, Client, Kctl, Server, leaders, zookeeper
from kctl.protocol.messages.create_topics import (
    CreatableTopic,
    CreateableTopicConfig,
    CreateTopicsRequest,
)

RECORD_BYTES = 1_000
FLUSH_TIMEOUT_S = 60
ALL = -1
Measure = Callable[[Bench, Server, str], float]


@dataclass(frozen=True)
class Setting:
    """One of the four columns."""

    server: Server
    is_durable: bool

    @property
    def title(self) -> str:
        return f"{self.server.title}{', durable' if self.is_durable else ''}"


@contextmanager
def durable_topic(bench: Bench, setting: Setting, partitions: int) -> Iterator[str]:
    """A topic for a while."""
    name = f"topic-{bench.new_number()}"
    configs = [CreateableTopicConfig(name="flush.messages", value="1")]
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=configs if setting.is_durable else [],
    )
    with contextlib.closing(Client(setting.server.port)) as client:
        answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=100_000), 4)
        if answer.topics[0].error_code:
            raise RuntimeError(f"creating {name}: error {answer.topics[0].error_code}")
        while leaders(client, name) < partitions:
            time.sleep(0.005)
    try:
        yield name
    finally:
        setting.server.delete_topics([name])


def bulk(bench: Bench, server: Server, topic: str) -> float:
    """Librdkafka with its defaults, as fast as it can; records a second."""
    producer = Producer({
        "bootstrap.servers": server.address,
        "acks": "all",
        "queue.buffering.max.messages": 20_000,
        "delivery.report.only.error": True,
    })  # fmt: skip
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        failures.append(str(error))

    value = bytes(RECORD_BYTES)
    sent = 0
    begin = time.perf_counter()
    while time.perf_counter() < begin + bench.seconds:
        try:
            producer.produce(topic, value, on_delivery=delivered)
            sent += 1
        except BufferError:
            producer.poll(0.01)
        else:
            producer.poll(0)
    if producer.flush(FLUSH_TIMEOUT_S) or failures:
        raise RuntimeError(f"{server.title}: not delivered: {failures[:1]}")
    return sent / (time.perf_counter() - begin)


def small(connections: int) -> Measure:
    """One record of 100 bytes a request; requests a second."""

    def measure(bench: Bench, server: Server, topic: str) -> float:
        found = bench.run_load(server, "produce", topic, connections=connections, acks=ALL)
        return found["requests_per_second"]

    return measure


# The loads that have goals.
BULK = "Bulk, 1 librdkafka producer, records of 1 kB"
SMALL = "One record of 100 B, 16 connections"
# Title -> the load, and the partitions of its topic.
LOADS: Mapping[str, tuple[Measure, int]] = {
    BULK: (bulk, 1),
    "Bulk, the same, 4 partitions": (bulk, 4),
    SMALL: (small(16), 1),
    "One record of 100 B, 100 connections": (small(100), 1),
}


@dataclass(frozen=True)
class Ratio:
    """One figure to another, and how much it should be at least."""

    title: str
    dividend: int
    divisor: int
    # Load -> at least how much; no entry: no goal.
    goals: Mapping[str, float] = field(default_factory=dict)


# Columns of settings: kctl, kctl durable, Apache Kafka, Apache Kafka durable.
RATIOS = (
    Ratio("kctl: durable / not", 1, 0, {BULK: 0.85, SMALL: 0.4}),
    Ratio("Apache Kafka: durable / not", 3, 2),
    Ratio("durable: kctl / Apache Kafka", 1, 3, {BULK: 2.0, SMALL: 4.0}),
)


def measure_load(
    bench: Bench, settings: list[Setting], load: tuple[Measure, int], rounds: int
) -> list[list[float]]:
    """Setting -> a figure per round."""
    measure, partitions = load
    figures: list[list[float]] = [[] for _ in settings]
    for turn in range(rounds):
        for step in range(len(settings)):
            which = (turn + step) % len(settings)
            setting = settings[which]
            with durable_topic(bench, setting, partitions) as topic:
                figures[which].append(measure(bench, setting.server, topic))
    return figures


def lines_of(title: str, figures: list[list[float]], settings: list[Setting]) -> Iterator[str]:
    """A load's part of the table."""
    load = title
    for setting, values in zip(settings, figures, strict=True):
        yield f"| {title} | {setting.title} | {statistics.median(values):,.0f} /s | | |"
        title = ""
    for ratio in RATIOS:
        pairs = zip(figures[ratio.dividend], figures[ratio.divisor], strict=True)
        value = statistics.median(one / other for one, other in pairs)
        goal, mark = "", ""
        wanted = ratio.goals.get(load)
        if wanted is not None:
            goal, mark = f"≥ {wanted:g}", "yes" if value >= wanted else "**no**"
        yield f"| | {ratio.title} | {value:.2f} | {goal} | {mark} |"


def say(words: str) -> None:
    """Print progress to stderr."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, for a first look")
    parser.add_argument("--directory", help="where the brokers keep their data")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        store = stack.enter_context(zookeeper(directory / "zookeeper"))
        bench = Bench(directory, store, build_load(directory))
        if options.quick:
            bench.warm_up_s, bench.seconds = 0.5, 1
        servers = (Kctl(directory / "kctl"), ApacheKafka(directory / "kafka", store))
        settings = [Setting(server, durable) for server in servers for durable in (False, True)]
        for server in servers:
            stack.callback(server.stop)
            server.start()
        for load in LOADS.values():
            measure_load(bench, settings, load, 1)
        say("| Load | | | goal | |\n|---|---|--:|--:|---|")
        for title, load in LOADS.items():
            figures = measure_load(bench, settings, load, 1 if options.quick else options.rounds)
            for line in lines_of(title, figures, settings):
                say(line)


if __name__ == "__main__":
    main()
