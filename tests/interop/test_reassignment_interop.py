"""Apache Kafka's kafka-reassign-partitions and kafka-leader-election drive a kctl cluster, with
--bootstrap-server and with --zookeeper; `kctl reassign --zookeeper` drives kctl and Apache
Kafka."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache_kafka
from tests.support.java_tools import JavaTools
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

REASSIGN = "kafka.admin.ReassignPartitionsCommand"
PATIENCE_S = 60


class Cluster:
    """Three brokers, and the ZooKeeper (or what passes for one) that they are on."""

    def __init__(self, bootstrap, zookeeper):
        self.bootstrap = bootstrap
        self.zookeeper = zookeeper
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def door(self, name):
        """The option by which a tool reaches the cluster."""
        return (f"--{name}", self.zookeeper if name == "zookeeper" else self.bootstrap)

    def create(self, topic, *assignment, record_bytes=1000):
        new = NewTopic(topic, len(assignment), replica_assignment=[list(it) for it in assignment])
        self.admin.create_topics([new])[topic].result(120)
        self.until(lambda: self.replicas(topic) == [list(it) for it in assignment], "created")
        for number in range(len(assignment)):
            self.produce(topic, record_bytes, number)

    def produce(self, topic, record_bytes, number=0):
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, b"x" * record_bytes, partition=number)
        assert producer.flush(120) == 0

    def replicas(self, topic):
        found = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
        return [found[number].replicas for number in sorted(found)]

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came to be: {what}"
            time.sleep(0.2)

    def kctl(self, *words, status=0):
        done = subprocess.run(
            [sys.executable, "-m", "kctl", *map(str, words), "-b", self.bootstrap],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout


@contextmanager
def kctl_brokers(directory):
    with KctlBroker(directory, "--brokers", "3", "--zookeeper-port", "0"):
        listed = subprocess.run(
            [*(sys.executable, "-m", "kctl", "broker", "list", "-o", "json"),
             *("--data-dir", str(directory / "data"))],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        bootstrap = (directory / "ready").read_text().strip()
        yield Cluster(bootstrap, json.loads(listed.stdout)["zookeeper"])


@contextmanager
def apache_brokers(directory):
    (directory / "zookeeper").mkdir()
    with running_zookeeper(directory / "zookeeper") as zookeeper:

        def broker(broker_id):
            home = directory / str(broker_id)
            return apache_kafka.apache_broker(
                home, zookeeper.address, broker_id=broker_id,
                settings={"log.dirs": f"{home}/logs,{home}/more"},
            )  # fmt: skip

        with broker(1) as one, broker(2) as two, broker(3) as three:
            yield Cluster(f"{one},{two},{three}", zookeeper.address)


@pytest.fixture(scope="module")
def kctl_cluster(tmp_path_factory):
    with kctl_brokers(tmp_path_factory.mktemp("kctl")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def apache_homes(tmp_path_factory):
    """Where Apache Kafka's brokers keep their log directories, `logs` and `more` each."""
    return tmp_path_factory.mktemp("apache")


