"""Apache Kafka's tools for administrators, of 2.7.2: run against two brokers of kctl and two of
Apache Kafka 2.7.2, they are to exit and to say the same."""

import json
import re
from contextlib import ExitStack

import pytest

from tests.support import apache_kafka
from tests.support.java_tools import JavaTools
from tests.support.local_cluster import LocalCluster
from tests.support.tools_on_both import ToolsOnBoth
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def kctl_cluster(tmp_path_factory):
    options = [word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}")]
    with LocalCluster(tmp_path_factory.mktemp("kctl"), "--brokers", "2", *options) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def apache_cluster(tmp_path_factory):
    home = tmp_path_factory.mktemp("apache")
    (home / "zookeeper").mkdir()
    with running_zookeeper(home / "zookeeper") as zookeeper, ExitStack() as stack:
        brokers = []
        for broker_id in (1, 2):
            broker = apache_kafka.ApacheBroker(
                home / str(broker_id), zookeeper.address, broker_id=broker_id, settings=SETTINGS
            )
            stack.callback(broker.stop)
            brokers.append(broker.launch())
        yield ",".join(broker.wait_until_ready().address for broker in brokers)


@pytest.fixture(scope="module")
def both(request):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    addresses = map(request.getfixturevalue, ("kctl_cluster", "apache_cluster"))
    with JavaTools("2.7.2") as tools:
        yield ToolsOnBoth(tools, *addresses)


@pytest.fixture
def new_topic(both, topic):
    """Creates a topic on both, with the replicas of each partition."""

    def create(*assignment):
        words = ",".join(":".join(map(str, replicas)) for replicas in assignment)
        both.run("topics", "--create", "--topic", topic, "--replica-assignment", words)
        every = "".join(
            rf"[\s\S]*Partition: {number}\b.*Isr: {','.join(map(str, replicas))}"
            for number, replicas in enumerate(assignment)
        )
        both.run("topics", "--describe", "--topic", topic, until=every)
        return topic

    yield create
    both.run("topics", "--delete", "--topic", topic)


def written(path, **document):
    path.write_text(json.dumps({"version": 1, **document}))
    return path


def in_any_order(lines):
    """Sets of Java are printed in the order of their hashes."""
    return sorted(" ".join(line.split()) for line in lines)


def test_acls_from_their_addition_to_their_removal(both, topic):
    def change(*words, listed):
        """Run it until the broker that lists the ACLs knows of the change."""
        return both.run("acls", *words, but=in_any_order, until=listed)

    def are_listed(*principals):
        return r"Current ACLs" + "".join(rf"(?=[\s\S]*principal=User:{it},)" for it in principals)

    on_topic = ("--topic", topic)
    change("--add", "--allow-principal", "User:alice", "--operation", "Read", "--operation",
           "Describe", *on_topic, listed=are_listed("alice"))  # fmt: skip
    change("--add", "--deny-principal", "User:mallory", "--deny-host", "10.0.0.1", *on_topic,
           listed=are_listed("alice", "mallory"))  # fmt: skip
    change("--add", "--allow-principal", "User:bob", "--producer", "--idempotent",
           "--transactional-id", topic, *on_topic, listed=are_listed("bob"))  # fmt: skip
    change("--add", "--allow-principal", "User:carol", "--consumer", "--group", f"{topic}-",
           "--resource-pattern-type", "prefixed", *on_topic,
           listed=are_listed("carol"))  # fmt: skip
    change("--add", "--allow-principal", "User:dave", "--operation", "Alter", "--cluster",
           listed=are_listed("dave"))  # fmt: skip
    for which in (on_topic, (*on_topic, "--resource-pattern-type", "match"),
                  ("--group", "*"), ("--cluster",), ("--principal", "User:carol"), ()):  # fmt: skip
        both.run("acls", "--list", *which, but=in_any_order)
    change("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Read",
           *on_topic, listed=r"Current ACLs(?![\s\S]*operation=READ, perm)")  # fmt: skip
    change("--remove", "--force", *on_topic, listed=r"^(?![\s\S]*principal)")
    change("--remove", "--force", *on_topic, listed=r"^(?![\s\S]*principal)")


def test_acls_that_cannot_be(both, topic):
    for words in (
        ("--add", "--allow-principal", "alice", "--topic", topic),
        ("--add", "--allow-principal", "User:alice"),
        ("--add", "--allow-principal", "User:alice", "--operation", "Fly", "--topic", topic),
        ("--add", "--allow-principal", "User:alice", "--operation", "Write", "--group", topic),
        (
            "--add",
            "--allow-principal",
            "User:a",
            "--topic",
            topic,
            "--resource-pattern-type",
            "any",
        ),
        ("--remove", "--force"),
    ):
        lines = both.run("acls", *words, status=None, but=in_any_order)
        assert "exit 1" in lines or any("Error" in line for line in lines), words


