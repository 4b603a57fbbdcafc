"""Brokers of kctl and of Apache Kafka 2.7.2 in one cluster, on one ZooKeeper: those below 3 are
kctl, the others Apache Kafka. The first to start is the controller."""

import hashlib
import subprocess
import threading
import time
from contextlib import suppress

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker

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
        # Those that run, by id.
        self.brokers = {}
        self.addresses = {}

    def start(self, *broker_ids):
        for broker_id in broker_ids:
            start = self._start_kctl if broker_id in KCTL else self._start_apache
            home, settings = self.directory / str(broker_id), self.settings_of(broker_id)
            self.brokers[broker_id] = start(broker_id, home, settings)
            self.addresses[broker_id] = self.address_of(broker_id)
        return self

    def address_of(self, broker_id):
        """Return where clients reach the broker."""
        return self.brokers[broker_id].address

    def settings_of(self, broker_id):
        """Return the settings of one broker."""
        return self.settings

    def client_settings(self):
        """Return the settings of librdkafka."""
        return {"bootstrap.servers": self.bootstrap}

    def _start_kctl(self, broker_id, home, settings):
        arguments = [f"{key}={value}" for key, value in settings.items()]
        options = [word for argument in arguments for word in ("-c", argument)]
        identity = ("-c", f"broker.id={broker_id}")
        return KctlBroker(home, "--zookeeper", self.zookeeper, *identity, *options).start()

    def _start_apache(self, broker_id, home, settings):
        broker = apache_kafka.ApacheBroker(
            home, self.zookeeper, broker_id=broker_id, settings=settings
        )
        return self._until_ready(broker)

    def _until_ready(self, apache):
        try:
            return apache.launch().wait_until_ready()
        except BaseException:
            apache.stop()
            raise

    def stop(self, *broker_ids):
        for broker_id in broker_ids:
            self.addresses.pop(broker_id, None)
            with suppress(subprocess.TimeoutExpired):
                self.brokers.pop(broker_id).stop()

    def kill(self, broker_id):
        """kill -9; its data stay."""
        self.addresses.pop(broker_id)
        self.brokers.pop(broker_id).kill()

    def kill_and_restart(self, broker_id, *topics):
        """kill -9; start it when others have taken its place; until it is in sync again."""
        everybody = tuple(sorted(self.addresses))
        self.kill(broker_id)
        self.until(
            lambda: all(
                leader not in (broker_id, -1) and broker_id not in isr
                for topic in topics
                for leader, isr in self.metadata(topic).values()
            ),
            f"{broker_id} replaced",
        )
        self.start(broker_id)
        self.until_in_sync(everybody, *topics)

    def until_in_sync(self, broker_ids, *topics):
        self.until(
            lambda: all(
                isr == broker_ids for topic in topics for _, isr in self.metadata(topic).values()
            ),
            f"{broker_ids} in sync",
        )

    def close(self):
        self.stop(*list(self.brokers))

    @property
    def bootstrap(self):
        return ",".join(self.addresses.values())

    def metadata(self, topic):
        """Return {partition: (leader, ISR in order)} from the metadata of a broker."""
        admin = AdminClient(self.client_settings())
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions
        return {number: (p.leader, tuple(sorted(p.isrs))) for number, p in found.items()}

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came to be: {what}"
            time.sleep(0.2)

    def create(self, topic, *assignment):
        admin = AdminClient(self.client_settings())
        replicas = [list(each) for each in assignment]
        new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas)
        admin.create_topics([new])[topic].result(120)
        self.until(
            lambda: (
                [isr for _, isr in self.metadata(topic).values()]
                == [tuple(sorted(it)) for it in assignment]
            ),
            "all replicas in sync",
        )

    def delete(self, topic):
        """And wait until no directory of it is left."""
        admin = AdminClient(self.client_settings())
        admin.delete_topics([topic])[topic].result(120)
        self.until(lambda: not list(self.directory.glob(f"*/**/{topic}-0")), "deleted")

    def produce(self, topic, count, tag):
        """Records acknowledged by all in-sync replicas, of an idempotent producer."""
        producer = Producer(
            {
                **self.client_settings(),
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
        """Return every value of the topic, read from the leaders."""
        return [message.value().decode() for message in self._messages(topic, partitions)]

    def partitions(self, topic, partitions):
        """Every value as a number, by partition."""
        found = {number: [] for number in range(partitions)}
        for message in self._messages(topic, partitions):
            found[message.partition()].append(int(message.value()))
        return found

    def _messages(self, topic, partitions):
        consumer = Consumer(
            {**self.client_settings(), "group.id": "reader", "enable.auto.commit": False}
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


class Load:
    """An idempotent producer that never stops, and what was acknowledged to it."""

    def __init__(self, client_settings, topic, partitions):
        self.acknowledged = {number: [] for number in range(partitions)}
        self.failed = []
        self._topic = topic
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                **client_settings,
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
