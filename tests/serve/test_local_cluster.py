"""kctl serve --brokers N and kctl broker: several processes, one command."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kctl.cli import app
from tests.support.apache_kafka import free_port
from tests.support.kctl_process import KctlBroker
from tests.support.local_cluster import PATIENCE_S, LocalCluster, until
from tests.support.words import produce, read


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def cluster(tmp_path):
    with LocalCluster(tmp_path, "--brokers", "3", "--racks", "a,b,c", "-t", "orders:3") as cluster:
        yield cluster


@pytest.mark.slow
def test_three_brokers_are_ready_with_their_topic_and_stop_in_good_order(cluster):
    rows = cluster.brokers()
    assert [(row["state"], row["rack"], row["deaths"]) for row in rows.values()] == [
        ("running", rack, 0) for rack in "abc"
    ]
    assert cluster.bootstrap == ",".join(row["address"] for row in rows.values())
    assert cluster.isr("orders") == {number: {1, 2, 3} for number in range(3)}
    produce(cluster.bootstrap, "orders", [str(n) for n in range(100)])
    pids = cluster.pids()
    assert len(pids) == 5
    assert cluster.stop(signal.SIGINT) == 0
    assert all(map(is_gone, pids))
    said = cluster.log.read_text()
    assert not [word for word in ("Unexpected", "Traceback", "again in", "killed") if word in said]
    assert cluster.output.read_text().count("\n") == 1
    for number in (1, 2, 3):
        assert (cluster.data / f"broker-{number}" / "logs" / ".kafka_cleanshutdown").exists()
    assert cluster.command("list").returncode == 3
    # The next start finds it all.
    cluster.start()
    assert len(read(cluster.bootstrap, "orders", 3, 100)) == 100


@pytest.mark.slow
def test_brokers_are_stopped_killed_and_restarted_by_command(cluster):
    addresses = {number: row["address"] for number, row in cluster.brokers().items()}
    states = {number: row["state"] for number, row in cluster.brokers("stop", "2").items()}
    assert states == {1: "running", 2: "stopped", 3: "running"}
    # In good order: others know at once.
    until(lambda: cluster.isr("orders") == everywhere({1, 3}))
    produce(cluster.bootstrap, "orders", ["while two were there"])
    assert cluster.brokers("restart", "2")[2]["address"] == addresses[2]
    until(lambda: cluster.isr("orders") == everywhere({1, 2, 3}))
    assert cluster.brokers("kill", "3")[3] == {
        **cluster.brokers()[3], "state": "stopped", "pid": None, "address": None, "deaths": 0,
    }  # fmt: skip
    assert cluster.brokers("restart", "3")[3]["address"] == addresses[3]
    assert read(cluster.bootstrap, "orders", 3, 1) == ["while two were there"]
    missing = cluster.command("stop", "7")
    assert missing.returncode == 1
    assert missing.stderr == "error: no broker 7 in this cluster: there are 1, 2, 3\n"


@pytest.mark.slow
def test_a_broker_is_drained_and_stopped_for_good(cluster):
    assert cluster.isr("orders")[0] == {1, 2, 3}
    words = ("reassign", "plan", "set-rf", "orders", "2", "--out", cluster.data / "plan.json")
    cluster.kctl(*words)
    cluster.kctl("reassign", "execute", cluster.data / "plan.json", "--wait", "-y")
    cluster.kctl("broker", "decommission", "3", "--stop", cluster.data, "-y")
    states = {number: row["state"] for number, row in cluster.brokers().items()}
    assert states == {1: "running", 2: "running", 3: "stopped"}
    assert cluster.isr("orders") == {number: {1, 2} for number in range(3)}


@pytest.mark.slow
def test_broker_and_store_that_die_are_started_again_and_nothing_is_lost(cluster):
    produce(cluster.bootstrap, "orders", [f"before-{n}" for n in range(50)])
    before = cluster.brokers()
    os.kill(before[1]["pid"], signal.SIGKILL)
    store = next(pid for pid in cluster.pids() if comm(pid) == "kctl store")
    os.kill(store, signal.SIGKILL)
    until(lambda: cluster.brokers()[1]["state"] == "running")
    after = cluster.brokers()
    assert after[1]["deaths"] == 1
    assert (after[1]["address"], after[2]["pid"]) == (before[1]["address"], before[2]["pid"])
    until(lambda: cluster.isr("orders") == everywhere({1, 2, 3}))
    produce(cluster.bootstrap, "orders", [f"after-{n}" for n in range(50)])
    assert len(read(cluster.bootstrap, "orders", 3, 100)) == 100


@pytest.mark.slow
def test_nothing_is_left_running_when_the_supervisor_is_killed(cluster):
    pids = cluster.pids()
    cluster.process.kill()
    cluster.process.wait()
    until(lambda: all(map(is_gone, pids)))
    for number in (1, 2, 3):
        assert (cluster.data / f"broker-{number}" / "logs" / ".kafka_cleanshutdown").exists()
    listed = cluster.command("list")
    assert listed.returncode == 3
    assert "no local cluster runs on" in listed.stderr


@pytest.mark.slow
def test_two_brokers_join_a_store_elsewhere_and_need_none_of_their_own(tmp_path):
    port = free_port()
    with (
        KctlBroker(tmp_path / "first", "--zookeeper-port", str(port)) as first,
        LocalCluster(
            tmp_path, "--brokers", "2", "--zookeeper", f"127.0.0.1:{port}", "--durable"
        ) as joined,
    ):
        assert sorted(map(comm, joined.pids()))[:2] == ["kctl broker 1", "kctl broker 2"]
        assert len(joined.pids()) == 3
        seen = AdminClient({"bootstrap.servers": first.address}).list_topics(timeout=60).brokers
        assert sorted(seen) == [0, 1, 2]
        produce(joined.bootstrap, "by-itself", ["x"])
        assert read(first.address, "by-itself", 1, 1) == ["x"]
        assert not (joined.data / "metadata").exists()
        assert joined.stop() == 0


@pytest.mark.slow
def test_durable_cluster_loses_nothing_when_all_of_it_is_killed(tmp_path):
    cluster = LocalCluster(tmp_path, "--brokers", "2", "-t", "orders:2", "--durable").start()
    produce(cluster.bootstrap, "orders", [str(n) for n in range(20)])
    pids = cluster.pids()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    cluster.process.wait()
    until(lambda: all(map(is_gone, pids)))
    with cluster:
        assert len(read(cluster.bootstrap, "orders", 2, 20)) == 20


@pytest.mark.slow
def test_broker_that_cannot_start_ends_the_start_and_leaves_nothing_running(tmp_path):
    with taken_port_behind_a_free_one() as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "kctl", "serve", "-D", str(tmp_path / "data"),
             "--brokers", "2", "--port", str(port - 1)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"broker 2: cannot listen on 127.0.0.1:{port}" in done.stderr
    assert not (tmp_path / "data" / "cluster.json").exists()


def taken_port_behind_a_free_one():
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
            return taken
        taken.close()


def everywhere(brokers):
    return dict.fromkeys(range(3), brokers)


def comm(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--brokers", "0"), "--brokers must be at least 1"),
        (("--racks", "a"), "--racks goes with --brokers"),
        (("--brokers", "2", "-c", "log.dirs=/x"), "log.dirs cannot be the same"),
        (("--brokers", "2", "-l", "PLAINTEXT://:1"), "--listener is for one broker"),
        (("--brokers", "2", "-c", "num.partitions=x"), "num.partitions"),
    ],
)
def test_misuse_is_reported_before_anything_starts(tmp_path, capfd, arguments, words):
    status = app.run(["serve", "-D", str(tmp_path / "data"), *arguments])
    assert status == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / "data").exists()


def test_data_of_one_broker_and_of_a_cluster_are_not_mixed_up(tmp_path):
    def serve(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "kctl", "serve", "-D", str(tmp_path), *arguments],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    (tmp_path / "logs").mkdir()
    done = serve("--brokers", "2")
    assert (done.returncode, "contains a single broker's data" in done.stderr) == (2, True)
    (tmp_path / "logs").rmdir()
    (tmp_path / "broker-1").mkdir()
    done = serve()
    assert (done.returncode, "contains a cluster's data" in done.stderr) == (2, True)
