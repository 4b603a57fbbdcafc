"""What `kctl repair-log` leaves is opened by Apache Kafka 2.7.2, which serves every record that was
readable: every kind of damage on formats that differ, in one log directory."""

import json
import os
import random
import re
import shutil
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ClientPartition
from kazoo.client import KazooClient

from kctl.records.memory_records import batches
from kctl.repair.repair import apply_plans
from kctl.repair.repair_plan import RepairRequest, plan_repair
from kctl.runtime.real.disk import RealDisk
from tests.support import apache_kafka
from tests.support.archives import opened_archive
from tests.support.damage import FORMATS, kinds_for, logs
from tests.support.golden import GOLDEN
from tests.support.log_mutations import Mutant, mutate_derived, mutate_records
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DISK = RealDisk()
CLUSTER_ID = "Q_r5DLx4Q6S6rdMT32SJpA"
# Formats of messages as brokers and consumers see them; the codecs differ only inside.
# One broker opens them all.
SEEDS = min(300, int(os.environ.get("KCTL_DAMAGE_SEEDS", "40")))
MUTATED = (
    "v2-none-0", "v2-zstd-0", "tx-0", "txc-0", "compacted-0", "compacted-v1-0", "v1-gzip-0",
    "v0-snappy-0", "upgraded-0",
)  # fmt: skip
CHOSEN = ("v2", "v2 gzip", "v2 transactions", "v1", "v1 gzip", "v0 snappy", "v2 compacted")


@pytest.fixture
def repaired(tmp_path):
    """A log directory of repaired partitions; topic -> the records that can be read, by offset."""
    with opened_archive(GOLDEN / "logs/clean.tar.xz") as tar:
        tar.extractall(tmp_path / "golden")
    golden, root = tmp_path / "golden/logs-clean", tmp_path / "logs"
    root.mkdir()
    (root / "meta.properties").write_text(f"version=0\nbroker.id=0\ncluster.id={CLUSTER_ID}\n")
    expected = {}
    for name in CHOSEN:
        for number, kind in enumerate(kinds_for(name)):
            source = golden / FORMATS[name]
            if not kind.needs(source):
                continue
            topic = f"{name.replace(' ', '-')}-{number}"
            directory = root / f"{topic}-0"
            shutil.copytree(source, directory)
            kind.apply(directory)
            repair(directory, tmp_path / "backup" / topic)
            expected[topic] = [
                (record.offset, record.key, record.value)
                for path in logs(directory)
                for batch in batches(path.read_bytes())
                if not batch.is_control
                for record in batch.records()
            ]
    return root, expected


@pytest.fixture
def mutated(tmp_path):
    """The same of logs that were mutated at random; no intact record may be missing."""
    with opened_archive(GOLDEN / "logs/clean.tar.xz") as tar:
        tar.extractall(tmp_path / "golden")
    golden, root = tmp_path / "golden/logs-clean", tmp_path / "logs"
    root.mkdir()
    (root / "meta.properties").write_text(f"version=0\nbroker.id=0\ncluster.id={CLUSTER_ID}\n")
    expected = {}
    for seed in range(SEEDS):
        chance = random.Random(seed)
        topic = f"mutated-{seed}"
        directory = shutil.copytree(golden / chance.choice(MUTATED), root / f"{topic}-0")
        mutant = Mutant.read(directory)
        mutate_records(chance, mutant, chance.choice([1, 1, 2, 3]))
        mutant.write(directory)
        mutate_derived(chance, directory)
        repair(directory, tmp_path / "backup" / topic)
        expected[topic] = [
            (record.offset, record.key, record.value)
            for path in logs(directory)
            for batch in batches(path.read_bytes())
            if not batch.is_control
            for record in batch.records()
        ]
        found = {offset for offset, _, _ in expected[topic]}
        for i in mutant.intact():
            if not mutant.is_control[i]:
                assert {fact.offset for fact in mutant.originals[i]} <= found, (
                    seed,
                    mutant.mutations,
                )
    return root, expected


def repair(directory, backup):
    for number in range(4):
        plan = plan_repair(DISK, str(directory), RepairRequest())
        if not plan.steps():
            return
        apply_plans(DISK, [plan], f"{backup}/{number}")


@contextmanager
def apache_over(root, tmp_path, topics):
    """A broker of Apache Kafka that finds the directory and the topics."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    (tmp_path / "zk").mkdir()
    with running_zookeeper(tmp_path / "zk") as server:
        client = KazooClient(server.address)
        client.start()
        cluster = {"version": "1", "id": CLUSTER_ID}
        client.create("/cluster/id", json.dumps(cluster).encode(), makepath=True)
        for topic in topics:
            value = {"version": 1, "partitions": {"0": [0]}}
            client.create(f"/brokers/topics/{topic}", json.dumps(value).encode(), makepath=True)
            config = {"version": 1, "config": {}}
            client.create(f"/config/topics/{topic}", json.dumps(config).encode(), makepath=True)
        client.stop()
        client.close()
        settings = {"log.dirs": root, "log.retention.ms": -1, "log.cleaner.enable": "false"}
        with apache_kafka.apache_broker(
            tmp_path / "broker", server.address, settings=settings
        ) as address:
            yield address


def served(address, topics):
    """The records of each topic, as a consumer of everything gets them."""
    settings = {
        "bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False,
        "isolation.level": "read_uncommitted", "enable.partition.eof": True,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.assign([ClientPartition(topic, 0, OFFSET_BEGINNING) for topic in topics])
    found = {topic: [] for topic in topics}
    ended = set()
    while len(ended) < len(topics):
        message = consumer.poll(120)
        assert message is not None, f"no end in sight: {sorted(set(topics) - ended)}"
        if message.error() is not None:
            ended.add(message.topic())
            continue
        found[message.topic()].append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


ENDINGS = re.compile(
    "ClosedChannelException|InterruptedException|java.io.IOException: Connection to .* "
    "(was disconnected before the response was read|failed[.])"
)


def exceptions_in(path):
    """Return the lines of a broker's log that name an exception; connections that end, and threads
    that are ended with the broker, are none."""
    lines = path.read_text().splitlines()
    return [it for it in lines if "Exception" in ENDINGS.sub("", it)]


def test_apache_kafka_serves_every_readable_record_of_repaired_logs(repaired, tmp_path):
    root, expected = repaired
    with apache_over(root, tmp_path, expected) as address:
        found = served(address, list(expected))
        for topic, records in expected.items():
            assert found[topic] == records, topic
    assert exceptions_in(tmp_path / "broker/server.log") == []


def test_apache_kafka_serves_every_intact_record_of_mutated_logs(mutated, tmp_path):
    root, expected = mutated
    with apache_over(root, tmp_path, expected) as address:
        found = served(address, list(expected))
        for topic, records in expected.items():
            assert found[topic] == records, topic
    assert exceptions_in(tmp_path / "broker/server.log") == []
