"""D2: a live group of kctl's and Java's members moves its offsets from ZooKeeper to Kafka and back,
one member at a time, while messages are written.

`KCTL_CLASSIC_MIGRATIONS=5` goes there and back so often, with two members of each kind.
"""

import os
from collections import Counter
from threading import Event, Thread

import pytest

from tests.support import apache_kafka, java_consumers
from tests.support.classic_group import Topic, Watcher, settled, values
from tests.support.java_consumers import JavaConsumer
from tests.support.kctl_consumer import KctlConsumer
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka
ROUNDS = int(os.environ.get("KCTL_CLASSIC_MIGRATIONS", "1"))
MEMBERS = 1 if ROUNDS == 1 else 2
JAVA = {"auto_commit_enable": "true", "auto_commit_interval_ms": 300}
# The settings of each step; the first are those that the group begins with.
STEPS = [
    {"offsets_storage": storage, "dual_commit_enabled": is_dual}
    for storage, is_dual in (("kafka", "true"), ("kafka", "false"), ("kafka", "true"))
] + [{"offsets_storage": "zookeeper", "dual_commit_enabled": "false"}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The broker's address and the store's."""
    java_consumers.skip_without_java()
    port = apache_kafka.free_port()
    with KctlBroker(tmp_path_factory.mktemp("b"), "--zookeeper-port", str(port)) as broker:
        yield broker.address, f"127.0.0.1:{port}"


class Load:
    """Writes messages until it is stopped."""

    def __init__(self, topic):
        self._topic = topic
        self._is_over = Event()
        self._thread = Thread(target=self._write, daemon=True)

    def _write(self):
        while not self._is_over.wait(0.05):
            self._topic.write(self._topic.partitions * 2)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()


def test_a_live_group_moves_to_kafka_and_back_one_member_at_a_time(cluster):
    address, zookeeper = cluster
    topic = Topic(address, "rolling")
    watcher = Watcher(zookeeper, "r", "rolling")
    everyone, alive = [], []

    def join(kind, step):
        common = JAVA if kind is JavaConsumer else {}
        member = kind(zookeeper, "r", {"rolling": 1}, **common, **step)
        everyone.append(member)
        return member

    def wait_until_settled():
        wait_for(
            lambda: settled(watcher, topic, everyone),
            lambda: f"{watcher.owners_now(topic.partitions)}, {len(values(everyone))} messages",
        )

    try:
        alive = [join(kind, STEPS[-1]) for kind in (KctlConsumer, JavaConsumer) * MEMBERS]
        topic.write(2_000)
        wait_until_settled()
        for step in STEPS * ROUNDS:
            for place, member in enumerate(alive):
                with Load(topic):
                    member.shut_down()
                    alive[place] = join(type(member), step)
                wait_until_settled()
        for member in alive:
            member.shut_down()
        counts = Counter(values(everyone))
        assert set(counts) == set(range(topic.count))
        # A member that leaves, or gives up a partition, commits: at most the message in work comes
        # again.
        # A step that forgot the offsets would deliver thousands again.
        handovers = 2 * len(STEPS) * ROUNDS * len(alive)
        assert sum(counts.values()) - len(counts) <= handovers * topic.partitions
    finally:
        for it in everyone:
            it.close()
        watcher.close()
