"""Apache's own programs on `kctl serve --zookeeper-port`, as if it were ZooKeeper."""

import subprocess
import time
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.words import produce, read
from tests.support.zookeeper import zookeeper_shell

pytestmark = pytest.mark.kafka

PATIENCE_S = 60
SETTINGS = {"zookeeper.session.timeout.ms": "6000", "replica.lag.time.max.ms": "3000"}


@contextmanager
def kctl_with_port(directory):
    """A kctl broker with id 0 whose metadata others may use."""
    port = apache_kafka.free_port()
    options = [word for item in SETTINGS.items() for word in ("-c", "=".join(item))]
    with KctlBroker(directory, "--zookeeper-port", str(port), *options) as broker:
        yield broker, f"127.0.0.1:{port}"


def metadata(bootstrap, topic):
    """{partition: (leader, set of ISR)}."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_topics(topic, timeout=60).topics[topic].partitions
    return {number: (each.leader, set(each.isrs)) for number, each in found.items()}


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_zookeepers_shell_works_on_the_port(tmp_path):
    with kctl_with_port(tmp_path) as (_, zookeeper):
        said, complained = zookeeper_shell(
            zookeeper,
            "ls /brokers/ids",
            "create /x hello",
            "create -s /x/s- a",
            "create -e /x/e b",
            "set /x there",
            "get /x",
            "ls -R /x",
            "getAcl /x",
            "setAcl /x world:anyone:r",
            "create -c /container",
            "deleteall /x",
            "ls /x",
        )
    answers = ("[", "/", "'", ":", "there")
    assert [line for line in said if line.startswith(answers)] == [
        "[0]", "there", "/x", "/x/e", "/x/s-0000000000", "'world,'anyone", ": cdrwa",
    ]  # fmt: skip
    assert [line for line in complained if "/" in line and "slf4j" not in line.lower()] == [
        "Created /x",
        "Created /x/s-0000000000",
        "Created /x/e",
        "Acl is not valid : /x",
        "KeeperErrorCode = Unimplemented for /container",
        "Node does not exist: /x",
    ]


def test_kafkas_tools_change_topics_and_settings_through_the_port(tmp_path):
    with kctl_with_port(tmp_path) as (kctl, zookeeper):
        for main_class, *arguments in (
            ("TopicCommand", "--create", "--topic", "t", "--partitions", "2",
             "--replication-factor", "1"),
            ("TopicCommand", "--alter", "--topic", "t", "--partitions", "3"),
            ("ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", "t",
             "--add-config", "retention.ms=1000"),
        ):  # fmt: skip
            apache_kafka.run_tool(f"kafka.admin.{main_class}", "--zookeeper", zookeeper, *arguments)
        until(lambda: metadata(kctl.address, "t") == {n: (0, {0}) for n in range(3)})
        described = apache_kafka.run_tool(
            "kafka.admin.TopicCommand", "--zookeeper", zookeeper, "--describe", "--topic", "t"
        ).stdout
        assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=1000" in described
        apache_kafka.run_tool(
            "kafka.admin.TopicCommand", "--zookeeper", zookeeper, "--delete", "--topic", "t"
        )
        admin = AdminClient({"bootstrap.servers": kctl.address})
        until(lambda: "t" not in admin.list_topics(timeout=60).topics)


@pytest.mark.slow
def test_apache_broker_joins_kctl_on_its_port_and_both_outlive_a_kill_of_the_store(tmp_path):
    with (
        kctl_with_port(tmp_path / "kctl") as (kctl, zookeeper),
        apache_kafka.apache_broker(
            tmp_path / "apache", zookeeper, broker_id=1, settings=SETTINGS
        ) as apache,
    ):
        both = f"{kctl.address},{apache}"
        admin = AdminClient({"bootstrap.servers": both})
        new = NewTopic("shared", 2, replica_assignment=[[0, 1], [1, 0]])
        admin.create_topics([new])["shared"].result(120)
        until(lambda: metadata(apache, "shared") == {0: (0, {0, 1}), 1: (1, {0, 1})})
        produce(both, "shared", [f"before-{n}" for n in range(100)])

        kctl.kill()
        kctl.start()
        until(lambda: all(isr == {0, 1} for _, isr in metadata(both, "shared").values()))
        produce(both, "shared", [f"after-{n}" for n in range(100)])
        expected = sorted(f"{tag}-{n}" for tag in ("before", "after") for n in range(100))
        assert read(both, "shared", 2, 200) == expected
        assert subprocess.run(
            ["grep", "-c", "session 0x.* has expired", tmp_path / "apache" / "server.log"],
            capture_output=True, text=True, check=False,
        ).stdout.strip() == "0"  # fmt: skip
