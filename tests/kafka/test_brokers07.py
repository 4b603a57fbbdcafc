"""Brokers of Kafka 0.7 come and go under a producer that finds them in ZooKeeper: on a store, a
network and a clock of the test's own."""

from contextlib import suppress
from random import Random  # noqa: TID251 - the seed enters here
from types import SimpleNamespace

import pytest

from kctl.errors import UnreachableError, UsageError
from kctl.kafka.brokers07 import RegisteredBrokers
from kctl.kafka.connection07 import Pool07
from kctl.kafka.encoders import DefaultEncoder
from kctl.kafka.messages import AnyPartition, Delivery, KeyedMessage
from kctl.kafka.partitioners import DefaultPartitioner
from kctl.kafka.producer07 import ProducerWire07
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.producer_core import Settlement
from kctl.kafka.producer_wires import ZooKeeperWire
from kctl.protocol.kafka07 import MultiProduceRequest, decode_request
from kctl.records.message07 import messages
from kctl.store.broker07_znodes import (
    BrokerInfo07,
    encode_broker,
    encode_partition_count,
    topic_broker_path,
)
from kctl.store.consumer_znodes import BrokerPartition
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import NodeExistsError, NoNodeError
from kctl.store.interface import SessionState
from kctl.store.znodes import broker_path
from tests.support.virtual_runtime import virtual_runtime


class FakeTransport:
    """A connection to a broker that is up; what is sent arrives at once."""

    peer = ("h", 1)

    def __init__(self, network, address, receiver):
        self._network = network
        self._address = address
        self._receiver = receiver
        self.is_open = True

    def send(self, parts):
        if self._address in self._network.up:
            self._network.sent.append((self._address, b"".join(parts)))

    def unsent_bytes(self):
        return 0

    def close(self):
        self.is_open = False

    abort = close

    def lose(self):
        if self.is_open:
            self.is_open = False
            self._receiver.connection_lost(None)


class FakeNetwork:
    """Brokers are addresses that are up or not."""

    def __init__(self, scheduler):
        self.up = set()
        self.sent = []
        self.connections = []
        self._scheduler = scheduler

    def connect(self, host, port, on_connection, timeout_ms, *, tls=None):
        future = self._scheduler.future()
        if (host, port) not in self.up:
            future.set_error(UnreachableError(f"{host}:{port} refused the connection"))
            return future
        transport = FakeTransport(self, (host, port), None)
        transport._receiver = on_connection(transport)
        self.connections.append(transport)
        future.set_result(transport)
        return future

    def stop(self, address):
        self.up.discard(address)
        for it in self.connections:
            if it._address == address:
                it.lose()

    @property
    def open_addresses(self):
        return {it._address for it in self.connections if it.is_open}


class World:
    """A producer's directory, pool and wire above a store in memory."""

    def __init__(self, **settings):
        runtime = virtual_runtime()
        self.network = FakeNetwork(runtime.scheduler)
        self.runtime = SimpleNamespace(
            **{name: getattr(runtime, name) for name in ("clock", "scheduler", "entropy", "trace")},
            network=self.network,
        )
        self.store = EmbeddedStore.in_memory(self.runtime)
        self.brokers = {}
        self.config = ProducerConfig({"zk.connect": "zk", **settings})
        self.pool = Pool07(self.runtime, self.config)
        self.directory = RegisteredBrokers(
            self.runtime,
            EmbeddedStore(self.runtime, self.store.database),
            timeout_ms=6_000,
            when_changed=lambda: self.pool.follow(self.directory.brokers),
        )
        self.wire = ProducerWire07(
            self.runtime,
            self.config,
            Settlement(self.runtime),
            self.directory,
            self.pool,
            encoder=DefaultEncoder(),
            partitioner=DefaultPartitioner(),
        )

    def do(self, coroutine):
        task = self.runtime.scheduler.spawn(coroutine)
        self.runtime.scheduler.settle()
        return task.result()

    def make(self, path, data):
        """Create or replace a znode with its parents."""
        at = ""
        for part in path.strip("/").split("/")[:-1]:
            at += f"/{part}"
            with suppress(NodeExistsError):
                self.store.create(at, b"").result()
        try:
            self.store.create(path, data).result()
        except NodeExistsError:
            self.store.set(path, data).result()
        self.runtime.scheduler.settle()

    def remove(self, path):
        with suppress(NoNodeError):
            self.store.delete(path).result()
        self.runtime.scheduler.settle()

    def start(self, broker_id, port=None):
        port = port or 9000 + broker_id
        self.brokers[broker_id] = ("h", port)
        self.network.up.add(("h", port))
        self.make(broker_path(broker_id), encode_broker("h", port, 1))

    def stop(self, broker_id, topics=()):
        self.network.stop(self.brokers.pop(broker_id))
        for topic in topics:
            self.remove(topic_broker_path(topic, broker_id))
        self.remove(broker_path(broker_id))

    def register(self, topic, broker_id, count):
        self.make(topic_broker_path(topic, broker_id), encode_partition_count(count))

    def open(self):
        self.do(self.wire.open())

    def send(self, *given):
        items = [Delivery(it) for it in given]
        self.do(self.wire.send(items))
        return items

    @property
    def received(self):
        """(port, topic, partition, payload) of everything that arrived."""
        found = []
        for (_, port), frame in self.network.sent:
            request = decode_request(frame[4:])
            parts = request.parts if isinstance(request, MultiProduceRequest) else [request]
            for it in parts:
                found += [
                    (port, it.topic, it.partition, bytes(m.message.payload))
                    for m in messages(it.message_set)
                ]
        return found


