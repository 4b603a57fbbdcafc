"""kctl and Apache Kafka 2.7.2 compact the same workload to the same last value of every key, and
each opens, serves and further compacts the logs of the other."""

import json
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from kctl.records.memory_records import batches
from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CLUSTER_ID = "Q_r5DLx4Q6S6rdMT32SJpA"
TIMEOUT_S = 60
CLEANER = {"log.cleaner.backoff.ms": "200"}
COMPACT = {
    "cleanup.policy": "compact", "segment.bytes": "7000", "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "100",
}  # fmt: skip
TOPICS = {
    "kept": COMPACT,
    "gone": {**COMPACT, "delete.retention.ms": "100"},
    "zstd": {**COMPACT, "compression.type": "zstd"},
    "old": {**COMPACT, "message.format.version": "0.10.2"},
    "both": {**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": "9000000000000"},
    "txn": COMPACT,
}
KEYS = 40
ROUNDS = 20


@pytest.fixture(scope="module")
def kctl_logs(tmp_path_factory):
    """What kctl compacted: the log directory, and (topic -> last values) as read from kctl."""
    root = tmp_path_factory.mktemp("kctl")
    arguments = [word for name, value in CLEANER.items() for word in ("-c", f"{name}={value}")]
    with KctlBroker(root, *arguments) as broker:
        found = live(broker.address, broker.log_dir)
        assert "can no longer be compacted" not in broker.errors
    return root / "data" / "logs", found


@pytest.fixture(scope="module")
def apache_logs(tmp_path_factory):
    """The same of Apache Kafka."""
    root = tmp_path_factory.mktemp("apache")
    with apache_over(root, root / "logs", {}) as address:
        found = live(address, root / "logs")
    return root / "logs", found


@contextmanager
def apache_over(root, logs, topics):
    """A broker of Apache Kafka with these logs and topics."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    (root / "zk").mkdir()
    with running_zookeeper(root / "zk") as server:
        client = KazooClient(server.address)
        client.start()
        create(client, "/cluster/id", {"version": "1", "id": CLUSTER_ID})
        for topic, config in topics.items():
            create(client, f"/brokers/topics/{topic}", {"version": 1, "partitions": {"0": [0]}})
            create(client, f"/config/topics/{topic}", {"version": 1, "config": config})
        # The logs know producers from a cluster before this one.
        block = {"version": 1, "broker": 0, "block_start": "0", "block_end": "999999"}
        create(client, "/latest_producer_id_block", block)
        client.stop()
        client.close()
        settings = {"log.dirs": logs, **CLEANER}
        with apache_kafka.apache_broker(
            root / "broker", server.address, settings=settings
        ) as address:
            yield address


def create(client, path, value):
    client.create(path, json.dumps(value).encode(), makepath=True)


def live(address, logs):
    """Create the topics, fill them, and wait until all is clean; what is read then."""
    admin = AdminClient({"bootstrap.servers": address})
    new = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(TIMEOUT_S)
    fill_all(address, seed=1)
    wait_until_clean(logs)
    # What went with the first cleaning makes markers and tombstones old enough for the next.
    fill_all(address, seed=2)
    wait_until_clean(logs)
    return {topic: read(address, topic) for topic in TOPICS}


def workload(topic, seed):
    """Rounds of (codec, whether committed, records)."""
    chance = random.Random(f"{topic}{seed}")
    for _ in range(ROUNDS):
        codec = chance.choice(["none", "gzip", "snappy", "lz4"])
        is_committed = topic != "txn" or chance.random() < 0.6
        records = [
            (
                b"key%d" % chance.randrange(KEYS),
                None if chance.random() < 0.2 else chance.randbytes(chance.randrange(200)),
            )
            for _ in range(chance.randrange(1, 20))
        ]
        yield codec, is_committed, records


def fill_all(address, seed):
    with ThreadPoolExecutor(len(TOPICS)) as threads:
        list(threads.map(lambda topic: fill(address, topic, seed), TOPICS))


def fill(address, topic, seed):
    producers = {}
    for codec, is_committed, records in workload(topic, seed):
        if codec not in producers:
            options = {
                "bootstrap.servers": address, "compression.type": codec, "linger.ms": 3,
                "enable.idempotence": topic != "old",
            }  # fmt: skip
            if topic == "txn":
                options["transactional.id"] = f"{codec}{seed}"
            producers[codec] = Producer(options)
            if topic == "txn":
                producers[codec].init_transactions(TIMEOUT_S)
        producer = producers[codec]
        if topic == "txn":
            producer.begin_transaction()
        for key, value in records:
            headers = None if topic == "old" else {"h": key}
            producer.produce(topic, value, key, timestamp=1_700_000_000_000, headers=headers)
        assert producer.flush(TIMEOUT_S) == 0
        if topic == "txn" and is_committed:
            producer.commit_transaction(TIMEOUT_S)
        elif topic == "txn":
            producer.abort_transaction(TIMEOUT_S)


def expected(topic):
    """The last committed value of every key."""
    last = {}
    for seed in (1, 2):
        for _, is_committed, records in workload(topic, seed):
            if is_committed:
                last.update(records)
    return {key: value for key, value in last.items() if value is not None}


def wait_until_clean(logs):
    deadline = time.monotonic() + TIMEOUT_S
    while dirty := [topic for topic in TOPICS if not is_clean(logs, topic)]:
        assert time.monotonic() < deadline, f"{dirty} are not clean"
        time.sleep(0.1)


def is_clean(logs, topic):
    """Whether at most one record of each key is left, but for the active segment."""
    try:
        inactive = sorted((logs / f"{topic}-0").glob("*.log"))[:-1]
        keys = [
            record.key
            for path in inactive
            for batch in batches(path.read_bytes())
            if not batch.is_control
            for record in batch.records()
        ]
    except FileNotFoundError:
        return False
    return bool(keys) and len(keys) == len(set(keys))


def read(address, topic, isolation="read_committed"):
    """The last value of each key, and how many records there were."""
    settings = {
        "bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False,
        "isolation.level": isolation, "enable.partition.eof": True, "fetch.wait.max.ms": 10,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.assign([ClientPartition(topic, 0, OFFSET_BEGINNING)])
    last, before = {}, -1
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"no end in sight of {topic}"
        if message.error() is not None:
            break
        assert message.offset() > before
        before = message.offset()
        assert message.timestamp()[1] == 1_700_000_000_000
        if topic != "old":
            assert message.headers() == [("h", message.key())]
        last[message.key()] = message.value()
    consumer.close()
    return {key: value for key, value in last.items() if value is not None}


@pytest.mark.parametrize("topic", TOPICS)
def test_the_last_value_of_every_key_is_read_from_kctl(kctl_logs, topic):
    assert kctl_logs[1][topic] == expected(topic)


@pytest.mark.parametrize("topic", TOPICS)
def test_the_last_value_of_every_key_is_read_from_apache_kafka(apache_logs, topic):
    assert apache_logs[1][topic] == expected(topic)


def test_kafka_dump_log_reads_what_kctl_compacted(kctl_logs):
    for topic in TOPICS:
        paths = sorted(kctl_logs[0].glob(f"{topic}-0/*.log"))
        done = apache_kafka.run_tool(
            "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log",
            "--files", ",".join(map(str, paths)),
        )  # fmt: skip
        # It takes missing offsets for damage, as in logs that Kafka itself compacted.
        complaints = [
            line for line in done.stderr.splitlines()
            if "Non-consecutive" not in line and "is followed by" not in line
        ]  # fmt: skip
        assert not complaints
        assert "isvalid: false" not in done.stdout
        assert done.stdout.count("Dumping ") == len(paths)


def test_apache_kafka_serves_and_cleans_on_what_kctl_compacted(kctl_logs, tmp_path):
    logs = tmp_path / "logs"
    shutil.copytree(kctl_logs[0], logs)
    (logs / "meta.properties").write_text(f"version=0\nbroker.id=0\ncluster.id={CLUSTER_ID}\n")
    for path in logs.glob("__*"):
        shutil.rmtree(path)
    with apache_over(tmp_path, logs, TOPICS) as address:
        for topic in TOPICS:
            assert read(address, topic) == expected(topic), topic
        fill_all(address, seed=2)
        wait_until_clean(logs)
        for topic in TOPICS:
            assert read(address, topic) == expected(topic), topic
    words = (tmp_path / "broker/server.log").read_text()
    assert "uncleanable" not in words
    assert "Corrupt" not in words


def test_kctl_serves_and_cleans_on_what_apache_kafka_compacted(apache_logs, tmp_path):
    (tmp_path / "data").mkdir()
    logs = tmp_path / "data" / "logs"
    shutil.copytree(apache_logs[0], logs)
    arguments = [word for name, value in CLEANER.items() for word in ("-c", f"{name}={value}")]
    with KctlBroker(tmp_path, *arguments, "-c", "log.cleanup.policy=compact") as broker:
        for topic in TOPICS:
            assert read(broker.address, topic) == expected(topic), topic
        fill_all(broker.address, seed=2)
        wait_until_clean(logs)
        for topic in TOPICS:
            assert read(broker.address, topic) == expected(topic), topic
        assert "can no longer be compacted" not in broker.errors
