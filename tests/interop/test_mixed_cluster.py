"""kctl and Apache Kafka 2.7.2 brokers in one cluster, on one ZooKeeper.

Brokers 1 and 2 are kctl, 3 and 4 are Apache Kafka. Whoever starts first is controller.
"""

import hashlib
import subprocess
import threading
import time
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {
    "replica.lag.time.max.ms": "3000",
    "zookeeper.session.timeout.ms": "3000",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "2",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "200",
}
FORMAT = "log.message.format.version"
PATIENCE_S = 60
KCTL = (1, 2)
APACHE = (3, 4)


class MixedCluster:
    """Brokers by id: those below 3 are kctl."""

    def __init__(self, directory, zookeeper):
        self.settings = dict(SETTINGS)
        self.directory = directory
        self.zookeeper = zookeeper
        self.stack = ExitStack()
        self.stops = {}
        self.addresses = {}

    def start(self, *broker_ids):
        for broker_id in broker_ids:
            home = self.directory / str(broker_id)
            stack = self.stops[broker_id] = ExitStack()
            if broker_id in KCTL:
                arguments = [f"{key}={value}" for key, value in self.settings.items()]
                options = [word for argument in arguments for word in ("-c", argument)]
                broker = KctlBroker(
                    home, "--zookeeper", self.zookeeper, "-c", f"broker.id={broker_id}", *options
                )
                stack.enter_context(broker)
                self.addresses[broker_id] = broker.address
            else:
                self.addresses[broker_id] = stack.enter_context(
                    apache_kafka.apache_broker(
                        home, self.zookeeper, broker_id=broker_id, settings=self.settings
                    )
                )
        return self

    def stop(self, *broker_ids):
        for broker_id in broker_ids:
            self.addresses.pop(broker_id)
            self.stops.pop(broker_id).close()

    def kill(self, broker_id):
        """kill -9; its data stay."""
        home = self.directory / str(broker_id)
        subprocess.run(["pkill", "-9", "-f", f"{home}/"], check=True)
        self.stop(broker_id)

    def close(self):
        self.stop(*list(self.stops))

    @property
    def bootstrap(self):
        return ",".join(self.addresses.values())

    def metadata(self, topic):
        """{partition: (leader, ISR in order)} as a broker tells."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return {number: (p.leader, tuple(sorted(p.isrs))) for number, p in found.items()}

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came to be: {what}"
            time.sleep(0.2)

    def create(self, topic, *assignment):
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        replicas = [list(each) for each in assignment]
        new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas)
        admin.create_topics([new])[topic].result(30)
        self.until(
            lambda: (
                [isr for _, isr in self.metadata(topic).values()]
                == [tuple(sorted(it)) for it in assignment]
            ),
            "all replicas in sync",
        )

    def delete(self, topic):
        """And wait until no directory of it is left."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        self.until(lambda: not list(self.directory.glob(f"*/**/{topic}-0")), "deleted")

    def produce(self, topic, count, tag):
        """Records acknowledged by all in-sync replicas, of an idempotent producer."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                # Records before Kafka 0.11 know no producers.
                "enable.idempotence": self.settings.get(FORMAT) != "0.10.2",
                "linger.ms": 5,
            }
        )
        failed = []
        for number in range(count):
            producer.produce(
                topic,
                f"{tag}-{number}",
                str(number),
                on_delivery=lambda error, _: error and failed.append(error),
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert failed == []

    def values(self, topic, partitions):
        """Every value of the topic, read through whoever leads."""
        return [message.value().decode() for message in self._messages(topic, partitions)]

    def partitions(self, topic, partitions):
        """Every value as a number, by partition."""
        found = {number: [] for number in range(partitions)}
        for message in self._messages(topic, partitions):
            found[message.partition()].append(int(message.value()))
        return found

    def _messages(self, topic, partitions):
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found = []
        quiet = 0
        while quiet < 4:
            messages = consumer.consume(1000, 0.5)
            found += [message for message in messages if not message.error()]
            quiet = 0 if messages else quiet + 1
        consumer.close()
        return found

    def digest(self, broker_id, topic, partition):
        """Of the bytes of the partition's segments."""
        home = self.directory / str(broker_id)
        logs = home / ("data/logs" if broker_id in KCTL else "logs") / f"{topic}-{partition}"
        digest = hashlib.sha256()
        for path in sorted(logs.glob("*.log")):
            digest.update(path.read_bytes())
        return digest.hexdigest()


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        cluster = MixedCluster(tmp_path, zookeeper.address)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.mark.parametrize("first", ["kctl", "apache"])
def test_brokers_of_both_kinds_lead_follow_and_replace_each_other(cluster, first):
    """
    controller: `first`; partition 0 led by kctl, 1 by Apache, both on 1, 2 and 3
    load; each leader stops in good order and comes back; load in between
    """
    cluster.start(*((1, 2, 3) if first == "kctl" else (3, 1, 2)))
    cluster.create("t", [1, 2, 3], [3, 1, 2])
    expected = []
    cluster.produce("t", 2000, "a")
    expected += [f"a-{n}" for n in range(2000)]
    for gone, tag in ((3, "b"), (1, "c")):
        cluster.stop(gone)
        cluster.until(
            lambda gone=gone: all(
                leader not in (gone, -1) and gone not in isr
                for leader, isr in cluster.metadata("t").values()
            ),
            f"{gone} replaced",
        )
        cluster.produce("t", 1000, tag)
        expected += [f"{tag}-{n}" for n in range(1000)]
        cluster.start(gone)
        cluster.until(
            lambda: all(isr == (1, 2, 3) for _, isr in cluster.metadata("t").values()),
            f"{gone} in sync again",
        )
    assert sorted(cluster.values("t", 2)) == sorted(expected)
    cluster.close()
    for partition in (0, 1):
        assert len({cluster.digest(broker, "t", partition) for broker in (1, 2, 3)}) == 1


