"""Jafka, a Kafka 0.7 in Java: its clients on kctl's broker, and kctl's clients on its broker.

Jafka has no snappy.
"""

import subprocess

import pytest

from kctl.kafka import FetchRequest, KeyedMessage, Producer, SimpleConsumer
from tests.serve.test_kafka07 import broker07, stop
from tests.support.jafka import JafkaBroker, java_with_jafka
from tests.support.java_tools import RUNNER
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

LIMIT_S = 120
COUNT = 100_000


@pytest.fixture(scope="module")
def java():
    """The command line before a class or a source file."""
    command = java_with_jafka()
    if command is None:
        pytest.skip("no Maven")
    return command


def test_its_clients_write_to_kctl_and_read_what_they_wrote(java, tmp_path):
    broker = broker07(tmp_path, "--no-zookeeper").start()
    program = RUNNER.with_name("JafkaClients.java")
    for codec in ("0", "1"):
        ran = subprocess.run(
            [*java, program, str(broker.port), str(COUNT), codec],
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        size = (tmp_path / "data" / f"jafka-{codec}-0" / f"{0:020d}.kafka").stat().st_size
        assert ran.stdout.splitlines()[-1] == f"{COUNT} {size}"
    stop(broker)


@pytest.fixture
def jafka(java, tmp_path):
    """The port of its broker."""
    broker = JafkaBroker(java, tmp_path).start()
    yield broker.port
    broker.kill()


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kctls_clients_write_to_it_and_read_what_they_wrote(jafka, codec):
    settings = {
        "broker.list": f"0:127.0.0.1:{jafka}",
        "producer.type": "async",
        "queue.enqueueTimeout.ms": "-1",
        "compression.codec": codec,
    }
    with Producer(settings) as producer:
        for number in range(COUNT):
            producer.send(KeyedMessage("t", b"message %d" % number))
    found = []
    with SimpleConsumer("127.0.0.1", jafka, kafka_07=True) as consumer:

        def read():
            offset = 0
            found.clear()
            while messages := list(consumer.fetch(FetchRequest("t", 0, offset, 1 << 20))):
                found.extend(it.message for it in messages)
                offset = messages[-1].next_offset
            return len(found) >= COUNT

        wait_for(read, lambda: f"{len(found)} messages")
    assert found == [b"message %d" % number for number in range(COUNT)]
