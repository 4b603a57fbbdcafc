"""C8: samsa, a client of Kafka 0.7, in a group on `kctl serve --kafka-0.7` and its ZooKeeper."""

import contextlib

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kctl.records.message07 import message_set
from tests.support import apache_kafka
from tests.support.classic_group import values
from tests.support.kctl_broker07 import write07
from tests.support.kctl_consumer import KctlConsumer
from tests.support.kctl_process import KctlBroker
from tests.support.other_consumers import OtherConsumer, samsa
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka
PARTITIONS = 4
BATCH = 20


class Group:
    """A topic of numbers, and the members that read it."""

    def __init__(self, broker, zookeeper):
        self.broker, self.zookeeper = broker, zookeeper
        self.written, self.members = 0, []
        self.client = KazooClient(zookeeper)
        self.client.start()

    def write(self):
        for partition in range(PARTITIONS):
            numbers = range(self.written + partition, self.written + BATCH, PARTITIONS)
            payloads = [b"%d" % it for it in numbers]
            write07(self.broker.port, "t", message_set(payloads), partition)
        self.written += BATCH

    def join(self, member):
        self.members.append(member)
        wait_for(lambda: member.said("started"), lambda: f"{member.events} {member.errors}")
        return member

    def owners(self):
        """What the owner znodes hold."""
        path = "/consumers/g/owners/t"
        names = self.client.get_children(path) if self.client.exists(path) else []
        found = []
        for it in names:
            with contextlib.suppress(NoNodeError):
                found.append(self.client.get(f"{path}/{it}")[0].decode())
        return found

    def wait_until_owned_by(self, *members):
        """Wait until each has its share of the partitions."""
        ids = sorted(it.said("started")[0] for it in members)
        expected = sorted(ids * (PARTITIONS // len(members)))
        wait_for(
            lambda: sorted(self.owners()) == expected, lambda: f"{self.owners()}, not {expected}"
        )

    def wait_until_read(self):
        wait_for(
            lambda: set(values(self.members)) >= set(range(self.written)),
            lambda: f"{sorted(set(range(self.written)) - set(values(self.members)))} are missing",
        )


@pytest.fixture
def group(tmp_path):
    port = apache_kafka.free_port()
    options = ("--kafka-0.7", "--zookeeper-port", str(port), "-c", f"num.partitions={PARTITIONS}")
    with KctlBroker(tmp_path, *options) as broker:
        group = Group(broker, f"127.0.0.1:{port}")
        yield group
        for it in group.members:
            it.close()
        group.client.stop()
        group.client.close()


def test_its_members_share_a_topic_and_a_member_of_kctl_continues_after_the_last(group):
    command = samsa()

    def join():
        return group.join(OtherConsumer(command, group.zookeeper, "g", "t"))

    group.write()
    first = join()
    group.wait_until_owned_by(first)
    second = join()
    group.wait_until_owned_by(first, second)
    group.write()
    group.wait_until_read()
    second.process.kill()
    group.wait_until_owned_by(first)
    third = join()
    group.wait_until_owned_by(first, third)
    group.write()
    group.wait_until_read()
    first.shut_down()
    group.wait_until_owned_by(third)
    # samsa counts only its own members, so it keeps all partitions, and kctl's member waits.
    ours = KctlConsumer(group.zookeeper, "g", {"t": 1})
    group.members.append(ours)
    ids = "/consumers/g/ids"
    wait_for(lambda: len(group.client.get_children(ids)) == 2, lambda: "not registered")
    group.write()
    group.wait_until_read()
    assert values([ours]) == []
    # It commits as it leaves.
    third.shut_down()
    group.write()
    group.wait_until_read()
    assert sorted(values([ours])) == [*range(group.written - BATCH, group.written)]
