"""Producers, transactions and consumers while brokers are killed at random: the checker in the
manner of Jepsen finds no lost write, aborted or dirty read, duplicate or disorder.

KCTL_QUEUE_SECONDS makes it longer; KCTL_QUEUE_SEED repeats a schedule, as far as threads allow.
"""

import os
import random  # noqa: TID251 - seeded
import time

import pytest

from kctl.simulation.queue_checker import Outcome, check
from tests.support.kctl_process import KctlBroker
from tests.support.local_cluster import LocalCluster
from tests.support.queue_workload import QueueWorkload
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("KCTL_QUEUE_SECONDS", "12"))
SEED = int(os.environ.get("KCTL_QUEUE_SEED", "0")) or time.time_ns() % 1_000_000
PARTITIONS = 3
TOPIC = "queue"
TOPICS = (TOPIC, "__transaction_state")
SETTINGS = (
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "transaction.state.log.num.partitions=3",
    "min.insync.replicas=1",
)


def arguments(*settings):
    words = [word for setting in (*SETTINGS, *settings) for word in ("-c", setting)]
    return [*words, "-t", f"{TOPIC}:{PARTITIONS}"]


def is_enough(history):
    """Return whether so much happened that an anomaly could have."""
    outcomes = [write.outcome for write in list(history.writes.values())]
    return outcomes.count(Outcome.OK) > 100 and outcomes.count(Outcome.ABORTED) > 10


def judge(workload):
    """No anomaly, in a run in which enough happened to say so."""
    wait_for(
        lambda: workload.failures or is_enough(workload.history),
        lambda: f"only {len(workload.history.writes)} writes",
    )
    history = workload.finish()
    assert [str(anomaly) for anomaly in check(history)] == [], f"seed {SEED}"
    assert all(reader.seen for reader in history.all_readers())


def test_a_broker_that_is_killed_shows_no_anomaly(tmp_path):
    chance = random.Random(SEED)
    with KctlBroker(tmp_path, *arguments()) as broker:
        workload = QueueWorkload(broker.address, TOPIC, PARTITIONS, SEED).start()
        try:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                time.sleep(chance.uniform(0.3, 2.0))
                broker.kill()
                time.sleep(chance.choice([0, 0, 0.5]))
                broker.start()
            judge(workload)
        finally:
            workload.close()


def test_brokers_of_a_cluster_that_are_killed_show_no_anomaly(tmp_path):
    """Stop leaders and coordinators, one at a time, each when all replicas are in sync."""
    chance = random.Random(SEED)
    words = arguments("zookeeper.session.timeout.ms=3000")
    with LocalCluster(tmp_path, "--brokers", "3", *words) as cluster:
        workload = QueueWorkload(cluster.bootstrap, TOPIC, PARTITIONS, SEED).start()
        try:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                cluster.kill_any(chance, TOPICS)
                time.sleep(chance.uniform(0.3, 1.2))
            judge(workload)
        finally:
            workload.close()
