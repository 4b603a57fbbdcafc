"""Exactly once: copiers that consume, transform and produce in transactions, while the broker and
they themselves are killed at random. What readers of committed data see equals the input.

KCTL_COPIER_RECORDS and KCTL_COPIER_KILLS make it longer; KCTL_COPIER_SEED repeats a schedule.
"""

import os
import random  # noqa: TID251 - seeded
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from tests.support import apache_kafka
from tests.support.copiers import Copiers, Output
from tests.support.kctl_process import KctlBroker
from tests.support.local_cluster import LocalCluster
from tests.support.mixed_cluster import MixedCluster
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.long]

RECORDS = int(os.environ.get("KCTL_COPIER_RECORDS", "6000"))
KILLS = int(os.environ.get("KCTL_COPIER_KILLS", "6"))
SEED = int(os.environ.get("KCTL_COPIER_SEED", "0")) or time.time_ns() % 1_000_000
PARTITIONS = 3
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
TOPICS = ("in", "out", "__consumer_offsets", "__transaction_state")
IN_CLUSTERS = {"zookeeper.session.timeout.ms": "3000", "transaction.state.log.min.isr": "1"}


def options(settings):
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [*words, "-t", f"in:{PARTITIONS}", "-t", f"out:{PARTITIONS}"]


class OneBroker:
    """One broker, which leads every partition and coordinates every group."""

    def __init__(self, directory, stack):
        self._broker = stack.enter_context(KctlBroker(directory, *options(SETTINGS)))

    @property
    def address(self):
        return self._broker.address

    def kill(self, _chance):
        self._broker.kill()
        self._broker.start()


class ThreeBrokers:
    """A local cluster of three; a broker is killed only while all replicas are in sync."""

    def __init__(self, directory, stack):
        words = ["--brokers", "3", *options(SETTINGS | IN_CLUSTERS)]
        self._cluster = stack.enter_context(LocalCluster(directory, *words))

    @property
    def address(self):
        return self._cluster.bootstrap

    def kill(self, chance):
        self._cluster.kill_any(chance, TOPICS)


class BothKinds:
    """Two brokers of kctl and one of Apache Kafka in one cluster; any of them is killed."""

    def __init__(self, directory, stack):
        (directory / "zookeeper").mkdir()
        zookeeper = stack.enter_context(running_zookeeper(directory / "zookeeper"))
        self._cluster = MixedCluster(directory, zookeeper.address)
        stack.callback(self._cluster.close)
        self._cluster.settings |= SETTINGS | IN_CLUSTERS
        self._cluster.settings["transaction.state.log.replication.factor"] = "3"
        self._cluster.start(1, 2, 3)
        turns = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        for topic in ("in", "out"):
            self._cluster.create(topic, *turns)

    @property
    def address(self):
        return self._cluster.bootstrap

    def kill(self, chance):
        self._cluster.until_in_sync((1, 2, 3), *TOPICS)
        self._cluster.kill_and_restart(chance.randrange(1, 4), *TOPICS)


def write_input(address):
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("in", b"%d" % number, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def output_of(place):
    return Output(place.address, "out", PARTITIONS)


@pytest.mark.parametrize(
    "kind", [OneBroker, ThreeBrokers, pytest.param(BothKinds, marks=pytest.mark.kafka)]
)
def test_copies_under_kills_are_the_input_exactly_once(tmp_path, kind):
    if kind is BothKinds and apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    chance = random.Random(SEED)
    expected = Counter(b"copy of %d" % number for number in range(RECORDS))
    with ExitStack() as stack:
        place = kind(tmp_path, stack)
        write_input(place.address)
        copiers, output = Copiers(place, "in", "out", tmp_path), output_of(place)
        try:
            for kill in range(KILLS):
                output.read_until(RECORDS * kill // (KILLS + 1), chance.uniform(0.05, 0.3), copiers)
                victim = chance.randrange(len(copiers.processes) + 1)
                if victim == len(copiers.processes):
                    place.kill(chance)
                else:
                    copiers.kill(victim)
            output.read_until(RECORDS, 0.3, copiers)
            output.read(1)  # what there is too much
        finally:
            copiers.close()
            output.close()
        fresh = output_of(place)
        fresh.read(3)
        fresh.close()
    label = f"seed {SEED}"
    assert len(output.values) >= RECORDS, f"copying came to a stop, {label}"
    assert Counter(output.values) == expected, label
    assert Counter(fresh.values) == expected, label