@pytest.mark.parametrize("release", ["0.10.2", "1.1", "2.3", "2.5"])
def test_a_cluster_that_speaks_an_older_protocol_is_led_by_either_kind(cluster, release):
    """
    as in the middle of an upgrade: requests of the controller in older versions, ISRs by znode
    Apache is controller; stops, and kctl takes over; comes back
    a topic is deleted under each of them
    """
    cluster.settings["inter.broker.protocol.version"] = release
    cluster.settings[FORMAT] = release
    cluster.start(3, 1)
    cluster.create("t", [1, 3], [3, 1])
    cluster.create("gone", [1, 3])
    cluster.produce("t", 1000, "a")
    cluster.delete("gone")
    cluster.stop(3)
    cluster.until(lambda: set(cluster.metadata("t").values()) == {(1, (1,))}, "3 replaced")
    cluster.produce("t", 1000, "b")
    cluster.start(3)
    cluster.until(lambda: {isr for _, isr in cluster.metadata("t").values()} == {(1, 3)}, "back")
    cluster.create("gone", [3, 1])
    cluster.delete("gone")
    cluster.stop(1)
    cluster.until(lambda: set(cluster.metadata("t").values()) == {(3, (3,))}, "1 replaced")
    cluster.produce("t", 1000, "c")
    cluster.start(1)
    cluster.until(lambda: {isr for _, isr in cluster.metadata("t").values()} == {(1, 3)}, "back")
    assert len(cluster.values("t", 2)) == 3000
    cluster.close()
    for partition in (0, 1):
        assert len({cluster.digest(broker, "t", partition) for broker in (1, 3)}) == 1


class Load:
    """An idempotent producer that never stops, and what was acknowledged to it."""

    def __init__(self, bootstrap, topic, partitions):
        self.acknowledged = {number: [] for number in range(partitions)}
        self.failed = []
        self._topic = topic
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    @property
    def count(self):
        return sum(map(len, self.acknowledged.values()))

    def _delivered(self, error, message):
        if error:
            self.failed.append(error)
        else:
            self.acknowledged[message.partition()].append(int(message.value()))

    def _run(self):
        number = 0
        while not self._stopping.is_set():
            for partition in self.acknowledged:
                self._producer.produce(
                    self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0.002)


def test_every_role_is_killed_under_load_and_nothing_acknowledged_is_lost(cluster):
    """
    partition 0 led by kctl 1, partition 1 by Apache 3, partition 2 by kctl 2; 1 is controller
    kill -9 of 1 (leader, controller), 3 (leader), 2; each comes back before the next goes
    """
    cluster.start(1, 2, 3)
    cluster.create("t", [1, 2, 3], [3, 1, 2], [2, 3, 1])
    with Load(cluster.bootstrap, "t", 3) as load:
        for victim in (1, 3, 2):
            before = load.count
            cluster.until(lambda before=before: load.count > before + 500, "load")
            cluster.kill(victim)
            cluster.until(
                lambda victim=victim: all(
                    leader not in (victim, -1) and victim not in isr
                    for leader, isr in cluster.metadata("t").values()
                ),
                f"{victim} replaced",
            )
            before = load.count
            cluster.until(lambda before=before: load.count > before + 500, "load goes on")
            cluster.start(victim)
            cluster.until(
                lambda: all(isr == (1, 2, 3) for _, isr in cluster.metadata("t").values()),
                f"{victim} in sync again",
            )
    assert load.failed == []
    found = cluster.partitions("t", 3)
    for partition, acknowledged in load.acknowledged.items():
        # Each once, in the order sent; what was never answered may be there, too.
        assert found[partition] == sorted(set(found[partition]))
        assert set(acknowledged) <= set(found[partition])
    cluster.close()
    for partition in range(3):
        assert len({cluster.digest(broker, "t", partition) for broker in (1, 2, 3)}) == 1
