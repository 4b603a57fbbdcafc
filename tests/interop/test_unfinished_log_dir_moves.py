"""Moves between log directories that one kind of broker began and the other finishes: kctl and
Apache Kafka 2.7.2 take turns on the same directories."""

import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from kctl.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.support import apache_kafka
from tests.support.broker_client import BrokerClient
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
PATIENCE_S = 120
KINDS = ["apache", "kctl"]


class Turns:
    """Broker 0, of one kind at a time, with two log directories."""

    def __init__(self, directory, zookeeper):
        self.directory = directory
        self.zookeeper = zookeeper
        self.dirs = [directory / "one", directory / "two"]
        self.address = None

    @contextmanager
    def broker(self, kind):
        settings = {
            "log.dirs": ",".join(map(str, self.dirs)),
            "replica.fetch.max.bytes": "20000",
            "zookeeper.session.timeout.ms": "3000",
        }
        if kind == "apache":
            home = self.directory / "apache"
            with apache_kafka.apache_broker(home, self.zookeeper, settings=settings) as address:
                self.address = address
                yield
        else:
            options = [w for key, value in settings.items() for w in ("-c", f"{key}={value}")]
            where = ("--zookeeper", self.zookeeper, "-c", "broker.id=0")
            with KctlBroker(self.directory / "kctl", *where, *options) as broker:
                self.address = broker.address
                yield

    def admin(self):
        return AdminClient({"bootstrap.servers": self.address})

    def produce(self, count):
        """The last record's offset."""
        failed, offsets = [], []

        def delivered(error, message):
            (failed if error else offsets).append(error or message.offset())

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5})
        for number in range(count):
            producer.produce("t", b"%d" % number + b"x" * 500, partition=0, on_delivery=delivered)
        assert producer.flush(PATIENCE_S) == 0
        assert failed == []
        return offsets[-1]

    def throttle(self, rate):
        entries = [ConfigEntry(RATE, rate, incremental_operation=AlterConfigOpType.SET)]
        resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        time.sleep(1)

    def send(self, log_dir):
        topic = AlterReplicaLogDirTopic(name="t", partitions=[0])
        wanted = AlterReplicaLogDir(path=str(log_dir), topics=[topic])
        with BrokerClient(self.address) as client:
            [answered] = client.ask(AlterReplicaLogDirsRequest(dirs=[wanted])).results
        assert answered.partitions[0].error_code == 0

    def place(self):
        (found,) = [path for path in self.dirs if (path / "t-0").exists()]
        return found

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came to be: {what}"
            time.sleep(0.2)


@pytest.mark.parametrize(("first", "second"), [KINDS, KINDS[::-1]], ids=KINDS)
def test_a_move_that_one_began_the_other_finishes(tmp_path, first, second):
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        turns = Turns(tmp_path, zookeeper.address)
        with turns.broker(first):
            admin = turns.admin()
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
            turns.until(lambda: list(tmp_path.glob("*/t-0")), "created")
            turns.produce(3000)
            turns.throttle("1")
            source = turns.place()
            (other,) = [path for path in turns.dirs if path != source]
            turns.send(other)
            turns.produce(100)
            turns.until(lambda: list(other.glob("t-0.*-future/*.log")), "begun")
        assert turns.place() == source
        assert [path.name[-7:] for path in other.glob("t-0*")] == ["-future"]
        with turns.broker(second):
            turns.produce(100)
            turns.throttle("100000000")
            turns.until(lambda: not list(other.glob("*-future")), "finished")
            assert turns.place() == other
            turns.produce(100)
        with turns.broker(first):
            assert turns.produce(1) == 3300