def test_replicas_are_moved(both, new_topic, tmp_path):
    topic = new_topic((1,), (1,))
    reassign = "reassign-partitions"
    topics = written(tmp_path / "topics.json", topics=[{"topic": topic}])
    both.run(reassign, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "2")
    moves = [{"topic": topic, "partition": number, "replicas": [2]} for number in (0, 1)]
    plan = ("--reassignment-json-file", written(tmp_path / "plan.json", partitions=moves))
    both.run(reassign, "--execute", *plan, "--throttle", 10_000_000)
    both.run(reassign, "--verify", *plan, until=r"(?s)partition \S+-0 is complete.*-1 is complete")
    both.run(reassign, "--verify", *plan)
    both.run(reassign, "--list")
    both.run(reassign, "--cancel", *plan, status=None)
    both.run("topics", "--describe", "--topic", topic, until=r"1\tLeader: 2\tReplicas: 2\tIsr: 2$")


def test_moves_that_cannot_be(both, new_topic, tmp_path):
    topic, path = new_topic((1,)), tmp_path / "plan.json"

    def execute(*partitions):
        plan = written(path, partitions=list(partitions))
        lines = both.run(
            "reassign-partitions", "--execute", "--reassignment-json-file", plan,
            status=None, but=in_any_order,
        )  # fmt: skip
        assert "exit 1" in lines, partitions

    def move(name, number, *replicas):
        return {"topic": name, "partition": number, "replicas": list(replicas)}

    execute()
    execute(move(f"{topic}-gone", 0, 2))
    execute(move(topic, 7, 2))
    execute(move(topic, 0, 9))
    execute(move(topic, 0))
    execute(move(topic, 0, 2, 2))
    execute(move(topic, 0, 2), move(topic, 0, 1))
    execute({**move(topic, 0, 1), "log_dirs": ["/no/such/directory"]})


def test_preferred_leaders_are_elected(both, new_topic, tmp_path):
    topic, path = new_topic((1, 2), (1, 2)), tmp_path / "partitions.json"
    swapped = [{"topic": topic, "partition": number, "replicas": [2, 1]} for number in (0, 1)]
    plan = ("--reassignment-json-file", written(path, partitions=swapped))
    both.run("reassign-partitions", "--execute", *plan)
    both.run("reassign-partitions", "--verify", *plan, until="1 is complete")
    one = ("--topic", topic, "--partition")
    preferred = ("leader-election", "--election-type", "preferred")
    both.run(*preferred, *one, 0)
    # Repeated, none is needed.
    both.run(*preferred, *one, 0, until="already elected")
    rest = written(path, partitions=[{"topic": topic, "partition": it} for it in (0, 1)])
    both.run(*preferred, "--path-to-json-file", rest, but=in_any_order)
    both.run("topics", "--describe", "--topic", topic, until=r"(?s)0\tLeader: 2.*1\tLeader: 2")
    both.run("leader-election", "--election-type", "unclean", *one, 0, status=None)
    for words in (
        (*one, 7),
        ("--topic", f"{topic}-gone", "--partition", 0),
        ("--topic", topic),
        (),
    ):
        assert "exit 1" in both.run(*preferred, *words, status=None, but=in_any_order), words


def test_records_of_several_partitions_are_deleted(both, new_topic, tmp_path):
    topic, path = new_topic((1,), (2,)), tmp_path / "offsets.json"
    both.run("console-producer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(20)))

    def delete(*partitions):
        return both.run(
            "delete-records", "--offset-json-file", written(path, partitions=list(partitions)),
            status=None, but=in_any_order,
        )  # fmt: skip

    def before(number, offset, name=topic):
        return {"topic": name, "partition": number, "offset": offset}

    delete(before(0, 0), before(1, 0))
    delete(before(0, 0), before(1, 10_000))
    delete(before(0, 0), before(7, 0))
    delete(before(0, 0, f"{topic}-gone"))
    assert "exit 1" in delete(before(0, 0), before(0, 0))
    assert "exit 0" in delete()
    path.write_text("{")
    both.run("delete-records", "--offset-json-file", path, status=None)


def test_log_directories_of_brokers(both, new_topic):
    topic = new_topic((1, 2), (2, 1))

    def replicas(lines):
        """The replicas by broker, without paths; the times of a producer decide on sizes."""
        *_, described = lines
        found = json.loads(described)["brokers"]
        for broker in found:
            for it in broker["logDirs"]:
                it["logDir"] = it["logDir"].rpartition("/")[2]
                it["partitions"].sort(key=lambda each: each["partition"])
        found.sort(key=lambda broker: broker["broker"])
        return [re.sub(r"brokers [\d,]+", "brokers", line) for line in lines[:-1]], found

    describe = ("log-dirs", "--describe", "--topic-list", f"{topic},{topic}-gone")
    _, found = both.run(*describe, but=replicas)
    assert [broker["broker"] for broker in found] == [1, 2]
    both.run(*describe, "--broker-list", "2", but=replicas)
