"""kctl's data source and its exports yield what Spark's own Kafka source reads from a broker.

Apache Kafka 2.7.2 serves a copy of the golden log directory: once topics of the same names are
created, it uses the logs that are already in the directory.
"""

import shutil
from collections import Counter

import pytest

from kctl.cli.app import run as kctl
from kctl.export.options import Isolation
from tests.support import apache_kafka, spark_kafka
from tests.support.zookeeper import running_zookeeper

pytestmark = [
    pytest.mark.spark, pytest.mark.kafka, pytest.mark.filterwarnings("ignore"),
]  # fmt: skip

COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers")
SETTINGS = {
    "log.retention.ms": "-1", "auto.create.topics.enable": "false", "log.cleaner.enable": "false",
}  # fmt: skip


@pytest.fixture(scope="module")
def served(golden, tmp_path_factory):
    """(address of the broker, topics that it serves)"""
    if spark_kafka.jars() is None:
        pytest.skip("no jars of spark-sql-kafka: python tests/support/spark_kafka.py")
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    directory = tmp_path_factory.mktemp("served")
    shutil.copytree(golden, directory / "logs", ignore=shutil.ignore_patterns("meta.*", "__*"))
    partitions = Counter(path.name.rsplit("-", 1)[0] for path in golden.glob("[a-z]*-[0-9]*"))
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        apache_kafka.apache_broker(directory, zookeeper.address, settings=SETTINGS) as address,
    ):
        for topic, count in partitions.items():
            words = ["topic", "create", topic, "-p", str(count), "-b", address]
            assert kctl(words) == 0
        yield address, sorted(partitions)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_golden_topic_reads_as_by_sparks_own_kafka_source(
    spark, served, golden, export, tmp_path, isolation
):
    address, topics = served
    shared = {
        "subscribe": ",".join(topics), "startingOffsets": "earliest", "includeHeaders": "true",
        "kafka.isolation.level": isolation,
    }  # fmt: skip
    brokers = shared | {"kafka.bootstrap.servers": address}
    expected = rows_of(spark.read.format("kafka").options(**brokers).load())
    assert len(expected) > 4000
    assert rows_of(spark.read.format("kctl").options(**shared).load(str(golden))) == expected
    assert rows_of(spark.read.format("kctl").options(**brokers).load()) == expected
    export(golden, topics=topics, isolation=Isolation(isolation))
    assert rows_of(spark.read.parquet(str(tmp_path / "table"))) == expected


def rows_of(frame):
    return sorted(
        (tuple(plain(row[name]) for name in COLUMNS) for row in frame.collect()),
        key=lambda row: row[:3],
    )


def plain(value):
    if isinstance(value, list):
        return [(pair["key"], plain(pair["value"])) for pair in value]
    return bytes(value) if isinstance(value, bytearray) else value
