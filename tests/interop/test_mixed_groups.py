"""C2, C4: kctl's ConsumerConnectors in groups of their own, and in one group with Java's 1.1.1.

`KCTL_CLASSIC_EVENTS=100` plays so many events, on four members of each kind.
"""

import os
import re
import signal
import time
from bisect import bisect_right
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient

from kctl.errors import NotFoundError
from kctl.kafka import ConsumerConnector, ConsumerTimeoutError
from tests.support import apache_kafka, java_consumers
from tests.support.api_pages import API
from tests.support.java_consumers import JavaConsumer
from tests.support.kctl_consumer import KctlConsumer
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka
EVENTS = int(os.environ.get("KCTL_CLASSIC_EVENTS", "8"))
MEMBERS = 4 if EVENTS > 20 else 2
PARTITIONS = 6
JAVA = {"auto_commit_enable": "true", "auto_commit_interval_ms": 300}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The broker's address and the store's."""
    port = apache_kafka.free_port()
    with KctlBroker(tmp_path_factory.mktemp("b"), "--zookeeper-port", str(port)) as broker:
        yield broker.address, f"127.0.0.1:{port}"


class Topic:
    """A topic whose messages are numbers."""

    def __init__(self, address, name, partitions=PARTITIONS):
        self.name, self.partitions, self.count = name, partitions, 0
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address})
        self.producer = Producer({"bootstrap.servers": address})
        for made in self.admin.create_topics([NewTopic(name, partitions)]).values():
            made.result()

    def write(self, count):
        for number in range(self.count, self.count + count):
            self.producer.produce(self.name, str(number), partition=number % self.partitions)
        self.count += count
        self.producer.flush()

    def grow(self):
        self.partitions += 1
        grown = self.admin.create_partitions([NewPartitions(self.name, self.partitions)])
        for it in grown.values():
            it.result()
        # A producer that knew the topic learns of the partition later.
        wait_for(
            lambda: (
                len(self.admin.list_topics(self.name).topics[self.name].partitions)
                == self.partitions
            ),
            lambda: f"no {self.partitions} partitions",
        )
        self.producer = Producer({"bootstrap.servers": self.address})


class Watcher:
    """Every change of owners and of committed offsets, with the time at which it was seen."""

    def __init__(self, zookeeper, group, topic):
        self.client = KazooClient(zookeeper)
        self.client.start()
        self.owners, self.offsets = {}, {}
        for kind, seen in (("owners", self.owners), ("offsets", self.offsets)):
            path = f"/consumers/{group}/{kind}/{topic}"
            self.client.ensure_path(path)
            self.client.ChildrenWatch(path, lambda names, p=path, s=seen: self._follow(p, s, names))

    def _follow(self, path, seen, names):
        for name in names:
            if int(name) not in seen:
                seen[int(name)] = []
            if not seen[int(name)] or seen[int(name)][-1][1] is None:
                self._watch(f"{path}/{name}", seen[int(name)])

    def _watch(self, path, log):
        def changed(data, _stat):
            log.append((time.monotonic(), None if data is None else data.decode()))
            return data is not None

        self.client.DataWatch(path, changed)

    def owners_now(self, partitions):
        logs = [self.owners.get(number) or [(0, None)] for number in range(partitions)]
        return [log[-1][1] for log in logs]

    def last_before(self, log, at):
        place = bisect_right(log, at, key=lambda it: it[0])
        return log[place - 1][1] if place else None

    def close(self):
        self.client.stop()
        self.client.close()


def values(members):
    """All numbers that members of either kind have delivered."""
    return [
        int(message["value"] if isinstance(message, dict) else message[3])
        for it in members
        for message in it.said("message")
    ]


def wrong_deliveries(watcher, members):
    """Deliveries of kctl's members of what another owned, or of what was committed already."""
    wrong = []
    for member in members:
        for _, partition, offset, _, at, consumer_id in member.said("message"):
            owners = watcher.owners.get(partition, [])
            owner = watcher.last_before(owners, at)
            soon = any(at < t < at + 2 and it and consumer_id in it for t, it in owners)
            if owner is not None and consumer_id not in owner and not soon:
                wrong.append(("not the owner", partition, offset, consumer_id, owner))
            committed = watcher.last_before(watcher.offsets.get(partition, []), at)
            if committed is not None and int(committed) > offset:
                wrong.append(("committed", partition, offset, consumer_id, committed))
    return wrong


