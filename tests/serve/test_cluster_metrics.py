"""The metrics of a cluster: each broker has its part, and together they say what is wrong."""

import contextlib
import json
import socket
import urllib.request

import pytest

from kctl.metrics.parse import parse_metrics
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

BROKERS, PARTITIONS, RECORDS = 3, 6, 5


def consecutive_free_ports():
    """The first of as many free ports as there are brokers."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            base = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                for port in range(base + 1, base + BROKERS):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                return base


def read(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
        return response.read().decode()


def test_the_parts_of_three_brokers_add_up(tmp_path):
    base = consecutive_free_ports()
    cluster = LocalCluster(
        tmp_path,
        "--brokers",
        str(BROKERS),
        "--metrics-port",
        str(base),
        "-t",
        f"orders:{PARTITIONS}",
    )
    ports = range(base, base + BROKERS)

    def total(name, **labels):
        found = [parse_metrics(read(port, "/metrics")) for port in ports if port not in stopped]
        return sum(it.value(name, **labels) or 0 for it in found)

    stopped = []
    cluster.start()
    try:
        for port in ports:
            assert json.loads(read(port, "/readyz")) == {"status": "ok"}
        cluster.kctl("produce", "orders", *(f"v{n}" for n in range(RECORDS)))
        topics, replicas = "kafka_server_brokertopicmetrics_", "kafka_server_replicamanager_"
        orders = {"topic": "orders"}
        size = total(f"{topics}bytesin_total", **orders)
        assert total(f"{topics}messagesin_total", **orders) == RECORDS
        # Every byte goes to two followers.
        wait_for(
            lambda: total(f"{topics}replicationbytesin_total", **orders) == 2 * size,
            lambda: str(size),
        )
        assert total(f"{topics}replicationbytesout_total", **orders) == 2 * size
        assert total(f"{replicas}leadercount") == PARTITIONS
        assert total(f"{replicas}partitioncount") == PARTITIONS * BROKERS
        assert total("kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert total("kafka_topic_partitions", **orders) == PARTITIONS
        assert total(f"{replicas}underreplicatedpartitions") == 0
        assert cluster.command("stop", "3").returncode == 0
        stopped.append(base + 2)
        wait_for(
            lambda: total(f"{replicas}underreplicatedpartitions") == PARTITIONS,
            lambda: str(total(f"{replicas}underreplicatedpartitions")),
        )
        assert total(f"{replicas}leadercount") == PARTITIONS
        assert total("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    finally:
        cluster.stop()