def test_partitions_are_sorted_by_broker_and_number():
    world = World()
    for broker_id in (10, 2):
        world.start(broker_id)
        world.register("t", broker_id, 2)
    world.open()
    assert world.do(world.directory.partitions("t")) == [
        BrokerPartition(2, 0),
        BrokerPartition(2, 1),
        BrokerPartition(10, 0),
        BrokerPartition(10, 1),
    ]


def test_a_topic_that_no_broker_has_goes_to_partition_0_of_each():
    world = World()
    world.start(0)
    world.start(1)
    world.open()
    assert world.do(world.directory.partitions("new")) == [(0, 0), (1, 0)]
    world.register("new", 1, 3)
    assert world.do(world.directory.partitions("new")) == [(1, 0), (1, 1), (1, 2)]


def test_the_partitioner_chooses_from_the_sorted_list():
    world = World()
    for broker_id in (0, 1):
        world.start(broker_id)
        world.register("t", broker_id, 2)
    world.open()
    # The hash of an integer is itself.
    world.send(*[KeyedMessage("t", b"%d" % n, n) for n in range(4)])
    assert [it[0] for it in sorted(world.received, key=lambda it: it[3])] == [
        9000,
        9000,
        9001,
        9001,
    ]
    assert [it[2] for it in sorted(world.received, key=lambda it: it[3])] == [0, 1, 0, 1]


def test_a_partitioner_that_leaves_the_list_fails_its_message():
    world = World()
    world.start(0)
    world.open()
    world.wire._partitioner = SimpleNamespace(partition=lambda key, count: count)
    bad, good = world.send(KeyedMessage("t", b"1", "key"), KeyedMessage("t", b"2"))
    assert isinstance(bad.error(), UsageError)
    assert good.error() is None


def test_messages_of_a_producer_data_stay_together():
    world = World()
    for broker_id in range(5):
        world.start(broker_id)
        world.register("t", broker_id, 4)
    world.open()
    choice = AnyPartition(7)
    world.send(*[KeyedMessage("t", b"%d" % n, None, choice) for n in range(9)])
    assert {it[:3] for it in world.received} == {(9001, "t", 3)}
    assert len(world.network.sent) == 1


def test_the_pool_follows_the_watch():
    world = World()
    world.start(0)
    world.start(1)
    world.open()
    for _ in range(20):
        world.send(KeyedMessage("t", b"x"))
    assert world.network.open_addresses == {("h", 9000), ("h", 9001)}
    world.remove(broker_path(1))
    assert world.network.open_addresses == {("h", 9000)}
    assert world.pool.broker_ids == [0]


def test_a_broker_that_moves_gets_a_new_connection():
    world = World()
    world.start(0)
    world.open()
    world.send(KeyedMessage("t", b"1"))
    world.network.stop(("h", 9000))
    world.start(0, port=9100)
    world.send(KeyedMessage("t", b"2"))
    assert [(it[0], it[3]) for it in world.received] == [(9000, b"1"), (9100, b"2")]


def test_a_broker_that_is_registered_but_dead_fails_what_goes_there_after_a_few_looks():
    world = World()
    world.start(0)
    world.open()
    world.network.stop(("h", 9000))
    [lost] = world.send(KeyedMessage("t", b"1"))
    assert isinstance(lost.error(), UnreachableError)
    assert "broker 0" in str(lost.error())


def test_a_dead_broker_is_avoided_by_another_look_for_messages_without_a_key():
    world = World(**{"zk.read.num.retries": "20"})
    world.start(0)
    world.start(1)
    world.open()
    world.network.stop(("h", 9000))
    items = world.send(*[KeyedMessage("t", b"x") for _ in range(50)])
    assert all(it.error() is None for it in items)
    assert {it[0] for it in world.received} == {9001}


