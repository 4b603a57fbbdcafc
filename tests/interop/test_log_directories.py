"""Log directories move between kctl and Apache Kafka 2.7.2, both ways, after a clean stop and after
`kill -9`: each opens what the other wrote, reads every record, appends, and hands it back."""

import json
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from kazoo.client import KazooClient

from kctl.broker.log.log_config import LogConfig
from kctl.model import TopicPartition
from kctl.runtime.real import make_runtime
from tests.support import apache_kafka
from tests.support.log_world import CLUSTER_ID, LogWorld, append, end_transaction, values_of
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {"log.segment.bytes": 20000, "log.index.interval.bytes": 512, "log.retention.ms": -1}
CONFIG = LogConfig(segment_bytes=20000, index_interval_bytes=512, retention_ms=-1)
TOPIC = "crossing"
TP = TopicPartition(TOPIC, 0)
CODECS = range(5)


@pytest.fixture
def zookeeper(tmp_path):
    """A ZooKeeper that knows the cluster and the topic, as if Kafka had made them."""
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    (tmp_path / "zk").mkdir()
    with running_zookeeper(tmp_path / "zk") as server:
        client = KazooClient(server.address)
        client.start()
        topic = {"version": 2, "partitions": {"0": [0]}, "adding_replicas": {}}
        topic["removing_replicas"] = {}
        for path, value in (
            ("/cluster/id", {"version": "1", "id": CLUSTER_ID}),
            (f"/brokers/topics/{TOPIC}", topic),
            (f"/config/topics/{TOPIC}", {"version": 1, "config": {}}),
        ):
            client.create(path, json.dumps(value).encode(), makepath=True)
        client.stop()
        client.close()
        yield server.address


@contextmanager
def apache_over(log_dir, directory, zookeeper, *, kill):
    """A broker of Apache Kafka over an existing log directory; yields its address."""
    port = apache_kafka.free_port()
    properties = {
        "broker.id": 0,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": log_dir,
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": 3000,
        **SETTINGS,
    }
    directory.mkdir(exist_ok=True)
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    log = directory / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*apache_kafka.java_command("2.7.2", "kafka.Kafka", level="INFO"), str(config)],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        apache_kafka.wait_for_metadata("127.0.0.1", port, process, log)
        yield f"127.0.0.1:{port}"
        if kill:
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_for_expiry(zookeeper)
    finally:
        apache_kafka.stop(process)


def wait_for_expiry(zookeeper):
    """Wait until the broker's session expires: Apache Kafka 2.7 does not start before."""
    client = KazooClient(zookeeper)
    client.start()
    deadline = time.monotonic() + 120
    while client.exists("/brokers/ids/0") and time.monotonic() < deadline:
        time.sleep(0.1)
    client.stop()
    client.close()


def consume(address, end_offset, isolation):
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "x", "enable.auto.commit": False,
        "isolation.level": isolation, "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([ClientPartition(TOPIC, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(120)
            assert message is not None, "the consumer received no record in time"
            if message.error():
                break
            found.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def produce(address, count):
    producer = Producer({
        "bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4",
        "batch.num.messages": 7,
    })  # fmt: skip
    for number in range(count):
        producer.produce(TOPIC, b"apache %05d" % number * 3, partition=0)
    assert producer.flush(120) == 0


def write_everything(log):
    """All codecs, an idempotent producer, a committed, an aborted and a plain stretch."""
    for number in range(200):
        append(log, b"kctl %05d" % number * 5, b"x" * (number % 90),
               compression_type=CODECS[number % 5])  # fmt: skip
    for sequence in range(30):
        append(log, b"idem", producer_id=900, producer_epoch=0, base_sequence=sequence)
    for commit, producer in ((True, 901), (False, 902), (False, 903)):
        for sequence in range(60):
            append(log, b"txn %d" % producer * 10, producer_id=producer, producer_epoch=0,
                   base_sequence=sequence, is_transactional=True)  # fmt: skip
        end_transaction(log, producer, commit=commit)
        log.update_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("kill", [False, True], ids=["clean stop", "kill -9"])
def test_directory_goes_from_kctl_to_apache_kafka_and_back(tmp_path, zookeeper, kill):
    runtime = make_runtime()
    world = LogWorld(runtime, tmp_path / "logs", CONFIG)
    log = world.log(TP)
    write_everything(log)
    assert len(log.segments) > 2
    ours, end = values_of(log), log.log_end_offset
    committed = [pair for pair in ours if not pair[1].startswith((b"txn 902", b"txn 903"))]
    if kill:
        # Without its indexes Apache Kafka rebuilds them, and says so.
        while not all(runtime.disk.exists(it) for one in log.segments for it in one.index_paths):
            runtime.scheduler.run_until(runtime.scheduler.background(lambda: None))
        world.crash()
    else:
        runtime.scheduler.run_until(runtime.scheduler.spawn(world.manager.close()))

    with apache_over(world.log_dirs[0], tmp_path / "b", zookeeper, kill=kill) as address:
        assert consume(address, end, "read_uncommitted") == ours
        assert consume(address, end, "read_committed") == committed
        produce(address, 500)
        theirs = consume(address, end, "read_uncommitted")
    server_log = (tmp_path / "b/server.log").read_text()
    for complaint in ("truncat", "orrupt", "Found invalid", "rebuilding"):
        assert complaint not in server_log.replace("Truncating to 0 has no effect", ""), complaint

    world.start()
    log = world.log(TP)
    assert values_of(log) == theirs
    assert len(theirs) == len(ours) + 500
    append(log, b"kctl again")
    if kill:
        world.crash()
    else:
        runtime.scheduler.run_until(runtime.scheduler.spawn(world.manager.close()))

    with apache_over(world.log_dirs[0], tmp_path / "b", zookeeper, kill=False) as address:
        assert consume(address, end, "read_uncommitted") == [
            *theirs,
            (len_of(theirs), b"kctl again"),
        ]


def len_of(records):
    return records[-1][0] + 1
