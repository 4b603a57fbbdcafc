"""A broker whose ZooKeeper is gone, silent or emptied: it says so, and it can be stopped."""

import json
import signal
import subprocess
import sys

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.kctl_process import KctlBroker, serve_to_end
from tests.support.waiting import PATIENCE_S, wait_for
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# The longest that a stop may take here: far more than the sum of its own limits.
STOP_S = 120
SESSION_MS = 3_000


@pytest.fixture
def server(tmp_path):
    directory = tmp_path / "zookeeper"
    directory.mkdir()
    with running_zookeeper(directory) as server:
        yield server


def make_broker(directory, server, number=1):
    return KctlBroker(
        directory, "--zookeeper", server.address, "-c", f"broker.id={number}",
        "-c", f"zookeeper.session.timeout.ms={SESSION_MS}",
        "-c", "offsets.topic.replication.factor=1",
    )  # fmt: skip


def registration(server, number=1):
    client = KazooClient(server.address)
    client.start()
    try:
        return json.loads(client.get(f"/brokers/ids/{number}")[0])
    except NoNodeError:
        return None
    finally:
        client.stop()
        client.close()


def test_a_broker_stops_in_good_order_without_zookeeper(tmp_path, server):
    with make_broker(tmp_path, server) as broker:
        server.kill()
        broker.wait_for_line(f"ZooKeeper at {server.address} is unreachable")
        assert broker.stop(STOP_S) == 0
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()


def test_two_brokers_stop_without_zookeeper(tmp_path, server):
    """Each would have the controller move its leaders first."""
    with (
        make_broker(tmp_path / "1", server, 1) as one,
        make_broker(tmp_path / "2", server, 2) as two,
    ):
        server.kill()
        one.wait_for_line("is unreachable")
        two.wait_for_line("is unreachable")
        for broker in (one, two):
            assert broker.stop(STOP_S) == 0
            assert (broker.log_dir / ".kafka_cleanshutdown").exists()


def test_a_broker_stops_in_good_order_while_zookeeper_is_silent(tmp_path, server):
    with make_broker(tmp_path, server) as broker:
        server.pause()
        try:
            assert broker.stop(STOP_S) == 0
            assert (broker.log_dir / ".kafka_cleanshutdown").exists()
        finally:
            server.resume()


def test_a_start_without_zookeeper_says_what_is_missing(tmp_path):
    ended = serve_to_end(
        "--data-dir", tmp_path, "--port", 0, "--zookeeper", "127.0.0.1:1",
        "-c", "zookeeper.connection.timeout.ms=3000",
    )  # fmt: skip
    assert ended.returncode != 0
    assert "Waiting for ZooKeeper at 127.0.0.1:1: Connection refused" in ended.stderr
    assert "no answer from ZooKeeper at 127.0.0.1:1" in ended.stderr


def test_a_broker_that_was_stopped_and_continued_registers_again(tmp_path, server):
    with make_broker(tmp_path, server) as broker:
        before = registration(server)
        broker.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: registration(server) is None, lambda: "the session never ends")
        broker.process.send_signal(signal.SIGCONT)
        wait_for(lambda: registration(server) is not None, lambda: broker.errors)
        assert registration(server)["endpoints"] == before["endpoints"]
        assert "has ended" in broker.errors
        assert broker.stop(STOP_S) == 0


def test_an_emptied_zookeeper_is_reported_and_not_used(tmp_path, server):
    """Decision 0050: a store that no longer belongs to this cluster gets no controller."""
    with make_broker(tmp_path, server) as broker:
        server.wipe()
        broker.wait_for_line("has no /cluster/id")
        assert registration(server) is None
        assert broker.stop(STOP_S) == 0


def test_a_broker_registers_again_when_zookeeper_has_its_data_back(tmp_path, server):
    with make_broker(tmp_path, server) as broker:
        client = KazooClient(server.address)
        client.start()
        cluster_id, _ = client.get("/cluster/id")
        client.stop()
        server.wipe()
        broker.wait_for_line("has no /cluster/id")
        client.start()
        for path in ("/brokers/ids", "/brokers/topics", "/config/topics", "/config/brokers"):
            client.ensure_path(path)
        client.ensure_path("/cluster")
        client.create("/cluster/id", cluster_id)
        client.stop()
        client.close()
        wait_for(lambda: registration(server) is not None, lambda: broker.errors)
        assert broker.stop(STOP_S) == 0


# `kctl serve` with a flaw: after a line of input, the thread of kazoo ends by an error.
DYING_CLIENT = """
import ctypes, sys, threading
from kctl.__main__ import main
from kctl.store.zookeeper_thread import InlineHandler

spawn, started = InlineHandler.spawn, []

def remembered(handler, function, *args, **options):
    started.append(spawn(handler, function, *args, **options))
    return started[-1]

def kill():
    sys.stdin.readline()
    error = ctypes.py_object(MemoryError)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(started[-1].ident), error)

InlineHandler.spawn = remembered
threading.Thread(target=kill, daemon=True).start()
main()
"""


def test_a_broker_whose_zookeeper_client_has_died_ends_with_an_error(tmp_path, server):
    ready = tmp_path / "ready"
    with subprocess.Popen(
        [sys.executable, "-c", DYING_CLIENT, "serve", "--data-dir", tmp_path / "data",
         "--port", "0", "--ready-file", ready, "--zookeeper", server.address,
         "-c", "broker.id=1", "-c", f"zookeeper.session.timeout.ms={SESSION_MS}"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as broker:  # fmt: skip
        wait_for(ready.exists, lambda: "it does not start")
        _, errors = broker.communicate("die\n", PATIENCE_S)
    assert broker.returncode == 3
    assert f"the client of ZooKeeper at {server.address} has ended: MemoryError" in errors
    # It stopped in good order.
    assert (tmp_path / "data" / "logs" / ".kafka_cleanshutdown").exists()


def test_a_start_with_an_emptied_zookeeper_fails_and_writes_nothing(tmp_path, server):
    """A new cluster id would let the next broker that starts begin without the cluster's topics."""
    with make_broker(tmp_path, server) as broker:
        cluster_id = cluster_id_of(broker)
        assert broker.stop(STOP_S) == 0
    server.wipe()
    ended = serve_to_end(
        "--data-dir", tmp_path / "data", "--port", 0, "--zookeeper", server.address,
        "-c", "broker.id=1",
    )  # fmt: skip
    assert ended.returncode == 2
    assert f"ZooKeeper at {server.address} has no /cluster/id" in ended.stderr
    assert f"belong to cluster {cluster_id}" in ended.stderr
    client = KazooClient(server.address)
    client.start()
    assert client.get_children("/") == ["zookeeper"]
    client.stop()
    client.close()


def cluster_id_of(broker):
    lines = (broker.log_dir / "meta.properties").read_text().splitlines()
    (found,) = [line.partition("=")[2] for line in lines if line.startswith("cluster.id=")]
    return found
