"""Plans while a broker of the cluster is down, on kctl and on Apache Kafka 2.7.2."""

import json
import os
import signal
import time
from contextlib import ExitStack

import pytest

from tests.support import apache_kafka
from tests.support.local_cluster import LocalCluster
from tests.support.zookeeper import running_zookeeper

PATIENCE_S = 120
TOPIC = "orders"


@pytest.fixture(scope="module")
def kctl_cluster(tmp_path_factory):
    """Return the address of a cluster and a function that stops its broker 3."""
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), "--brokers", "3").start()
    yield cluster.bootstrap, lambda: cluster.command("stop", "3")
    # A controlled shutdown would wait for replicas on broker 3.
    for pid in cluster.pids():
        os.kill(pid, signal.SIGKILL)
    cluster.process.wait()


@pytest.fixture(scope="module")
def apache_cluster(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(running_zookeeper(tmp_path_factory.mktemp("zookeeper")))
        directory = tmp_path_factory.mktemp("apache")
        third = stack.enter_context(ExitStack())
        addresses = [
            (third if number == 3 else stack).enter_context(
                apache_kafka.apache_broker(
                    directory / str(number), zookeeper.address, broker_id=number
                )
            )
            for number in (1, 2, 3)
        ]
        yield ",".join(addresses[:2]), third.close


@pytest.fixture(params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)], scope="module")
def cluster(request):
    return request.getfixturevalue(f"{request.param}_cluster")


@pytest.fixture
def on(cluster, kctl, tmp_path, monkeypatch):
    """Run a command on a cluster whose broker 3 is down and has replicas of partitions 0 and 1."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    address, stop_third_broker = cluster

    def run(*words):
        return kctl(*words, "-b", address)

    if run("topic", "describe", TOPIC).status:
        made = run("topic", "create", TOPIC, "--replica-assignment", "1:3,2:3,1:2,1:2")
        assert made.status == 0, made.err
        stop_third_broker()
        deadline = time.monotonic() + PATIENCE_S
        while '"alive": false' not in run("broker", "describe", 3, "-o", "json").out:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    return run


INTENTS = [
    ["rebalance", "-t", TOPIC],
    ["rebalance", "-t", TOPIC, "--by", "leaders"],
    ["drain", "2"],
    ["set-rf", TOPIC, "1"],
    ["move", f"{TOPIC}:0", "1", "2"],
    ["swap-leader", f"{TOPIC}:0", "3"],
]


@pytest.mark.parametrize("intent", INTENTS, ids=" ".join)
def test_a_plan_is_refused_and_writes_no_file(on, intent, tmp_path):
    path = tmp_path / "plan.json"
    ran = on("reassign", "plan", *intent, "--out", path)
    assert ran.status == 2
    assert ran.err.startswith("error: Broker 3 is not alive and has ")
    assert "--dead-brokers keep" in ran.err
    assert (ran.out, path.exists()) == ("", False)


def test_a_plan_keeps_or_evacuates_as_the_option_says(on, tmp_path):
    path = tmp_path / "plan.json"
    words = ["reassign", "plan", "rebalance", "-t", TOPIC, "--out", path]
    kept = on(*words, "--dead-brokers", "keep")
    assert kept.status == 0
    assert "Broker 3 is not alive: partitions with a replica there do not change." in kept.err
    ran = on(*words, "--dead-brokers", "evacuate", "-o", "json")
    assert ran.documents["dead_brokers"] == [3]
    assert "warning: Broker 3 is not alive: 2 of its " in ran.err
    assert all(3 not in it["after"] for it in ran.documents["partitions"])
    # The command that runs the plan says it again.
    ran = on("reassign", "execute", path, "-n")
    assert "warning: Broker 3 is not alive: 2 of its " in ran.err


def test_a_drain_of_the_dead_broker_needs_no_option(on):
    ran = on("reassign", "plan", "drain", "3")
    assert ran.status == 0
    assert "3 (dead)" in ran.out
    assert "warning: Broker 3 is not alive: " in ran.err


def test_a_decommission_beside_a_dead_broker_is_refused(on):
    ran = on("broker", "decommission", "1", "-n")
    assert ran.status == 2
    assert ran.err.startswith("error: Broker 3 is not alive and has ")
    # Without broker 3's partitions, the plan fails for another reason: one broker is left.
    ran = on("broker", "decommission", "1", "-n", "--dead-brokers", "keep")
    assert ran.err.startswith(f"error: {TOPIC}-2 has 2 replicas: more than 1 broker")


def test_generate_warns_of_the_replicas_that_it_takes_from_a_dead_broker(on, tmp_path):
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}]}))
    words = ["reassign", "--generate", "--topics-to-move-json-file", path]
    ran = on(*words, "--broker-list", "1,2")
    assert ran.status == 0
    assert ran.err == (
        "warning: Broker 3 is not alive: 2 of its 2 replicas are moved to other brokers.\n"
    )
    ran = on(*words, "--broker-list", "1,2,3")
    assert (ran.status, ran.err.splitlines()[0]) == (1, "error: Broker 3 is not alive")


def test_the_directories_of_a_dead_broker_are_not_planned(on):
    ran = on("reassign", "plan", "log-dirs", "3")
    assert (ran.status, ran.err.splitlines()[0]) == (1, "error: Broker 3 is not alive")
    ran = on("reassign", "plan", "log-dirs")
    assert ran.status == 0
    assert "Broker 3 is not alive: the plan contains no directories of dead brokers." in ran.err
