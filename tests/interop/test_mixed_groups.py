"""C2, C3, C4: kctl's ConsumerConnectors in groups of their own, and in one group with Java's 1.1.1.

`KCTL_CLASSIC_EVENTS=100` plays so many events, on four members of each kind;
`KCTL_CLASSIC_KILLS=200` kills so many of twelve members that read 128 partitions.
"""

import os
import re
import signal
import sys
import time
from random import Random

import pytest
from kazoo.client import KazooClient

from kctl.errors import NotFoundError
from kctl.kafka import ConsumerConnector, ConsumerTimeoutError
from tests.support import apache_kafka, java_consumers
from tests.support.api_pages import API
from tests.support.classic_group import (
    Topic,
    Watcher,
    report,
    settled,
    values,
    wrong_deliveries,
)
from tests.support.java_consumers import JavaConsumer
from tests.support.kctl_consumer import KctlConsumer
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka
EVENTS = int(os.environ.get("KCTL_CLASSIC_EVENTS", "8"))
MEMBERS = 4 if EVENTS > 20 else 2
# Up to ten sessions.
PAUSES_S = (1, 5, 20) if EVENTS > 20 else (0.5, 5)
KILLS = int(os.environ.get("KCTL_CLASSIC_KILLS", "3"))
JAVA = {"auto_commit_enable": "true", "auto_commit_interval_ms": 300}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The broker's address and the store's."""
    port = apache_kafka.free_port()
    with KctlBroker(tmp_path_factory.mktemp("b"), "--zookeeper-port", str(port)) as broker:
        yield broker.address, f"127.0.0.1:{port}"


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
            kind = KctlConsumer if number % 2 else JavaConsumer
            play_event(random, topic, alive, join, kind, pauses_s=PAUSES_S)
            wait_for(
                lambda: settled(watcher, topic, everyone),
                lambda n=number: unsettled(n, watcher, topic, everyone),
            )
        ours = [it for it in everyone if isinstance(it, KctlConsumer)]
        report(EVENTS, watcher, topic, everyone, ours)
        assert wrong_deliveries(watcher, ours) == []
        assert sum(len(it.said("message")) for it in ours) > 0
    finally:
        for it in everyone:
            it.close()
        watcher.close()


def unsettled(number, watcher, topic, members):
    missing = set(range(topic.count)) - set(values(members))
    return f"event {number}: {watcher.owners_now(topic.partitions)}, missing {sorted(missing)[:9]}"


def play_event(
    random, topic, alive, join, kind, *, events=("kill", "stop", "leave", "grow"), pauses_s=(0.5, 5)
):
    """One event; there are always members left."""
    member = random.choice(alive)
    event = random.choice(events)
    if event == "grow":
        topic.grow()
    elif event == "stop":
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(random.choice(pauses_s))
        member.process.send_signal(signal.SIGCONT)
    else:
        alive.remove(member)
        if event == "kill":
            member.process.kill()
        else:
            member.shut_down()
        join(kind)


def test_members_that_are_killed_lose_no_message_and_no_partition(cluster):
    """C3: the others own everything again, and so does the one that comes instead."""
    address, zookeeper = cluster
    is_long = KILLS > 20
    topics = [Topic(address, f"k{n}", 16 if is_long else 4) for n in range(8 if is_long else 2)]
    watchers = [Watcher(zookeeper, "k", it.name) for it in topics]
    random = Random(3)
    everyone, alive, pauses_s = [], [], []

    def join():
        member = KctlConsumer(zookeeper, "k", dict.fromkeys((it.name for it in topics), 1))
        everyone.append(member)
        alive.append(member)

    def all_settled():
        return all(map(settled, watchers, topics, [everyone] * len(topics)))

    try:
        for _ in range(12 if is_long else 3):
            join()
        for number in range(KILLS):
            for topic in topics:
                topic.write(2 * topic.partitions)
            wait_for(all_settled, lambda n=number: f"kill {n}: {len(values(everyone))} messages")
            member = alive.pop(random.randrange(len(alive)))
            began = time.monotonic()
            member.process.kill()
            join()
            for topic in topics:
                topic.write(topic.partitions)
            wait_for(all_settled, lambda n=number: f"kill {n}: {len(values(everyone))} messages")
            pauses_s.append(time.monotonic() - began)
        for topic, watcher in zip(topics, watchers, strict=True):
            assert wrong_deliveries(watcher, everyone, topic) == []
        median_s = sorted(pauses_s)[len(pauses_s) // 2]
        sys.stdout.write(
            f"settled after {median_s:.1f} s (median), {max(pauses_s):.1f} s (longest)"
        )
    finally:
        for it in [*everyone, *watchers]:
            it.close()


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
