"""Consumers of Apache Kafka 1.1.1 on the store and the broker of one `kctl serve`."""

import json
import subprocess
import sys
from functools import cache
from itertools import product

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.kafka.offsets import OffsetsPolicy, OffsetsStorage, StoredOffset, start_offset
from tests.support import apache_kafka, java_consumers
from tests.support.java_consumers import JavaConsumer, java_assignments
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for
from tests.support.zookeeper_session import zookeeper_session

pytestmark = pytest.mark.kafka
PARTITIONS = 4
RECORDS = 5
# Offsets in either store, one combination a partition.
COMBINATIONS = list(product((None, 3, 7), (None, 3, 7)))


@pytest.fixture(scope="module", autouse=True)
def needs_java():
    java_consumers.skip_without_java()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The broker's address and the store's."""
    port = apache_kafka.free_port()
    with KctlBroker(tmp_path_factory.mktemp("b"), "--zookeeper-port", str(port)) as broker:
        kctl(broker, "topic", "create", "t", "--partitions", PARTITIONS)
        for partition in range(PARTITIONS):
            lines = "".join(f"{number}\n" for number in range(RECORDS))
            kctl(broker, "produce", "t", "-p", partition, stdin=lines)
        yield broker.address, f"127.0.0.1:{port}"


def kctl(broker, *words, stdin=""):
    command = [sys.executable, "-m", "kctl", *map(str, words), "-b", broker.address]
    subprocess.run(command, input=stdin, text=True, check=True, capture_output=True)


def partitions(*members):
    return sorted(int(number) for it in members for number in it.owned.get("t", ()))


def test_two_members_share_a_topic_and_deliver_what_was_not_committed(cluster):
    _, zookeeper = cluster
    with JavaConsumer(zookeeper, "g", {"t": 2}) as first:
        first.wait_until_started()
        wait_for(lambda: len(first.messages) == PARTITIONS * RECORDS, lambda: str(first.events))
        first.commit()
        with JavaConsumer(zookeeper, "g", whitelist="t.*") as second:
            second.wait_until_started()
            wait_for(
                lambda: first.owned and second.owned and
                partitions(first, second) == [*range(PARTITIONS)],
                lambda: f"{first.owned} {second.owned}",
            )  # fmt: skip
            assert second.positions()["t"] == dict.fromkeys(second.owned["t"], RECORDS)
            first.shut_down()
            wait_for(lambda: len(partitions(second)) == PARTITIONS, lambda: str(second.owned))
            assert second.messages == []


def test_the_assignors_answer_for_groups_of_either_strategy():
    ids = {
        "g_h-1-a": json.dumps({"version": 1, "subscription": {"t": 2}, "pattern": "static"}),
        "g_h-2-b": json.dumps({"version": 1, "subscription": {"t": 1}, "pattern": "static"}),
    }
    group = {"group": "g", "ids": ids, "topics": {"t": 5}}
    ranges, turns = java_assignments(group | {"strategy": it} for it in ("range", "roundrobin"))
    assert ranges == {"t": {
        "0": "g_h-1-a-0", "1": "g_h-1-a-0", "2": "g_h-1-a-1", "3": "g_h-1-a-1", "4": "g_h-2-b-0",
    }}  # fmt: skip
    assert sorted(turns["t"]) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("is_dual", [False, True])
@pytest.mark.parametrize("storage", OffsetsStorage)
def test_offsets_in_two_stores_are_read_and_written_as_by_java(cluster, storage, is_dual):
    """D1: what a member begins at, and which stores have what it commits."""
    address, zookeeper = cluster
    group = f"d1-{storage}-{is_dual}"
    topic = make_filled_topic(address)
    policy = OffsetsPolicy(storage, is_dual, like_java=True)
    commit_in_kafka(address, group, topic, [kafka for _, kafka in COMBINATIONS])
    with zookeeper_session(zookeeper) as store:
        for number, (offset, _) in enumerate(COMBINATIONS):
            if offset is not None:
                path = f"/consumers/{group}/offsets/{topic}/{number}"
                store.create(path, b"%d" % offset, makepath=True)
        settings = {"offsets_storage": storage, "dual_commit_enabled": str(is_dual).lower()}
        with JavaConsumer(zookeeper, group, {topic: 1}, **settings) as member:
            member.wait_until_started()
            wait_for(lambda: len(first_offsets(member)) == len(COMBINATIONS), lambda: "no message")
            assert first_offsets(member) == {
                number: start_offset(policy, stored(*offsets)) or 0
                for number, offsets in enumerate(COMBINATIONS)
            }
            new = {number: 8 + number % 2 for number in range(len(COMBINATIONS))}
            member.commit({topic: new})
        root = f"/consumers/{group}/offsets/{topic}"
        in_zookeeper = [store.exists(f"{root}/{it}") and store.get(f"{root}/{it}")[0] for it in new]
    in_kafka = committed_in_kafka(address, group, topic)
    before = [kafka for _, kafka in COMBINATIONS]
    assert in_kafka == (list(new.values()) if OffsetsStorage.KAFKA in policy.stores else before)
    before = [it if it is None else b"%d" % it for it, _ in COMBINATIONS]
    written = [b"%d" % it for it in new.values()]
    assert in_zookeeper == (written if OffsetsStorage.ZOOKEEPER in policy.stores else before)


def java_tool(name, *words):
    """What a tool of the same release prints."""
    ran = apache_kafka.run_tool(
        f"kafka.tools.{name}", *words, version=java_consumers.VERSION, check=False
    )
    return ran.stdout + ran.stderr


def test_files_of_offsets_are_those_of_java(cluster, tmp_path):
    """D4: exported by Java and imported by kctl, and the other way."""
    _, zookeeper = cluster
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with zookeeper_session(zookeeper) as store:
        for group, topic, name in product(("e1", "e2"), ("t", "a.b_c-d"), ("0", "1", "10", "0-3")):
            path = f"/consumers/{group}/offsets/{topic}/{name}"
            store.create(path, b"%d" % len(path), makepath=True)
        export_by_kctl(zookeeper, ours)
        lines = ours.read_bytes()
        on = ("--zkconnect", zookeeper)
        java_tool("ExportZkOffsets", *on, "--group", "e1", "--group", "e2", "--output-file", theirs)
        exported = theirs.read_bytes().split(b"\n")
        assert sorted(exported) == sorted(lines.split(b"\n"))

        store.delete("/consumers/e1", recursive=True)
        store.delete("/consumers/e2", recursive=True)
        import_by_kctl(zookeeper, theirs)
        export_by_kctl(zookeeper, ours)
        assert ours.read_bytes() == lines

        for path in ("/consumers/e1/offsets/t/0", "/consumers/e2/offsets/t/10"):
            store.set(path, b"5")
        java_tool("ImportZkOffsets", *on, "--input-file", ours)
        export_by_kctl(zookeeper, ours)
        assert ours.read_bytes() == lines


def test_a_rebalance_is_checked_as_by_java_and_live_java_members_are_refused(cluster, tmp_path):
    address, zookeeper = cluster
    words = ("--zookeeper.connect", zookeeper, "--group", "checked")
    verify = ("VerifyConsumerRebalance", *words)
    check = ("group", "rebalance-check", "checked", "--zookeeper", zookeeper)
    with (
        JavaConsumer(zookeeper, "checked", {"t": 1}) as member,
        zookeeper_session(zookeeper) as store,
    ):
        name = member.wait_until_started()
        assert "successful" in java_tool(*verify)
        assert kctl_alone(*check).returncode == 0
        undo = tmp_path / "undo.json"
        migrate = ("group", "migrate", "checked", "--to", "kafka", "--zookeeper", zookeeper)
        member.commit()
        refused = kctl_alone(*migrate, "--undo-file", undo, "-y", "-b", address)
        assert (refused.returncode, name in refused.stderr, undo.exists()) == (1, True, False)
        store.delete("/consumers/checked/owners/t/2")
        assert "failed" in java_tool(*verify)
        assert kctl_alone(*check).returncode == 1


def kctl_alone(*words):
    command = [sys.executable, "-m", "kctl", *map(str, words)]
    return subprocess.run(command, text=True, check=False, capture_output=True)


def export_by_kctl(zookeeper, path):
    ran = kctl_alone("group", "export-offsets", "e1", "e2", "--zookeeper", zookeeper)
    path.write_text(ran.stdout)


def import_by_kctl(zookeeper, path):
    ran = kctl_alone("group", "import-offsets", path, "--zookeeper", zookeeper, "-y")
    assert ran.returncode == 0, ran.stderr


def first_offsets(member):
    """The first offset that the member delivered of each partition."""
    return {it["partition"]: it["offset"] for it in reversed(member.messages)}


def stored(zookeeper, kafka):
    offsets = {OffsetsStorage.ZOOKEEPER: zookeeper, OffsetsStorage.KAFKA: kafka}
    return {store: it if it is None else StoredOffset(it) for store, it in offsets.items()}


@cache
def make_filled_topic(address):
    """A topic with 10 records in each of as many partitions as there are combinations."""
    admin = AdminClient({"bootstrap.servers": address})
    (created,) = admin.create_topics([NewTopic("d1", len(COMBINATIONS))]).values()
    created.result()
    producer = Producer({"bootstrap.servers": address})
    for number in range(10 * len(COMBINATIONS)):
        producer.produce("d1", b"v", partition=number // 10)
    assert producer.flush(60) == 0
    return "d1"


def kafka_consumer(address, group):
    return Consumer({"bootstrap.servers": address, "group.id": group})


def commit_in_kafka(address, group, topic, offsets):
    consumer = kafka_consumer(address, group)
    partitions = [
        TopicPartition(topic, number, offset)
        for number, offset in enumerate(offsets)
        if offset is not None
    ]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def committed_in_kafka(address, group, topic):
    consumer = kafka_consumer(address, group)
    partitions = [TopicPartition(topic, number) for number in range(len(COMBINATIONS))]
    committed = consumer.committed(partitions, 30)
    consumer.close()
    return [None if it.offset < 0 else it.offset for it in committed]
