"""`kctl metrics serve` beside librdkafka: each figure is what another client finds by itself."""

import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from kctl.metrics.parse import parse_metrics
from tests.support.waiting import wait_for

confluent_kafka = pytest.importorskip("confluent_kafka")
admin_client = pytest.importorskip("confluent_kafka.admin")

PARTITIONS = 4
COMMITTED = {0: 3, 1: 0, 2: 5}


@pytest.fixture
def exporter(bootstrap, tmp_path):
    """Runs the command; returns a function that scrapes it once it is ready."""
    path = tmp_path / "messages"
    with path.open("wb") as messages:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "kctl", "metrics", "serve",
                "-b", bootstrap, "--port", "0", "--interval", "200ms",
            ],
            stdout=messages, stderr=messages, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def address():
        return re.findall(r"metrics on (http://\S+)/metrics", path.read_text())

    def read(what):
        with urllib.request.urlopen(f"{address()[0]}{what}", timeout=60) as response:
            return response.read().decode()

    def is_ready():
        try:
            return bool(address()) and bool(read("/readyz"))
        except urllib.error.HTTPError:
            return False

    wait_for(is_ready, path.read_text)
    yield lambda: parse_metrics(read("/metrics"))
    process.terminate()
    assert process.wait(60) == 128 + 15


def test_offsets_and_lag_are_those_that_another_client_sees(bootstrap, topic, exporter):
    settings = {"bootstrap.servers": bootstrap}
    admin = admin_client.AdminClient(settings)
    created = admin.create_topics([admin_client.NewTopic(topic, PARTITIONS, 1)])
    created[topic].result(60)
    producer = confluent_kafka.Producer(settings)
    for number in range(10):
        for partition in range(PARTITIONS):
            producer.produce(topic, f"{number}", partition=partition)
    assert producer.flush(60) == 0
    group = f"group-of-{topic}"
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": group, "enable.auto.commit": False}
    )
    consumer.subscribe([topic])

    def is_assigned():
        consumer.poll(0.1)
        return len(consumer.assignment()) == PARTITIONS

    wait_for(is_assigned, lambda: group)
    wanted = [confluent_kafka.TopicPartition(topic, it, at) for it, at in COMMITTED.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    partitions = [confluent_kafka.TopicPartition(topic, it) for it in range(PARTITIONS)]

    def seen():
        found = exporter()
        offsets = found.of("kafka_consumergroup_current_offset", consumergroup=group)
        members = found.value("kafka_consumergroup_members", consumergroup=group)
        return len(offsets) == len(COMMITTED) and members == 1

    wait_for(seen, lambda: str(exporter().of("kafka_consumergroup_members")))
    found = exporter()
    for asked in consumer.committed(partitions):
        labels = {"topic": topic, "partition": str(asked.partition)}
        begin, end = consumer.get_watermark_offsets(asked)
        assert found.value("kafka_topic_partition_oldest_offset", **labels) == begin
        assert found.value("kafka_topic_partition_current_offset", **labels) == end == 10
        lag = found.value("kafka_consumergroup_lag", consumergroup=group, **labels)
        if asked.partition in COMMITTED:
            assert lag == end - asked.offset
        else:
            assert asked.offset < 0
            assert lag is None
    sums = {"consumergroup": group, "topic": topic}
    assert found.value("kafka_consumergroup_lag_sum", **sums) == 22
    assert found.value("kafka_consumergroup_current_offset_sum", **sums) == 8
    assert found.value("kafka_topic_partitions", topic=topic) == PARTITIONS
    assert found.value("kctl_topic_size_bytes", topic=topic) > 0
    consumer.close()