def test_without_a_broker_messages_fail_and_pass_again_when_one_comes():
    world = World()
    world.open()
    [lost] = world.send(KeyedMessage("t", b"1"))
    assert "no broker is registered" in str(lost.error())
    world.start(3)
    [sent] = world.send(KeyedMessage("t", b"2"))
    assert sent.error() is None


def test_a_broker_that_cannot_be_read_is_left_out():
    world = World()
    world.start(0)
    world.make(broker_path(1), b"nonsense")
    world.open()
    assert list(world.directory.brokers) == [0]
    assert "broker is not used" in world.runtime.trace.warnings[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_changes_lose_only_what_goes_to_a_dead_broker(seed):
    random = Random(seed)
    world = World()
    world.start(0)
    world.open()
    topics = ("a", "b", "c")
    count = 0
    for change in range(100):
        broker_id = random.randrange(6)
        if broker_id not in world.brokers:
            world.start(broker_id, port=9_100 + change)
        elif random.random() < 0.5 and len(world.brokers) > 1:
            world.stop(broker_id, topics)
        else:
            world.register(random.choice(topics), broker_id, random.randrange(1, 5))
        items = world.send(
            *[
                KeyedMessage(random.choice(topics), b"%d" % (count + n), random.choice([None, n]))
                for n in range(5)
            ]
        )
        count += 5
        assert [it.error() for it in items] == [None] * 5
        assert set(world.pool.broker_ids) <= set(world.brokers)
        assert world.network.open_addresses <= set(world.brokers.values())
    assert sorted(int(it[3]) for it in world.received) == list(range(count))


def test_requests_that_overlap_share_the_connection_that_is_being_made():
    world = World()
    world.network.up.add(("h", 9000))
    connect, started = world.network.connect, []

    def connect_later(*arguments, **settings):
        future = world.runtime.scheduler.future()
        started.append(lambda: future.set_result(connect(*arguments, **settings).result()))
        return future

    world.network.connect = connect_later
    broker = BrokerInfo07(0, "h", 9000)
    spawn, settle = world.runtime.scheduler.spawn, world.runtime.scheduler.settle
    sends = [spawn(world.pool.send(broker, frame)) for frame in (b"first", b"second")]
    settle()
    [finish] = started
    finish()
    settle()
    assert all(it.done and it.error() is None for it in sends)
    assert [frame for _, frame in world.network.sent] == [b"first", b"second"]
    assert len(world.network.connections) == 1


def test_after_a_connection_that_failed_the_next_request_makes_another():
    world = World()
    broker = BrokerInfo07(0, "h", 9000)
    sends = [world.runtime.scheduler.spawn(world.pool.send(broker, b"lost")) for _ in range(2)]
    world.runtime.scheduler.settle()
    assert [type(it.error()) for it in sends] == [UnreachableError] * 2
    world.network.up.add(("h", 9000))
    world.do(world.pool.send(broker, b"sent"))
    assert [frame for _, frame in world.network.sent] == [b"sent"]


def choose(world):
    wire = ZooKeeperWire(
        world.runtime,
        world.config,
        todays=lambda servers: ("today", servers),
        of_07=lambda store: ("0.7", store),
    )
    store = EmbeddedStore(world.runtime, world.store.database)
    return world.do(wire.choose(store))


def test_the_registered_brokers_decide_which_wire_it_is():
    world = World()
    with pytest.raises(UnreachableError, match="no broker is registered"):
        choose(world)
    world.start(0)
    assert choose(world)[0] == "0.7"
    todays = World()
    todays.make(broker_path(0), todays_broker("h", 9092))
    assert choose(todays) == ("today", [("h", 9092)])
    todays.start(1)
    with pytest.raises(UsageError, match="and of later releases"):
        choose(todays)


def todays_broker(host, port):
    return (
        b'{"version":4,"host":"%s","port":%d,"jmx_port":-1,"timestamp":"1","endpoints":'
        b'["PLAINTEXT://%s:%d"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}'
    ) % (host.encode(), port, host.encode(), port)


def test_while_zookeeper_is_away_what_was_read_last_holds():
    world = World()
    world.start(0)
    world.register("t", 0, 2)
    world.open()
    world.send(KeyedMessage("t", b"1"))
    world.directory._client._session_state_changed(SessionState.SUSPENDED)
    [sent] = world.send(KeyedMessage("t", b"2"))
    assert sent.error() is None
    world.network.stop(("h", 9000))
    # No look at ZooKeeper would help: the error is the broker's, and comes at once.
    [lost] = world.send(KeyedMessage("t", b"3"))
    assert "h:9000 refused" in str(lost.error())
