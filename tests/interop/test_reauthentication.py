"""T19: sessions that end every second or two are renewed under load, by Java's, librdkafka's and
kctl's clients: nothing is lost, and nothing fails.

KCTL_REAUTHENTICATION_S=60 takes longer.
"""

import json
import os
import subprocess
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kctl.client.bootstrap_servers import parse_servers
from kctl.client.producer import NewRecord
from kctl.client.producer import Producer as KctlProducer
from kctl.client.router import Router
from kctl.client.security import ClientSecurity
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker
from tests.support import apache_kafka

SECONDS = int(os.environ.get("KCTL_REAUTHENTICATION_S", "4"))
LIFETIME_MS = 1_500
USERS = {"alice": "secret"}
TIMEOUT_S = 60
RATE = 100

pytestmark = pytest.mark.slow


@pytest.fixture
def broker():
    settings = {"connections.max.reauth.ms": LIFETIME_MS}
    with KafkaBroker(topics=["t"], users=USERS, settings=settings) as broker:
        yield broker


@pytest.fixture(params=["PLAIN", "SCRAM-SHA-256"])
def config(request, broker):
    """The settings of librdkafka."""
    return broker.client_config(mechanism=request.param)


def counters(broker):
    return broker._broker.server.counters


def assert_renewed(broker):
    """Sessions were renewed, and none failed.

    On a busy machine a client may be late, and has to connect again: retries hide that."""
    found = counters(broker)
    assert found.reauthentications >= 1
    assert (found.failed_authentications, found.failed_reauthentications) == (0, 0)


def test_librdkafka_produces_and_consumes(broker, config):
    errors, acknowledged, found = [], [], []
    producer = Producer({**config, "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer({**config, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])

    def delivered(error, message):
        errors.extend([error] if error else [])
        acknowledged.append(message.value())

    end = time.monotonic() + SECONDS
    number = 0
    while time.monotonic() < end:
        producer.produce("t", b"%d" % number, on_delivery=delivered)
        number += 1
        producer.poll(0)
        found += [it.value() for it in consumer.consume(100, 1 / RATE) if it.error() is None]
    assert producer.flush(TIMEOUT_S) == 0
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < number and time.monotonic() < deadline:
        found += [it.value() for it in consumer.consume(100, 0.1) if it.error() is None]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert errors == []
    assert found == acknowledged == [b"%d" % it for it in range(number)]
    assert_renewed(broker)


def test_kctl_produces(broker, config):
    runtime = make_runtime(NullTrace())
    config = dict(config)
    servers = parse_servers(config.pop("bootstrap.servers"))
    router = Router(runtime, servers, security=ClientSecurity.of(config))

    async def story():
        producer = KctlProducer(router, "t")
        await producer.open()
        end_ms = runtime.clock.monotonic_ms() + SECONDS * 1000
        number = 0
        while runtime.clock.monotonic_ms() < end_ms:
            records = [NewRecord(key=None, value=b"%d" % number)]
            for result in await producer.send(records):
                assert result.error is None
            number += 1
        return number

    try:
        number = runtime.scheduler.run_until(runtime.scheduler.spawn(story()))
    finally:
        router.close()
        runtime.scheduler.close()
    assert [it.value for it in broker.records("t")] == [b"%d" % it for it in range(number)]
    assert_renewed(broker)


@pytest.mark.kafka
def test_java_produces(broker, config, tmp_path):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    properties = broker.java_properties(mechanism=config["sasl.mechanism"])
    properties |= {"retries": "1000000", "enable.idempotence": "true"}
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    count = SECONDS * RATE
    done = subprocess.run(
        [
            *apache_kafka.java_command("2.7.2", "org.apache.kafka.tools.VerifiableProducer"),
            "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--acks", "-1",
            "--max-messages", str(count), "--throughput", str(RATE), "--producer.config", path,
        ],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S + 3 * SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = Counter(json.loads(line)["name"] for line in done.stdout.splitlines())
    assert names["producer_send_success"] == count, done.stderr
    assert names["producer_send_error"] == 0
    assert [int(it.value) for it in broker.records("t")] == list(range(count))
    assert_renewed(broker)
