"""A link in a cluster of several brokers that are killed, and a link from Apache Kafka 2.7.2."""

import random  # noqa: TID251 - seeded here
from pathlib import Path

import pytest

from tests.mirror.linked_pair import Side, partitions, wait_until
from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.local_cluster import LocalCluster
from tests.support.zookeeper import running_zookeeper

TOPIC = "orders"


class Target(Side):
    """A cluster of three brokers."""

    def __init__(self, cluster):
        self.name = "west"
        self.cluster = cluster

    @property
    def address(self):
        return self.cluster.bootstrap

    def logs(self):
        return [
            b"".join(it.read_bytes() for it in sorted(directory.glob("*.log")))
            for directory in sorted(Path(self.cluster.data).rglob(f"{TOPIC}-0"))
        ]


def caught_up(rows, end):
    return bool(rows) and all(
        it["phase"] == "following" and it["lag"] == 0 and it["end"] >= end for it in rows
    )


def create_link(source, target):
    target.kctl(
        "link", "create", TOPIC, "--source", "east", "--from", source.address,
        "--replication-factor", 3, "--yes",
    )  # fmt: skip


@pytest.mark.slow
def test_every_replica_has_the_bytes_of_the_source_after_kills_and_a_failover(tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    west = tmp_path / "west"
    west.mkdir()
    chance = random.Random(7)
    source = Side("east", tmp_path, sources)
    try:
        (sources / "east.properties").write_text(f"bootstrap.servers={source.address}\n")
        with LocalCluster(west, "--brokers", "3", "-c", f"mirror.sources.dir={sources}") as cluster:
            target = Target(cluster)
            source.kctl("topic", "create", TOPIC, "-p", 1)
            source.transaction(TOPIC, "t", [b"open"], end=None)
            create_link(source, target)
            for round_number in range(1, 4):
                assert source.produce(TOPIC, [b"%d" % n for n in range(200)]) == []
                if round_number == 2:
                    # Its epochs rise, and those of the target with them.
                    source.broker.kill()
                    source.broker.start()
                if round_number < 3:
                    cluster.kill_any(chance, (TOPIC,))
            wait_until(target, TOPIC, lambda rows: caught_up(rows, 601), "the end")
            cluster_is_equal(source, target)

            assert "writable" in target.kctl("link", "failover", TOPIC, "--yes")
            assert partitions(target, TOPIC) == []
            assert target.produce(TOPIC, [b"new"], acks="all") == []
            read = [value for _, value in target.read(TOPIC)]
            assert (len(read), read[-1]) == (601, b"new")
            logs = target.logs()
            wait_until_equal(target)
            assert logs[0].startswith(source.log_bytes(TOPIC))
    finally:
        source.broker.kill()


@pytest.mark.slow
def test_every_replica_is_emptied_before_a_recreated_source_is_copied(tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    west = tmp_path / "west"
    west.mkdir()
    source = Side("east", tmp_path, sources)
    try:
        (sources / "east.properties").write_text(f"bootstrap.servers={source.address}\n")
        with LocalCluster(west, "--brokers", "3", "-c", f"mirror.sources.dir={sources}") as cluster:
            target = Target(cluster)
            source.kctl("topic", "create", TOPIC, "-p", 1)
            assert source.produce(TOPIC, [b"old %d" % n for n in range(50)]) == []
            create_link(source, target)
            wait_until(target, TOPIC, lambda rows: caught_up(rows, 50), "the end")
            # The same epoch, the same offsets, other records, and more of them.
            source.kctl("topic", "delete", TOPIC, "--yes")
            source.kctl("topic", "create", TOPIC, "-p", 1)
            assert source.produce(TOPIC, [b"new %d" % n for n in range(120)]) == []
            restart_source(source)
            wait_until(target, TOPIC, lambda rows: rows[0]["phase"] == "stopped", "a stop")
            target.kctl("link", "resume", TOPIC, "--on-loss", "restart", "--yes")
            wait_until(target, TOPIC, lambda rows: caught_up(rows, 120), "the end")
            cluster_is_equal(source, target)
            assert target.read(TOPIC) == source.read(TOPIC)
    finally:
        source.broker.kill()


def restart_source(source):
    """Have the link compare both logs, as a lost connection does."""
    source.broker.kill()
    source.broker.start()


def wait_until_equal(target):
    from tests.support.waiting import wait_for

    wait_for(lambda: len(set(target.logs())) == 1, lambda: "replicas differ")


def cluster_is_equal(source, target):
    wait_until_equal(target)
    logs = target.logs()
    assert len(logs) == 3
    assert logs[0] == source.log_bytes(TOPIC)


@pytest.mark.kafka
def test_a_link_has_the_bytes_of_apache_kafka(tmp_path):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    sources = tmp_path / "sources"
    sources.mkdir()
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        broker = apache_kafka.ApacheBroker(tmp_path / "apache", zookeeper.address).launch()
        try:
            broker.wait_until_ready()
            (sources / "apache.properties").write_text(f"bootstrap.servers={broker.address}\n")
            with KctlBroker(tmp_path, "-c", f"mirror.sources.dir={sources}") as it:
                follow(ApacheSide(broker), KctlSide(it), broker)
        finally:
            broker.stop()


class ApacheSide(Side):
    def __init__(self, broker):
        self.broker = broker

    def directory(self, topic):
        return self.broker.directory / "logs" / f"{topic}-0"


class KctlSide(Side):
    def __init__(self, broker):
        self.broker = broker

    def directory(self, topic):
        return self.broker.log_dir / f"{topic}-0"


def follow(source, target, apache):
    source.kctl("topic", "create", TOPIC, "-p", 1, "-r", 1)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = {"compression.type": codec, "enable.idempotence": True}
        assert source.produce(TOPIC, [b"%d" % n * 20 for n in range(100)], **settings) == []
    source.transaction(TOPIC, "t1", [b"committed"] * 5, end="commit")
    source.transaction(TOPIC, "t2", [b"aborted"] * 5, end="abort")
    target.kctl("link", "create", TOPIC, "--source", "apache", "--from", source.address, "--yes")
    wait_until(target, TOPIC, lambda rows: caught_up(rows, 512), "the end")
    # A restart begins another leader epoch.
    apache.stop()
    apache.launch().wait_until_ready()
    assert source.produce(TOPIC, [b"%d" % n for n in range(100)]) == []
    wait_until(target, TOPIC, lambda rows: caught_up(rows, 612), "the end")

    target.kctl_alone("verify-log", target.directory(TOPIC), "--compare", source.directory(TOPIC))
    segments = [sorted(it.directory(TOPIC).glob("*.log")) for it in (source, target)]
    first, second = ([path.read_bytes() for path in each] for each in segments)
    assert first == second
    epochs = [
        (it.directory(TOPIC) / "leader-epoch-checkpoint").read_text() for it in (source, target)
    ]
    assert epochs[0] == epochs[1]
    assert target.read(TOPIC) == source.read(TOPIC)
    assert "writable" in target.kctl("link", "failover", TOPIC, "--yes")
    assert target.produce(TOPIC, [b"new"]) == []
