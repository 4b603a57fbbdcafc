"""C9: groups on ZooKeeper that kctl's ConsumerConnectors share with npm's kafka-node and Go's
wvanbergen/kafka, on kctl's own ZooKeeper and on Apache's.

`KCTL_CLASSIC_EVENTS=100` plays so many events in each group; `KCTL_CLASSIC_KILLS=20` plays so many,
all of which kill a member. Both print counts.
"""

import os
import signal
import time
from random import Random

import pytest

from tests.support import apache_kafka
from tests.support.classic_group import (
    Topic,
    Watcher,
    report,
    settled,
    values,
    wrong_deliveries,
)
from tests.support.kctl_consumer import KctlConsumer
from tests.support.kctl_process import KctlBroker
from tests.support.other_consumers import OtherConsumer, kafka_node, wvanbergen_kafka
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.kafka
KILLS = int(os.environ.get("KCTL_CLASSIC_KILLS", "0"))
EVENTS = KILLS or int(os.environ.get("KCTL_CLASSIC_EVENTS", "3"))
KINDS = ["kill"] if KILLS else ["kill", "stop", "leave"]
PARTITIONS = 8
# Two sessions.
PAUSE_S = 4


@pytest.fixture(scope="module", params=["kctl", "apache"])
def cluster(request, tmp_path_factory):
    """The address of a broker of kctl's, and that of its ZooKeeper."""
    directory = tmp_path_factory.mktemp("b")
    if request.param == "kctl":
        port = apache_kafka.free_port()
        with KctlBroker(directory, "--zookeeper-port", str(port)) as broker:
            yield broker.address, f"127.0.0.1:{port}"
    else:
        with (
            running_zookeeper(tmp_path_factory.mktemp("z")) as server,
            KctlBroker(directory, "--zookeeper", server.address) as broker,
        ):
            yield broker.address, server.address


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """The command line of a member of each kind."""
    return {
        "kafka-node": kafka_node,
        "wvanbergen": lambda: wvanbergen_kafka(tmp_path_factory.mktemp("go")),
    }


@pytest.mark.parametrize("kind", ["kafka-node", "wvanbergen"])
def test_members_of_both_kinds_share_a_group_through_events(cluster, commands, kind):
    """Kills, pauses, members that come and go."""
    command = commands[kind]()
    address, zookeeper = cluster
    # kafka-node takes the padding of converted batches for messages.
    topic = Topic(address, f"shared-{kind}", PARTITIONS, message_format_version="0.9.0")
    watcher = Watcher(zookeeper, kind, topic.name)
    random = Random(9)
    everyone, alive = [], []

    def join(is_ours):
        if is_ours:
            member = KctlConsumer(zookeeper, kind, {topic.name: 1})
        else:
            member = OtherConsumer(command, zookeeper, kind, topic.name)
        everyone.append(member)
        alive.append((member, is_ours))

    def all_settled():
        return settled(watcher, topic, everyone) and watcher.is_as_assigned(topic.partitions)

    try:
        for is_ours in (True, False) * 2:
            join(is_ours)
        for number in range(-1, EVENTS):
            topic.write(100)
            if number >= 0:
                play_event(random, alive, join)
            topic.write(100)
            wait_for(all_settled, lambda n=number: unsettled(n, watcher, topic, everyone))
        ours = [it for it in everyone if isinstance(it, KctlConsumer)]
        report(EVENTS, watcher, topic, everyone, ours)
        assert wrong_deliveries(watcher, ours) == []
        assert values(ours)
        assert len(values(everyone)) > len(values(ours))
    finally:
        for it in everyone:
            it.close()
        watcher.close()


def play_event(random, alive, join):
    """One event; as many members of each kind are left."""
    event = random.choice(KINDS)
    member, is_ours = random.choice(alive)
    if event == "stop":
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(random.choice([0.5, PAUSE_S]))
        member.process.send_signal(signal.SIGCONT)
        return
    alive.remove((member, is_ours))
    if event == "kill":
        member.process.kill()
    else:
        member.shut_down()
    join(is_ours)


def unsettled(number, watcher, topic, members):
    missing = sorted(set(range(topic.count)) - set(values(members)))
    errors = [it.said("error")[-2:] for it in members]
    owners = watcher.owners_now(topic.partitions)
    return f"event {number}: {owners}, missing {missing[:9]}, errors {errors}"
