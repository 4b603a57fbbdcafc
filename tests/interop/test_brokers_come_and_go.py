"""Brokers of Kafka 0.7, kctl's and Jafka's, start, stop and are killed under a producer that finds
them in ZooKeeper.

Nothing is acknowledged in 0.7: what a broker that dies has not read is lost, and no client can know
it. Everything else is kept: messages that were sent while all registered brokers lived are in their
logs, and a send that fails raises UnreachableError. KCTL_BROKER07_CHANGES sets the number of
changes.
"""

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kctl.errors import UnreachableError
from kctl.kafka import FetchRequest, KeyedMessage, Producer, SimpleConsumer
from kctl.store.broker07_znodes import decode_broker
from tests.support import apache_kafka
from tests.support.jafka import JafkaBroker, java_with_jafka
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

CHANGES = int(os.environ.get("KCTL_BROKER07_CHANGES", "6"))
SESSION_MS = 3_000
BATCH = 20
PARTITIONS = 2
# States in /proc/net/tcp: established, and closed by the peer alone.
OPEN_STATES = {"01", "08"}


class World:
    """A ZooKeeper, brokers around it, and what a producer has sent."""

    def __init__(self, directory, stack):
        self.port = apache_kafka.free_port()
        stack.enter_context(KctlBroker(directory / "zk", "--zookeeper-port", str(self.port)))
        self.address = f"127.0.0.1:{self.port}/classic"
        self.zookeeper = KazooClient(f"127.0.0.1:{self.port}")
        self.zookeeper.start()
        stack.callback(self.zookeeper.close)
        stack.callback(self.zookeeper.stop)
        self.zookeeper.ensure_path("/classic")
        self.brokers = {0: self._kctl(directory, 0), 1: self._kctl(directory, 1)}
        if (java := java_with_jafka()) is not None:
            self.brokers[2] = JafkaBroker(
                java,
                directory / "jafka",
                brokerid=2,
                **{
                    "enable.zookeeper": "true",
                    "zk.connect": self.address,
                    "zk.sessiontimeout.ms": SESSION_MS,
                    "num.partitions": PARTITIONS,
                },
            )
        self.live, self.gone_ports = set(), set()
        self.safe, self.unsafe = [], []
        stack.callback(self.end)

    def _kctl(self, directory, number):
        settings = {
            "brokerid": number,
            "log.flush.interval": 1,
            "num.partitions": PARTITIONS,
            "zk.sessiontimeout.ms": SESSION_MS,
        }
        flags = [word for name, it in settings.items() for word in ("-c", f"{name}={it}")]
        return KctlBroker(
            directory / f"kctl-{number}", "--kafka-0.7", "--zookeeper", self.address, *flags
        )

    def start(self, number):
        # The znode of a session that was killed stays for a while, and Jafka gives up then.
        wait_for(lambda: number not in self.registered(), lambda: f"{self.registered()}")
        broker = self.brokers[number]
        broker.port = 0
        broker.start()
        self.live.add(number)

    def end_one(self, number, *, kills):
        broker = self.brokers[number]
        self.gone_ports.add(broker.port)
        self.live.discard(number)
        if kills:
            broker.kill()
        else:
            broker.stop()

    def end(self):
        for number in list(self.live):
            self.end_one(number, kills=True)

    def registered(self):
        """Broker id -> port, in ZooKeeper."""
        found = {}
        if self.zookeeper.exists("/classic/brokers/ids"):
            for name in self.zookeeper.get_children("/classic/brokers/ids"):
                with suppress(NoNodeError):
                    data, _ = self.zookeeper.get(f"/classic/brokers/ids/{name}")
                    found[int(name)] = decode_broker(int(name), data).port
        return found

    def settle(self):
        """Wait until exactly the live brokers are registered, and no other has a connection."""
        wanted = {number: self.brokers[number].port for number in self.live}
        wait_for(lambda: self.registered() == wanted, lambda: f"{self.registered()} {wanted}")
        gone = self.gone_ports - set(wanted.values())
        wait_for(lambda: not connected(gone), lambda: f"connections to {connected(gone)}")

    def wait_until_stored(self, payloads):
        """Wait until the live brokers have `payloads`."""
        wait_for(lambda: payloads <= set(self.stored()), lambda: f"{payloads - set(self.stored())}")

    def stored(self):
        """The payloads in the logs of the live brokers."""
        found = []
        for number in self.live:
            with SimpleConsumer("127.0.0.1", self.brokers[number].port, kafka_07=True) as consumer:
                for partition in range(PARTITIONS):
                    offset = 0
                    while messages := list(
                        consumer.fetch(FetchRequest("t", partition, offset, 1 << 20))
                    ):
                        found += [it.message for it in messages]
                        offset = messages[-1].next_offset
        return found


def connected(ports):
    """Those of `ports` to which this process has a connection."""
    found = set()
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state = line.split()[:4]
        if state in OPEN_STATES and (port := int(remote.partition(":")[2], 16)) in ports:
            found.add(port)
    return found


def send(producer, payload):
    """Send a message; whether that succeeded."""
    try:
        producer.send(KeyedMessage("t", payload))
    except UnreachableError:
        return False
    return True


def test_no_message_that_living_brokers_were_sent_is_lost(tmp_path):
    random = Random(7)
    with ExitStack() as stack:
        world = World(tmp_path, stack)
        for number in world.brokers:
            world.start(number)
        world.settle()
        producer = stack.enter_context(Producer({"zk.connect": world.address}))
        for change in range(CHANGES):
            down = sorted(set(world.brokers) - world.live)
            # Every broker goes now and then, and one is always there.
            if down and (len(world.live) == 1 or random.random() < 0.5):
                is_loss = False
                world.start(random.choice(down))
            else:
                is_loss = True
                world.end_one(random.choice(sorted(world.live)), kills=random.random() < 0.7)
            during = [b"%d during %d" % (change, n) for n in range(BATCH)]
            sent = [it for it in during if send(producer, it)]
            (world.unsafe if is_loss else world.safe).extend(sent)
            world.settle()
            after = [b"%d after %d" % (change, n) for n in range(BATCH)]
            assert [it for it in after if not send(producer, it)] == []
            world.safe += after
            # What the brokers have is theirs before one of them dies.
            wanted = set(after if is_loss else [*after, *sent])
            world.wait_until_stored(wanted)
        for number in sorted(set(world.brokers) - world.live):
            world.start(number)
        stored = world.stored()
        assert sorted(set(world.safe) - set(stored)) == []
        assert len(stored) == len(set(stored))
        assert set(stored) <= {*world.safe, *world.unsafe}
