"""kctl.kafka beside confluent-kafka and kafka-python: what a message costs its process.

    python -m benchmarks.library [--messages N] [--rounds N] [--bytes N]

Each client runs in a process of its own against one `kctl serve` and writes messages without keys
to one partition, acks=all. "async" enqueues and flushes; its figure is messages per second of the
CPU time (user and system) of that process, since the other processes of a machine do not change
it. "sync" waits for each message; its figures are percentiles of wall time, and CPU time per
message. Rounds alternate the order of the clients; a figure is the median of the rounds.
confluent-kafka and kafka-python are measured if they are installed.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.kctl_process import KctlBroker

TOPIC = "bench"
SYNC_SHARE = 100
CLIENTS = {"kctl.kafka": "kctl", "confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}


def cpu_seconds() -> float:
    """CPU time of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def kctl_client(address: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """(enqueue, flush, write one and wait) of kctl.kafka."""
    from kctl.kafka import KeyedMessage, Producer

    producer = Producer({"bootstrap.servers": address})
    waiting = Producer({"bootstrap.servers": address, "producer.type": "sync"})
    return (
        lambda value: producer.send(KeyedMessage(TOPIC, value)),
        producer.flush,
        lambda value: waiting.send(KeyedMessage(TOPIC, value)),
    )


def confluent_client(address: str) -> tuple[Callable[..., Any], ...]:
    """(enqueue, flush, write one and wait) of confluent-kafka."""
    from confluent_kafka import Producer

    # Without lingering: otherwise each synchronous message waits for 5 ms.
    settings = {"bootstrap.servers": address, "enable.idempotence": True}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    waiting = Producer({**settings, "linger.ms": 0})

    def enqueue(value: bytes) -> None:
        while True:
            try:
                producer.produce(TOPIC, value)
            except BufferError:
                producer.poll(0.01)
            else:
                producer.poll(0)
                return

    def write(value: bytes) -> None:
        waiting.produce(TOPIC, value)
        waiting.flush()

    return enqueue, producer.flush, write


def kafka_python_client(address: str) -> tuple[Callable[..., Any], ...]:
    """(enqueue, flush, write one and wait) of kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all")
    return (
        lambda value: producer.send(TOPIC, value),
        producer.flush,
        lambda value: producer.send(TOPIC, value).get(30),
    )


MAKERS = {
    "kctl.kafka": kctl_client,
    "confluent-kafka": confluent_client,
    "kafka-python": kafka_python_client,
}


def measure(client: str, address: str, messages: int, size: int) -> dict[str, float]:
    """The figures of one client, in this process."""
    enqueue, flush, write = MAKERS[client](address)
    value = bytes(size)
    write(value)
    enqueue(value)
    flush()
    began, began_cpu = time.perf_counter(), cpu_seconds()
    for _ in range(messages):
        enqueue(value)
    flush()
    spent, cpu = time.perf_counter() - began, cpu_seconds() - began_cpu
    waits = []
    began_cpu = cpu_seconds()
    for _ in range(messages // SYNC_SHARE):
        started = time.perf_counter()
        write(value)
        waits.append(time.perf_counter() - started)
    sync_cpu = cpu_seconds() - began_cpu
    waits.sort()
    return {
        "async per CPU second": messages / cpu,
        "async per second": messages / spent,
        "sync p50 us": waits[len(waits) // 2] * 1e6,
        "sync p99 us": waits[len(waits) * 99 // 100] * 1e6,
        "sync CPU us": sync_cpu / len(waits) * 1e6,
    }


def run(client: str, address: str, arguments: argparse.Namespace) -> dict[str, float]:
    """The figures of one client, in a process of its own."""
    command = [
        sys.executable, "-m", "benchmarks.library", "--client", client, "--address", address,
        "--messages", str(arguments.messages), "--bytes", str(arguments.bytes),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def compare(arguments: argparse.Namespace) -> None:
    """Measure all clients that are installed, and write a table."""
    clients = [name for name, module in CLIENTS.items() if find_spec(module) is not None]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
    with (
        tempfile.TemporaryDirectory() as directory,
        KctlBroker(Path(directory) / "data", "--seed-topic", f"{TOPIC}:1") as broker,
    ):
        for number in range(arguments.rounds):
            for name in clients if number % 2 else reversed(clients):
                found[name].append(run(name, broker.address, arguments))
    names = list(found[clients[0]][0])
    sys.stdout.write(f"| client | {' | '.join(names)} |\n|---|{'---:|' * len(names)}\n")
    for client, rounds in found.items():
        medians = [statistics.median(it[name] for it in rounds) for name in names]
        sys.stdout.write(f"| {client} | {' | '.join(f'{it:,.0f}' for it in medians)} |\n")


def main() -> None:
    """Run as the module's docstring says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", choices=MAKERS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client is None:
        compare(arguments)
        return
    figures = measure(arguments.client, arguments.address, arguments.messages, arguments.bytes)
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
