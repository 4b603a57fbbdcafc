"""C2: members of kctl's and Java's 1.1.1 in one group, on a real ZooKeeper, while brokers restart.

`KCTL_CLASSIC_EVENTS=100` plays so many events, on four members of each kind, with pauses of up to
20 s, and prints counts.
"""

import os
from random import Random

import pytest

from tests.interop.test_mixed_groups import JAVA, play_event, unsettled
from tests.support import java_consumers
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
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.kafka
EVENTS = int(os.environ.get("KCTL_CLASSIC_EVENTS", "2"))
IS_LONG = EVENTS > 20
PARTITIONS = 12 if IS_LONG else 6
MEMBERS = 4 if IS_LONG else 2
# Up to ten sessions.
PAUSES_S = (1, 5, 20) if IS_LONG else (0.5, 5)
SETTINGS = {
    "default.replication.factor": 2,
    "min.insync.replicas": 1,
    "zookeeper.session.timeout.ms": 2000,
}


@pytest.fixture
def cluster(tmp_path):
    """Two brokers, and the address of their ZooKeeper."""
    java_consumers.skip_without_java()
    settings = [word for it in SETTINGS.items() for word in ("-c", "{}={}".format(*it))]
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as server:
        brokers = [
            KctlBroker(
                tmp_path / f"b{n}", "--zookeeper", server.address, "-c", f"broker.id={n}", *settings
            )
            for n in range(2)
        ]
        try:
            for it in brokers:
                it.start()
            yield brokers, server.address
        finally:
            for it in brokers:
                it.kill()


def test_a_group_of_both_kinds_reads_on_while_brokers_restart(cluster):
    brokers, zookeeper = cluster
    topic = Topic(",".join(it.address for it in brokers), "restarts", PARTITIONS)
    watcher = Watcher(zookeeper, "r", topic.name)
    random = Random(5)
    everyone, alive = [], []

    def join(kind):
        settings = JAVA if kind is JavaConsumer else {}
        everyone.append(kind(zookeeper, "r", {topic.name: 1}, **settings))
        alive.append(everyone[-1])

    def wait_until_settled(number):
        wait_for(
            lambda: settled(watcher, topic, everyone),
            lambda: unsettled(number, watcher, topic, everyone),
        )

    try:
        for kind in (KctlConsumer, JavaConsumer) * MEMBERS:
            join(kind)
        for number in range(EVENTS):
            topic.write(200)
            broker = random.choice(brokers)
            restarts = number % 4 < 3
            if restarts:
                # A producer gives up on messages for a partition without any replica in sync.
                wait_for(topic.is_in_sync, lambda: "a replica stays out of the ISR")
                random.choice([broker.kill, broker.stop])()
            if number % 2:
                # The group changes, in half of the cases while the broker is gone.
                kind = random.choice([KctlConsumer, JavaConsumer])
                names = ("kill", "stop", "leave") if restarts else ("kill", "stop", "leave", "grow")
                play_event(random, topic, alive, join, kind, events=names, pauses_s=PAUSES_S)
            topic.write(200)
            if restarts:
                broker.start()
            wait_until_settled(number)
        ours = [it for it in everyone if isinstance(it, KctlConsumer)]
        report(EVENTS, watcher, topic, everyone, ours)
        assert wrong_deliveries(watcher, ours) == []
        assert 0 < len(values(ours)) < len(values(everyone))
    finally:
        for it in everyone:
            it.close()
        watcher.close()
