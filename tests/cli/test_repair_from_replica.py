"""kctl repair-log with other replicas: three brokers, one of them stopped and its log damaged, on
kctl and on Apache Kafka 2.7.2."""

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from kctl.records.memory_records import batches
from tests.support import apache_kafka
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

TOPIC = "orders"
SETTINGS = {"log.segment.bytes": "20000"}


@pytest.fixture(scope="module")
def kctl_cluster(tmp_path_factory):
    """Return the addresses of brokers 1 to 3, their log directories, and a way to stop broker 2."""
    root = tmp_path_factory.mktemp("cluster")
    cluster = LocalCluster(root, "--brokers", "3").start()
    addresses = dict(enumerate(cluster.bootstrap.split(","), 1))
    logs = {number: next(cluster.data.glob(f"**/*{number}/logs")) for number in addresses}
    yield addresses, logs, lambda: cluster.command("stop", "2")
    for pid in cluster.pids():
        os.kill(pid, signal.SIGKILL)
    cluster.process.wait()


@pytest.fixture(scope="module")
def apache_cluster(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(running_zookeeper(tmp_path_factory.mktemp("zookeeper")))
        root = tmp_path_factory.mktemp("apache")
        second = stack.enter_context(ExitStack())
        addresses = {
            number: (second if number == 2 else stack).enter_context(
                apache_kafka.apache_broker(root / str(number), zookeeper.address, broker_id=number)
            )
            for number in (1, 2, 3)
        }
        logs = {number: next((root / str(number)).glob("**/logs")) for number in addresses}
        yield addresses, logs, second.close


@pytest.fixture(params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)], scope="module")
def cluster(request):
    return request.getfixturevalue(f"{request.param}_cluster")


@pytest.fixture
def replicas(cluster, kctl, tmp_path):
    """Return the address of broker 1, its directory of orders-0, and a damaged one of broker 2."""
    addresses, logs, stop_second = cluster
    if not (logs[1] / f"{TOPIC}-0").exists():
        made = kctl(
            "topic", "create", TOPIC, "--replica-assignment", "1:2:3", "-b", addresses[1],
            "-c", "segment.bytes=20000", "-c", "min.insync.replicas=2",
        )  # fmt: skip
        assert made.status == 0, made.err
        # The controller has created it; broker 1 may not know yet.
        wait_for(
            lambda: kctl("topic", "describe", TOPIC, "-b", addresses[1]).status == 0,
            lambda: f"broker 1 does not know {TOPIC}",
        )
        for number in range(6):
            path = tmp_path / "lines"
            path.write_text("".join(f"{number} {n} {'x' * 60}\n" for n in range(200)))
            assert kctl("produce", TOPIC, "-f", path, "-b", addresses[1]).status == 0
        stop_second()
    # A log directory of its own, so that each test has its own damage.
    copy = tmp_path / "logs"
    copy.mkdir()
    for path in logs[2].iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    damaged = shutil.copytree(logs[2] / f"{TOPIC}-0", copy / f"{TOPIC}-0")
    segment = sorted(damaged.glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[batches(bytes(data)).__next__().size - 3] ^= 0x20
    segment.write_bytes(data)
    return addresses[1], logs[1] / f"{TOPIC}-0", damaged


def contents(directory):
    return {
        batch.base_offset: bytes(batch.to_bytes())
        for path in Path(directory).glob("*.log")
        for batch in batches(path.read_bytes())
    }


def test_without_a_cluster_the_command_warns(replicas, kctl):
    _, _, damaged = replicas
    ran = kctl("repair-log", damaged)
    assert ran.status == 1
    assert f"warning: records of {TOPIC}-0 are lost here: offsets " in ran.err
    assert "--from REPLICA; -b HOST:PORT says which brokers have them" in ran.err


def test_with_a_cluster_it_recommends_that_the_broker_copies(replicas, kctl):
    address, _, damaged = replicas
    ran = kctl("repair-log", damaged, "-b", address)
    assert ran.status == 1
    assert f"recommended: do not repair {TOPIC}-0. Broker 1 leads it and is in sync: " in ran.err
    assert f"with broker 2 stopped, move {damaged} out" in ran.err


@pytest.mark.parametrize("source", ["directory", "log directory", "broker", "follower"])
def test_lost_records_come_from_the_replica(replicas, kctl, cluster, source):
    address, other, damaged = replicas
    sources = {
        "directory": other, "log directory": other.parent, "broker": address,
        "follower": cluster[0][3],
    }  # fmt: skip
    words = ["repair-log", damaged, "--from", sources[source]]
    before = {path: path.read_bytes() for path in damaged.iterdir()}
    ran = kctl(*words, "-o", "json")
    assert ran.status == 1
    assert [it["action"] for it in ran.documents].count("take") == 1
    assert "are lost here" not in ran.err
    assert {path: path.read_bytes() for path in damaged.iterdir()} == before
    ran = kctl(*words, "--apply")
    assert ran.status == 0, ran.err
    assert contents(damaged) == contents(other)
    assert kctl("verify-log", damaged).status == 0


def test_a_broker_without_the_partition_is_an_error(replicas, kctl, tmp_path):
    address, _, damaged = replicas
    strange = shutil.copytree(damaged, tmp_path / "other" / "no-such-topic-0")
    ran = kctl("repair-log", strange, "--from", address)
    assert ran.status == 1
    assert f"Cannot read no-such-topic-0 of {address}" in ran.err


def test_from_is_for_a_repair_of_everything(replicas, kctl):
    _, other, damaged = replicas
    ran = kctl("repair-log", damaged, "--from", other, "--rebuild", "all")
    assert ran.status == 2
