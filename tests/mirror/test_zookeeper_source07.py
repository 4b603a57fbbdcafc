"""A mirror of a cluster of Kafka 0.7 that is found through its ZooKeeper."""

import pytest

pytest.importorskip("kazoo.client")

from kctl.cli import app
from kctl.errors import UsageError
from kctl.mirror import worker
from kctl.mirror.formats import MirrorPosition, parse_position
from kctl.mirror.numbering07 import Numbering
from kctl.model import TopicPartition
from kctl.records.compression import GZIP
from kctl.records.message07 import message_set
from kctl.store.consumer_znodes import BrokerPartition
from tests.support import apache_kafka
from tests.support.kctl_broker07 import write07
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for
from tests.support.zookeeper_session import zookeeper_session


def position(topic, number, name):
    return MirrorPosition(10, None, TopicPartition(topic, number), server_partition=name)


def test_a_number_is_kept_whatever_brokers_come_and_go():
    first, later = Numbering(), Numbering()
    first.add("t", [BrokerPartition(2, 0), BrokerPartition(1, 1), BrokerPartition(1, 0)])
    assert [first.name(TopicPartition("t", n)) for n in range(4)] == ["1-0", "1-1", "2-0", ""]

    # Nothing of 1-1 was copied, so its number is free again; broker 1 is away.
    later.restore([position("t", 0, "1-0"), position("t", 2, "2-0")])
    later.add("t", [BrokerPartition(2, 0), BrokerPartition(0, 0), BrokerPartition(0, 1)])
    later.add("u", [BrokerPartition(0, 0)])

    assert [later.name(TopicPartition("t", n)) for n in range(4)] == ["1-0", "0-0", "2-0", "0-1"]
    assert later.counts() == {"t": 4, "u": 1}
    assert later.find(TopicPartition("t", 3)) == BrokerPartition(0, 1)


def test_a_position_says_whose_it_is_and_one_of_another_source_is_refused():
    at = position("t", 3, "2-7")
    assert parse_position(10, at.metadata()) == at
    with pytest.raises(UsageError, match="from another source"):
        Numbering().restore([position("t", 0, "")])


@pytest.fixture
def old(tmp_path):
    """Brokers 1 and 2, and the address of their ZooKeeper."""
    port = apache_kafka.free_port()
    options = ("--kafka-0.7", "-c", "num.partitions=2", "-c")
    with KctlBroker(
        tmp_path / "1", *options, "brokerid=1", "--zookeeper-port", str(port)
    ) as one:  # fmt: skip
        zookeeper = f"127.0.0.1:{port}"
        with KctlBroker(tmp_path / "2", *options, "brokerid=2", "--zookeeper", zookeeper) as two:
            yield one, two, zookeeper


def write(zookeeper, broker, broker_id, topic, values, partition=0, codec=0):
    end = write07(broker.port, topic, message_set(values, codec), partition)
    with zookeeper_session(zookeeper) as store:
        path = f"/brokers/topics/{topic}/{broker_id}"
        wait_for(lambda: store.exists(path), lambda: f"{path} is not registered")
    return end


def values(clusters, topic):
    found = {}
    for it in clusters.target.records(topic):
        found.setdefault(it.partition, []).append(it.value)
    return found


@pytest.mark.slow
def test_all_partitions_of_all_brokers_are_copied_once_under_numbers_that_stay(
    clusters, old, tmp_path, capfdbinary, monkeypatch
):
    one, two, zookeeper = old
    write(zookeeper, one, 1, "clicks", [b"1a", b"1b"])
    at = write(zookeeper, two, 2, "clicks", [b"2a"])
    write(zookeeper, two, 2, "clicks", [b"2b", b"2c"], codec=GZIP)
    write(zookeeper, two, 2, "clicks", [b"2x"], partition=1)
    write(zookeeper, one, 1, "other", [b"o"])
    target = clusters.target.bootstrap_servers
    ends = ("--source", f"zookeeper-0.7://{zookeeper}", "--target", target)

    def run(*words):
        capfdbinary.readouterr()
        command = ("mirror", "run", *ends, "--topics", "cl*", "--name", "all", "--once", *words)
        status = app.run([*command, "-o", "json"])
        return status, capfdbinary.readouterr()

    assert run()[0] == 0
    # 1-0, 1-1, 2-0 and 2-1 are 0 to 3.
    copied = {0: [b"1a", b"1b"], 2: [b"2a", b"2b", b"2c"], 3: [b"2x"]}
    assert values(clusters, "clicks") == copied
    assert run("--worker", "2")[0] == 2

    # A broker that comes later gets later numbers, whatever its id is; what is new is copied once.
    extra = ("--kafka-0.7", "-c", "num.partitions=2", "-c", "brokerid=0", "--zookeeper", zookeeper)
    with KctlBroker(tmp_path / "0", *extra) as zero:
        write(zookeeper, zero, 0, "clicks", [b"0a"])
        write(zookeeper, one, 1, "clicks", [b"1c"])
        status, captured = run()
        assert status == 0, captured.err
        copied[0].append(b"1c")
        copied[4] = [b"0a"]
        assert values(clusters, "clicks") == copied

    # The group's offsets are translated by the same mirror, whatever the numbers are.
    with zookeeper_session(zookeeper) as store:
        store.ensure_path("/consumers/g/offsets/clicks/2-0")
        store.set("/consumers/g/offsets/clicks/2-0", str(at).encode())
    words = ("--to", "kafka", "--zookeeper", zookeeper, "-b", target, "--mirror", "all", "-y")
    undo = ("--undo-file", str(tmp_path / "undo.json"))
    assert app.run(["group", "migrate", "g", *words, *undo]) == 0
    partition = TopicPartition("clicks", 2)
    moved = clusters.do(lambda _, it: it.offsets.committed("g", [partition]))[partition]
    # A transaction's marker follows the records of each turn.
    there = [it.offset for it in clusters.target.records("clicks", 2)]
    assert moved.offset == there[1]

    # Broker 0 is away: the mirror says so instead of leaving its partition out.
    monkeypatch.setattr(worker, "FAILURES_IN_A_ROW_MAX", 2)
    status, captured = run()
    assert status == 3
    assert b"The broker of clicks-0-0 is not registered in ZooKeeper" in captured.err


def test_what_a_cluster_of_kafka_07_cannot_do_is_refused(clusters, capfdbinary):
    ends = ("--source", "zookeeper-0.7://127.0.0.1:1", "--target")
    target = clusters.target.bootstrap_servers
    assert app.run(["mirror", "status", *ends, target]) == 2
    assert b"needs a cluster of Kafka 0.8" in capfdbinary.readouterr().err
    assert app.run(["mirror", "run", *ends, target, "-t", "t", "--groups", "*"]) == 2
    assert b"keep their offsets in ZooKeeper" in capfdbinary.readouterr().err