@pytest.fixture(scope="module")
def apache_cluster(apache_homes):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with apache_brokers(apache_homes) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def java():
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with JavaTools("2.7.2") as tools:
        yield tools


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """Records of throttles are the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def reassign(java):
    """Runs kafka-reassign-partitions: what it prints. With --zookeeper in a JVM of its own, as the
    classes it needs then must not be loaded twice."""

    def run(*words, is_checked=True):
        if "--zookeeper" in words:
            return apache_kafka.run_tool(REASSIGN, *words, check=is_checked).stdout
        return java.run(REASSIGN, *words, status=0 if is_checked else None).out

    return run


def reassignment(topic, *assignment):
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(brokers)}
        for number, brokers in enumerate(assignment)
    ]
    return json.dumps({"version": 1, "partitions": partitions})


@pytest.mark.parametrize("door", ["bootstrap-server", "zookeeper"])
def test_apaches_tool_moves_replicas_of_a_kctl_cluster(kctl_cluster, reassign, tmp_path, door):
    """
    --generate proposes; --execute with a throttle moves; --verify says so and takes it off
    """
    topic, path, topics = f"moved-{door}", tmp_path / "plan.json", tmp_path / "topics.json"
    kctl_cluster.create(topic, (1, 2), (2, 1))
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    reach = kctl_cluster.door(door)
    proposed = reassign(
        *reach, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,3"
    )
    lines = proposed.splitlines()
    current = json.loads(lines[lines.index("Current partition replica assignment") + 1])
    assert [it["replicas"] for it in current["partitions"]] == [[1, 2], [2, 1]]
    path.write_text(reassignment(topic, (1, 3), (3, 1)))
    flags = ("--reassignment-json-file", path)
    assert "Successfully started" in reassign(*reach, "--execute", *flags, "--throttle", "10000000")

    def verified():
        return "is complete" in reassign(*reach, "--verify", *flags, is_checked=False)

    kctl_cluster.until(lambda: kctl_cluster.replicas(topic) == [[1, 3], [3, 1]], "moved")
    kctl_cluster.until(verified, "verified")
    left = ("throttle", "show", "-o", "json")
    kctl_cluster.until(lambda: json.loads(kctl_cluster.kctl(*left)) == [], "throttle off")


def test_apaches_tool_lists_and_cancels_on_a_kctl_cluster(kctl_cluster, reassign, tmp_path):
    """
    a throttle of one byte a second holds the move up; --list shows it; --cancel takes it back
    """
    topic, path = "cancelled", tmp_path / "plan.json"
    kctl_cluster.create(topic, (1,), record_bytes=500_000)
    path.write_text(reassignment(topic, (2,)))
    reach, flags = kctl_cluster.door("bootstrap-server"), ("--reassignment-json-file", path)
    reassign(*reach, "--execute", *flags, "--throttle", "1")
    assert f"{topic}-0: replicas: 2,1. adding: 2. removing: 1." in reassign(*reach, "--list")
    reassign(*reach, "--cancel", *flags)
    kctl_cluster.until(lambda: kctl_cluster.replicas(topic) == [[1]], "cancelled")


@pytest.mark.parametrize("kind", ["kctl", "apache"])
def test_kctl_moves_replicas_by_znodes(request, tmp_path, kind):
    """
    plan, execute with a throttle, verify and list with --zookeeper; everything is off at the end
    """
    cluster = request.getfixturevalue(f"{kind}_cluster")
    topic, path = f"znodes-{kind}", tmp_path / "plan.json"
    cluster.create(topic, (1, 2), (2, 1))
    reach = cluster.door("zookeeper")
    cluster.kctl("reassign", "plan", "move", topic, 2, 3, "--out", path, *reach)
    out = cluster.kctl(
        "reassign", "execute", path, "--wait", "-y", "--throttle", "50MB", "-o", "json", *reach
    )
    assert [it["status"] for it in json.loads(out)] == ["moved", "moved"]
    assert sorted(cluster.replicas(topic)) == [[1, 3], [3, 1]]
    cluster.kctl("reassign", "verify", path, *reach)
    assert json.loads(cluster.kctl("reassign", "list", "-o", "json", *reach)) == []
    assert json.loads(cluster.kctl("throttle", "show", "-o", "json", *reach)) == []


def moved_aside(directories, topic):
    """The directory where t-0 is, the other one, and what a file says to have it there."""
    source = next(it for it in directories if (it / f"{topic}-0").exists())
    [other] = [it for it in directories if it != source]
    return source, other


def file_of_dirs(path, topic, broker_id, log_dir):
    move = {"topic": topic, "partition": 0, "replicas": [broker_id], "log_dirs": [str(log_dir)]}
    path.write_text(json.dumps({"version": 1, "partitions": [move]}))
    return ("--reassignment-json-file", path)


def test_apaches_tools_move_a_replica_between_directories_of_a_kctl_broker(
    java, reassign, tmp_path
):
    """
    with a throttle; kafka-log-dirs shows it on its way; --verify takes the throttle off
    """
    directories = [tmp_path / "one", tmp_path / "two"]
    setting = f"log.dirs={directories[0]},{directories[1]}"
    with KctlBroker(tmp_path / "broker", "-c", setting, "-c", "replica.fetch.max.bytes=1000") as it:
        cluster = Cluster(it.address, None)
        cluster.create("dirs", (0,), record_bytes=500_000)
        source, other = moved_aside(directories, "dirs")
        reach = cluster.door("bootstrap-server")
        flags = file_of_dirs(tmp_path / "plan.json", "dirs", 0, other)
        out = reassign(*reach, "--execute", *flags, "--replica-alter-log-dirs-throttle", "1")
        assert "Successfully started log directory move for: dirs-0-0" in out
        cluster.produce("dirs", 1000)

        def shown(log_dir):
            printed = java.run("kafka.admin.LogDirsCommand", *reach, "--describe", status=0).out
            [broker] = json.loads(printed.splitlines()[-1])["brokers"]
            [found] = [it for it in broker["logDirs"] if it["logDir"] == str(log_dir)]
            return [(it["partition"], it["isFuture"]) for it in found["partitions"]]

        cluster.until(lambda: shown(other) == [("dirs-0", True)], "on its way")
        assert shown(source) == [("dirs-0", False)]
        assert "is still in progress" in reassign(*reach, "--verify", *flags)
        reassign(
            *reach, "--execute", "--additional", *flags,
            "--replica-alter-log-dirs-throttle", "100000000",
        )  # fmt: skip
        cluster.until(lambda: shown(other) == [("dirs-0", False)], "arrived")
        assert shown(source) == []
        assert "completed successfully" in reassign(*reach, "--verify", *flags)
        assert json.loads(cluster.kctl("throttle", "show", "-o", "json")) == []


def test_kctl_moves_a_replica_between_directories_of_an_apache_broker(
    apache_cluster, apache_homes, tmp_path
):
    cluster, home = apache_cluster, apache_homes / "2"
    cluster.create("aside", (2,), record_bytes=500_000)
    _, other = moved_aside([home / "logs", home / "more"], "aside")
    _, path = file_of_dirs(tmp_path / "plan.json", "aside", 2, other)
    words = ("reassign", "execute", path, "--wait", "-y", "--throttle", "50MB", "-o", "json")
    [row] = json.loads(cluster.kctl(*words))
    assert (row["after"], row["status"]) == (f"2:{other}", "moved")
    assert (other / "aside-0").exists()
    cluster.kctl("reassign", "verify", path)
    assert json.loads(cluster.kctl("throttle", "show", "-o", "json")) == []


def test_leaders_elected_by_apaches_tool_and_by_kctl_are_the_same(kctl_cluster, java, tmp_path):
    topic, path = "elected", tmp_path / "plan.json"
    kctl_cluster.create(topic, (1, 2), (1, 2))
    for tool in ("apache", "kctl"):
        path.unlink(missing_ok=True)
        kctl_cluster.kctl("reassign", "plan", "swap-leader", topic, "--out", path)
        kctl_cluster.kctl("reassign", "execute", path, "--wait", "-y")
        if tool == "apache":
            reach = kctl_cluster.door("bootstrap-server")
            java.run(
                "kafka.admin.LeaderElectionCommand", *reach, "--election-type", "preferred",
                "--topic", topic, "--partition", "0",
            )  # fmt: skip
        kctl_cluster.kctl("elect", "preferred", topic)

        def leaders():
            found = kctl_cluster.admin.list_topics(topic, timeout=60).topics[topic].partitions
            return [found[number].leader for number in sorted(found)]

        wanted = [replicas[0] for replicas in kctl_cluster.replicas(topic)]
        kctl_cluster.until(lambda wanted=wanted: leaders() == wanted, "led by the preferred")
