"""A data directory of Apache Kafka 2.7.2, or one whose metadata are lost, served by `kctl serve`
with a new embedded store: everything in it is there for every client."""

import base64
import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kctl.protocol.constants import INTERNAL_TOPICS
from tests.support import golden_logs
from tests.support.dumped_records import committed_texts, seen, visible_records
from tests.support.kctl_process import KctlBroker

TIMEOUT_S = 120
CLUSTER_ID = "Q_r5DLx4Q6S6rdMT32SJpA"
DELETED_BELOW = 77
KINDS = ("clean", "unclean")
_COMMIT = re.compile(
    r" key: offset_commit::group=(?P<group>.+),partition=(?P<topic>.+)-(?P<partition>\d+) "
    r"payload: (?:offset=(?P<offset>\d+)|<DELETE>)"
)


@pytest.fixture(scope="module", params=KINDS)
def adopted(request, tmp_path_factory):
    """A kctl broker on a golden directory, and where the dumps of that directory are."""
    with adopting(request.param, tmp_path_factory.mktemp(request.param)) as broker:
        yield broker


@contextmanager
def adopting(kind, root):
    logs = golden_logs.unpack(kind, root)
    (root / "data").mkdir()
    logs.rename(root / "data" / "logs")
    # The open transaction of the directory stays open, however slow the machine is.
    patience = "transaction.abort.timed.out.transaction.cleanup.interval.ms=3600000"
    with KctlBroker(root, "-c", patience) as broker:
        broker.dumps = root / f"dump-{kind}"
        yield broker


def partitions_of(dumps):
    """(topic, partition) of every golden partition but the internal ones."""
    found = []
    for directory in sorted(dumps.iterdir()):
        topic, _, number = directory.name.rpartition("-")
        if topic not in INTERNAL_TOPICS and number.isdigit():
            found.append((topic, int(number)))
    return found


def expected_of(dumps, committed):
    expected = {}
    for topic, number in partitions_of(dumps):
        start = DELETED_BELOW if topic == "deleted-records" else 0
        records = visible_records(
            dumps / f"{topic}-{number}", log_start_offset=start, committed=committed
        )
        if records:
            expected[topic, number] = records
    return expected


def kctl(address, *arguments):
    """The output of one of kctl's commands."""
    done = subprocess.run(
        [sys.executable, "-m", "kctl", "-b", address, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_with_kctl(address, topics, committed):
    flags = ["--read-committed"] if committed else []
    found = {}
    for line in kctl(address, "consume", *topics, "--exit", "-o", "ndjson", *flags).splitlines():
        it = json.loads(line)
        record = seen(
            it["offset"],
            it["timestamp"],
            _bytes_of(it, "key"),
            _bytes_of(it, "value"),
            [header["name"] for header in it["headers"]],
        )
        found.setdefault((it["topic"], it["partition"]), []).append(record)
    return found


def _bytes_of(document, name):
    if f"{name}_base64" in document:
        return base64.b64decode(document[f"{name}_base64"])
    text = document[name]
    return None if text is None else text.encode()


def read_with_confluent(address, partitions, committed):
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in partitions])
    found, ended, deadline = {}, set(), time.monotonic() + TIMEOUT_S
    while len(ended) < len(partitions) and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        where = message.topic(), message.partition()
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(where)
            continue
        kind, timestamp = message.timestamp()
        found.setdefault(where, []).append(
            seen(
                message.offset(),
                timestamp if kind else -1,
                message.key(),
                message.value(),
                [name for name, _ in message.headers() or ()],
            )
        )
    consumer.close()
    assert len(ended) == len(partitions)
    return found


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("client", ["kctl", "confluent"])
def test_every_record_of_a_golden_directory_is_read_back(adopted, client, committed):
    partitions = partitions_of(adopted.dumps)
    if client == "kctl":
        topics = dict.fromkeys(topic for topic, _ in partitions)
        found = read_with_kctl(adopted.address, topics, committed)
    else:
        found = read_with_confluent(adopted.address, partitions, committed)
    expected = expected_of(adopted.dumps, committed)
    assert sorted(found) == sorted(expected)
    for where, records in expected.items():
        assert found[where] == records, where


def test_the_directory_determines_the_broker_id(adopted):
    metadata = AdminClient({"bootstrap.servers": adopted.address}).list_topics(timeout=TIMEOUT_S)
    assert metadata.cluster_id == CLUSTER_ID
    assert list(metadata.brokers) == [0]
    assert {"Traceback", "WARN"} & set(adopted.errors.split()) <= {"WARN"}
    (line,) = [line for line in adopted.errors.splitlines() if "adopted" in line]
    assert f"adopted {len(metadata.topics)} topics" in line


def test_deleted_records_stay_deleted(adopted):
    consumer = Consumer({"bootstrap.servers": adopted.address, "group.id": "reader"})
    where = TopicPartition("deleted-records", 0)
    assert consumer.get_watermark_offsets(where, TIMEOUT_S) == (DELETED_BELOW, 200)
    consumer.close()


def test_internal_topics_are_compacted_and_others_keep_all_they_have(adopted):
    admin = AdminClient({"bootstrap.servers": adopted.address})
    names = ["__consumer_offsets", "v2-none"]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    results = admin.describe_configs(resources)
    internal, ordinary = (results[resource].result(TIMEOUT_S) for resource in resources)
    assert internal["cleanup.policy"].value == "compact"
    assert ordinary["cleanup.policy"].value == "delete"
    assert ordinary["retention.ms"].value == "-1"


def test_committed_offsets_of_groups_are_known(adopted):
    """As `kafka-dump-log --offsets-decoder` prints them, the last of each partition."""
    if adopted.dumps.name == "dump-unclean":
        pytest.skip(
            "holds only some partitions of __consumer_offsets: groups are looked for elsewhere"
        )
    committed = _dumped_commits(adopted.dumps)
    assert committed
    admin = AdminClient({"bootstrap.servers": adopted.address})
    for group, offsets in committed.items():
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(*it) for it in offsets])
        (answer,) = admin.list_consumer_group_offsets([request]).values()
        found = {(it.topic, it.partition): it.offset for it in answer.result().topic_partitions}
        assert found == offsets, group


@pytest.mark.parametrize("kind", KINDS)
def test_appends_continue_where_the_log_ended(kind, tmp_path):
    with adopting(kind, tmp_path) as broker:
        for topic in ("v2-none", "upgraded", "v0-none"):
            end = expected_of(broker.dumps, committed=False)[topic, 0][-1].offset + 1
            reports = []
            producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
            producer.produce(topic, b"more", on_delivery=lambda *it, to=reports: to.append(it))
            assert producer.flush(TIMEOUT_S) == 0
            ((error, message),) = reports
            assert error is None, error
            assert message.offset() == end, topic


def _dumped_commits(dumps):
    """group -> {(topic, partition): offset} of the dumps of __consumer_offsets."""
    commits = {}
    for directory in sorted(dumps.glob("__consumer_offsets-*")):
        for match in filter(None, map(_COMMIT.match, committed_texts(directory))):
            offsets = commits.setdefault(match["group"], {})
            where = match["topic"], int(match["partition"])
            if match["offset"] is None:
                offsets.pop(where, None)
            else:
                offsets[where] = int(match["offset"])
    return {group: offsets for group, offsets in commits.items() if offsets}
