"""kctl group migrate --mirror: groups of Kafka 0.7 continue where a mirror has copied to."""

import pytest

from kctl.cli import app
from kctl.records.compression import GZIP, NONE
from kctl.records.message07 import message_set
from tests.support import apache_kafka
from tests.support.kctl_broker07 import write07
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper_session import zookeeper_session


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A broker of 0.7 with its ZooKeeper, and the positions between its messages."""
    port = apache_kafka.free_port()
    directory = tmp_path_factory.mktemp("old")
    words = (
        "--kafka-0.7",
        "--zookeeper-port",
        str(port),
        "--set",
        "topic.partition.count.map=two:2",
    )
    with KctlBroker(directory, *words) as broker:
        ends = [write07(broker.port, "clicks", message_set([b"%d" % n])) for n in range(4)]
        write07(broker.port, "packed", message_set([b"a", b"b"], GZIP))
        write07(broker.port, "two", message_set([b"in the first partition"], NONE))
        write07(broker.port, "late", message_set([b"not mirrored"], NONE))
        broker.zookeeper, broker.ends = f"127.0.0.1:{port}", ends
        yield broker


@pytest.fixture(scope="module")
def target(tmp_path_factory, old):
    """A broker that clicks and packed were mirrored to."""
    with KctlBroker(tmp_path_factory.mktemp("target")) as broker:
        run(
            "mirror", "run", "--source", f"kafka-0.7://{old.address}", "--target", broker.address,
            "--topics", "clicks", "--topics", "packed", "--topics", "two",
            "--rename", "old.{topic}", "--name", "old1", "--once",
        )  # fmt: skip
        yield broker


def run(*words):
    assert app.run(list(map(str, words))) == 0


def commit(old, group, **positions):
    with zookeeper_session(old.zookeeper) as store:
        for topic, position in positions.items():
            path = f"/consumers/{group}/offsets/{topic}/0-0"
            store.ensure_path(path)
            store.set(path, str(position).encode())


@pytest.fixture
def migrate(kctl, old, target, tmp_path):
    return lambda group, *words: kctl(
        "group", "migrate", group, "--to", "kafka", "--zookeeper", old.zookeeper,
        "-b", target.address, "--undo-file", tmp_path / "undo.json", *words,
    )  # fmt: skip


def committed(kctl, target, group):
    found = kctl("group", "describe", group, "-b", target.address, "-o", "json")
    if found.status:
        return {}
    return {it["topic"]: it["committed_offset"] for it in found.documents[0]["partitions"]}


def test_a_group_continues_with_the_message_that_it_would_read_next(
    kctl, migrate, old, target, tmp_path
):
    commit(old, "billing", clicks=old.ends[1], packed=0)
    ran = migrate("billing", "--mirror", "0=old1", "-y")

    assert ran.status == 0, ran.err
    read = kctl(
        "consume", "old.clicks", "old.packed", "-g", "billing", "--exit", "-b", target.address
    )
    assert sorted(read.out.split()) == ["2", "3", "a", "b"]
    undone = kctl(
        "group", "migrate", "--rollback", tmp_path / "undo.json", "--zookeeper", old.zookeeper,
        "-b", target.address, "-y",
    )  # fmt: skip
    # It has read on since: its offsets are left alone, and reported.
    assert undone.status == 1
    assert "has changed since the migration" in undone.out + undone.err


def test_a_partition_without_messages_is_read_from_its_beginning(kctl, migrate, old, target):
    with zookeeper_session(old.zookeeper) as store:
        for number in range(2):
            path = f"/consumers/partitions/offsets/two/0-{number}"
            store.ensure_path(path)
            store.set(path, b"0")
    ran = migrate("partitions", "--mirror", "0=old1", "-y")
    assert ran.status == 0, ran.err
    found = kctl("group", "describe", "partitions", "-b", target.address, "-o", "json")
    assert [it["committed_offset"] for it in found.documents[0]["partitions"]] == [0, 0]


def test_a_position_that_no_mirror_has_copied_is_an_error(kctl, migrate, old, target):
    commit(old, "partly", clicks=old.ends[0], late=0)
    for mirror, reason in (
        ("old1", "mirror old1: the mirror has copied nothing of it"),
        ("7=old1", "no --mirror is given for broker 0"),
    ):
        ran = migrate("partly", "--mirror", mirror, "--dry-run", "-o", "json")
        assert ran.status == 1
        assert reason in ran.out + ran.err
    unknown = migrate("partly", "--mirror", "no-such", "--dry-run")
    assert (unknown.status, "no-such" in unknown.err) == (1, True)
    without = migrate("partly", "--dry-run")
    assert (without.status, "--mirror moves it" in without.out + without.err) == (1, True)
    assert committed(kctl, target, "partly") == {}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--mirror", "x=old1"], "Not a broker id and a mirror: x=old1"),
        (["--mirror", "0=a", "--mirror", "0=b"], "Two mirrors are given for 0"),
        (["--mirror", "a", "--mirror", "b"], "Two mirrors are given for all brokers"),
        (["--mirror", "0=a", "--to", "zookeeper"], "on the way to Kafka"),
    ],
)
def test_wrong_mirrors_are_refused_before_anything_is_asked(kctl, words, reason):
    ran = kctl("group", "migrate", "g", "--zookeeper", "127.0.0.1:1", "--to", "kafka", *words)
    assert (ran.status, reason in ran.err) == (2, True)