def settled(watcher, topic, members):
    """Whether every partition has an owner, and everything is delivered."""
    return None not in watcher.owners_now(topic.partitions) and (
        set(values(members)) >= set(range(topic.count))
    )


def test_two_connectors_share_a_topic_and_continue_where_the_other_was(cluster):
    address, zookeeper = cluster
    topic = Topic(address, "shared")
    topic.write(300)
    with KctlConsumer(zookeeper, "s", {"shared": 2}) as first:
        wait_for(lambda: len(values([first])) == 300, lambda: str(first.events[-3:]))
        with KctlConsumer(zookeeper, "s", whitelist="sha.*") as second:
            watcher = Watcher(zookeeper, "s", "shared")
            wait_for(
                lambda: len({o.rpartition("-")[0] for o in watcher.owners_now(6) if o}) == 2,
                lambda: str(watcher.owners_now(6)),
            )
            topic.write(300)
            wait_for(lambda: settled(watcher, topic, [first, second]), lambda: "not all delivered")
            first.shut_down()
            topic.write(300)
            wait_for(lambda: settled(watcher, topic, [first, second]), lambda: "not all delivered")
            second.shut_down()
            # Each commits as it leaves, but for the last message of each stream.
            assert len(values([first, second])) <= 900 + 3
            assert wrong_deliveries(watcher, [first, second]) == []
            watcher.close()


def test_a_member_that_was_stopped_neither_delivers_nor_commits_what_went_to_another(cluster):
    """C4: stopped for three session timeouts."""
    address, zookeeper = cluster
    topic = Topic(address, "zombie", 2)
    with KctlConsumer(zookeeper, "z", {"zombie": 1}) as sleeper:
        topic.write(100)
        wait_for(lambda: len(values([sleeper])) == 100, lambda: str(sleeper.events[-3:]))
        watcher = Watcher(zookeeper, "z", "zombie")
        with KctlConsumer(zookeeper, "z", {"zombie": 1}) as other:
            wait_for(lambda: sleeper_and_other(watcher), lambda: str(watcher.owners_now(2)))
            sleeper.process.send_signal(signal.SIGSTOP)
            wait_for(
                lambda: (
                    len({o for o in watcher.owners_now(2) if o}) == 1
                    and None not in watcher.owners_now(2)
                ),
                lambda: str(watcher.owners_now(2)),
            )
            topic.write(100)
            wait_for(lambda: settled(watcher, topic, [sleeper, other]), lambda: "not delivered")
            sleeper.process.send_signal(signal.SIGCONT)
            wait_for(lambda: sleeper_and_other(watcher), lambda: str(watcher.owners_now(2)))
            topic.write(100)
            wait_for(lambda: settled(watcher, topic, [sleeper, other]), lambda: "not delivered")
            assert wrong_deliveries(watcher, [sleeper, other]) == []
            watcher.close()


def sleeper_and_other(watcher):
    owners = watcher.owners_now(2)
    return None not in owners and len(set(owners)) == 2


def test_kctl_and_java_members_share_a_group_through_events(cluster):
    """C2: kills, pauses, members that come and go, a topic that grows."""
    java_consumers.skip_without_java()
    address, zookeeper = cluster
    topic = Topic(address, "mixed")
    watcher = Watcher(zookeeper, "m", "mixed")
    random = Random(17)
    everyone, alive = [], []

    def join(kind):
        settings = JAVA if kind is JavaConsumer else {}
        member = kind(zookeeper, "m", {"mixed": random.randint(1, 2)}, **settings)
        everyone.append(member)
        alive.append(member)

    try:
        for kind in (KctlConsumer, JavaConsumer):
            for _ in range(MEMBERS):
                join(kind)
        for number in range(EVENTS):
            topic.write(200)
            play_event(random, topic, alive, join, KctlConsumer if number % 2 else JavaConsumer)
            wait_for(
                lambda: settled(watcher, topic, everyone),
                lambda n=number: unsettled(n, watcher, topic, everyone),
            )
        ours = [it for it in everyone if isinstance(it, KctlConsumer)]
        assert wrong_deliveries(watcher, ours) == []
        assert sum(len(it.said("message")) for it in ours) > 0
    finally:
        for it in everyone:
            it.close()
        watcher.close()


