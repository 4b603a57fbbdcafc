"""RemoteClusterUtils of Apache Kafka 2.7.2 reads the offsets that kctl has translated."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kctl.testing.kafka_broker import KafkaBroker
from tests.mirror.test_apache_kafka import contents, fill, kctl
from tests.support import apache_kafka

pytestmark = pytest.mark.kafka

VERSION = "2.7.2"
PROGRAM = Path(apache_kafka.__file__).parent / "java" / "MirrorOffsets.java"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kctl.tests</groupId><artifactId>mirror-client</artifactId><version>{VERSION}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-mirror-client</artifactId>
      <version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""


def test_mirrormakers_client_reads_the_checkpoints():
    jars = apache_kafka.libs() and apache_kafka.jars_of("mirror-client-2.7.2", POM, fetch=True)
    if jars is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with KafkaBroker() as source, KafkaBroker() as target:
        here, there = source.bootstrap_servers, target.bootstrap_servers
        source.create_topic("orders")
        target.create_topic("orders")
        fill(here, "orders")
        _, offsets = contents(here, "orders")
        reader = Consumer({"bootstrap.servers": here, "group.id": "billing", "log_level": 0})
        reader.commit(offsets=[TopicPartition("orders", 0, offsets[120])], asynchronous=False)
        reader.close()
        options = ("--rename", "prefix", "--mm2-topics", "--once")
        # The way back writes the heartbeats that the way there copies.
        for words in (
            ("--source", there, "--target", here, "--source-alias", "B", "--target-alias", "A"),
            ("--source", here, "--target", there, "--source-alias", "A", "--target-alias", "B"),
        ):
            found = kctl("mirror", "run", *words, "--topics", "orders", *options)
            assert found.returncode == 0, found.stdout + found.stderr
        expected = contents(there, "A.orders")[1][120]

        command = apache_kafka.java_command(VERSION, str(PROGRAM), level="OFF", more_jars=jars)
        shown = subprocess.run(
            [*command, there, "A", "billing"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip

    assert shown.stdout == f"{{A.orders-0={expected}}} 1\n"
