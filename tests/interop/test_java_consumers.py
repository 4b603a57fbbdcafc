"""Consumers of Apache Kafka 1.1.1 on the store and the broker of one `kctl serve`."""

import json
import subprocess
import sys

import pytest

from tests.support import apache_kafka, java_consumers
from tests.support.java_consumers import JavaConsumer, java_assignments
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka
PARTITIONS = 4
RECORDS = 5


@pytest.fixture(scope="module", autouse=True)
def needs_java():
    java_consumers.skip_without_java()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The broker's address and the store's."""
    port = apache_kafka.free_port()
    with KctlBroker(tmp_path_factory.mktemp("b"), "--zookeeper-port", str(port)) as broker:
        kctl(broker, "topic", "create", "t", "--partitions", PARTITIONS)
        for partition in range(PARTITIONS):
            lines = "".join(f"{number}\n" for number in range(RECORDS))
            kctl(broker, "produce", "t", "-p", partition, stdin=lines)
        yield broker.address, f"127.0.0.1:{port}"


def kctl(broker, *words, stdin=""):
    command = [sys.executable, "-m", "kctl", *map(str, words), "-b", broker.address]
    subprocess.run(command, input=stdin, text=True, check=True, capture_output=True)


def partitions(*members):
    return sorted(int(number) for it in members for number in it.owned.get("t", ()))


def test_two_members_share_a_topic_and_deliver_what_was_not_committed(cluster):
    _, zookeeper = cluster
    with JavaConsumer(zookeeper, "g", {"t": 2}) as first:
        first.wait_until_started()
        wait_for(lambda: len(first.messages) == PARTITIONS * RECORDS, lambda: str(first.events))
        first.commit()
        with JavaConsumer(zookeeper, "g", whitelist="t.*") as second:
            second.wait_until_started()
            wait_for(
                lambda: first.owned and second.owned and
                partitions(first, second) == [*range(PARTITIONS)],
                lambda: f"{first.owned} {second.owned}",
            )  # fmt: skip
            assert second.positions()["t"] == dict.fromkeys(second.owned["t"], RECORDS)
            first.shut_down()
            wait_for(lambda: len(partitions(second)) == PARTITIONS, lambda: str(second.owned))
            assert second.messages == []


def test_the_assignors_answer_for_groups_of_either_strategy():
    ids = {
        "g_h-1-a": json.dumps({"version": 1, "subscription": {"t": 2}, "pattern": "static"}),
        "g_h-2-b": json.dumps({"version": 1, "subscription": {"t": 1}, "pattern": "static"}),
    }
    group = {"group": "g", "ids": ids, "topics": {"t": 5}}
    ranges, turns = java_assignments(group | {"strategy": it} for it in ("range", "roundrobin"))
    assert ranges == {"t": {
        "0": "g_h-1-a-0", "1": "g_h-1-a-0", "2": "g_h-1-a-1", "3": "g_h-1-a-1", "4": "g_h-2-b-0",
    }}  # fmt: skip
    assert sorted(turns["t"]) == ["0", "1", "2", "3", "4"]