def unsettled(number, watcher, topic, members):
    missing = set(range(topic.count)) - set(values(members))
    return f"event {number}: {watcher.owners_now(topic.partitions)}, missing {sorted(missing)[:9]}"


def play_event(random, topic, alive, join, kind):
    """One event; there are always members left."""
    member = random.choice(alive)
    event = random.choice(["kill", "stop", "leave", "grow"])
    if event == "grow":
        topic.grow()
    elif event == "stop":
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(random.choice([0.5, 5]))
        member.process.send_signal(signal.SIGCONT)
    else:
        alive.remove(member)
        if event == "kill":
            member.process.kill()
        else:
            member.shut_down()
        join(kind)


def test_a_stream_times_out_and_can_be_read_again(cluster):
    address, zookeeper = cluster
    topic = Topic(address, "late", 1)
    settings = {"zk.connect": zookeeper, "groupid": "l", "consumer.timeout.ms": 500}
    with ConsumerConnector(settings) as connector:
        [stream] = connector.create_message_streams({"late": 1})["late"]
        with pytest.raises(ConsumerTimeoutError):
            next(stream)
        topic.write(2)
        assert [stream.next().value for _ in range(2)] == [b"0", b"1"]
        # The second is consumed when the message after it is asked for.
        connector.commit_offsets()
    with ConsumerConnector(settings) as connector:
        [stream] = connector.create_message_streams({"late": 1})["late"]
        assert next(stream).offset == 1


def test_the_examples_of_the_documentation_run(cluster):
    address, zookeeper = cluster
    producer = Topic(address, "orders", 1).producer
    for value in ("tea", "coffee"):
        producer.produce("orders", value)
    producer.flush()
    examples = re.findall(
        r"^```py\n(.*?)^```", (API / "kafka.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(examples) == 2
    for text in examples:
        runnable = text.replace("localhost:2181", zookeeper)
        exec(compile(runnable, "docs/api/kafka.md", "exec"), {"__name__": "page"})


def test_a_slow_stream_stops_its_partition_and_not_the_others_of_its_broker(cluster):
    address, zookeeper = cluster
    topic = Topic(address, "slow", 2)
    settings = {
        "zookeeper.connect": zookeeper,
        "group.id": "slow",
        "auto.offset.reset": "smallest",
        "queued.max.message.chunks": 1,
        "fetch.message.max.bytes": 1_000,
        "consumer.timeout.ms": 60_000,
    }
    topic.write(2_000)
    with ConsumerConnector(settings) as connector:
        quick, slow = connector.create_message_streams({"slow": 2})["slow"]
        first = next(slow)
        read = [next(quick) for _ in range(1_000)]
        assert {it.partition for it in read} == {1 - first.partition}
        # What waited is delivered in order, without a gap.
        assert [next(slow).offset for _ in range(999)] == [*range(1, 1_000)]


def test_offsets_in_both_stores_and_none_that_the_broker_has(cluster):
    address, zookeeper = cluster
    topic = Topic(address, "both", 1)
    topic.write(10)
    settings = {
        "zookeeper.connect": zookeeper,
        "group.id": "both",
        "offsets.storage": "kafka",
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": 60_000,
    }
    with ConsumerConnector(settings) as connector:
        [stream] = connector.create_message_streams({"both": 1})["both"]
        assert [next(stream).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        connector.commit_offsets()
    client = KazooClient(zookeeper)
    client.start()
    assert client.get("/consumers/both/offsets/both/0")[0] == b"4"
    # A rewind in ZooKeeper counts only where ZooKeeper is asked.
    client.set("/consumers/both/offsets/both/0", b"2")
    for storage, dual, expected in (("kafka", "true", 4), ("zookeeper", "false", 2)):
        given = {"offsets.storage": storage, "dual.commit.enabled": dual}
        with ConsumerConnector(settings | given | {"auto.commit.enable": "false"}) as connector:
            [stream] = connector.create_message_streams({"both": 1})["both"]
            assert next(stream).offset == expected
    # Beyond the end: a position that the broker does not have.
    client.set("/consumers/both/offsets/both/0", b"99")
    given = {"offsets.storage": "zookeeper", "auto.offset.reset": "none"}
    with ConsumerConnector(settings | given) as connector:
        [stream] = connector.create_message_streams({"both": 1})["both"]
        with pytest.raises(NotFoundError, match="both-0 has no committed offset"):
            next(stream)
    client.stop()
    client.close()
