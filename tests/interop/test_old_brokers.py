"""kctl reads what Apache Kafka 0.8.2 and 0.9.0 hold, and names what they cannot do."""

import subprocess
import sys

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.kafka import LATEST_TIME, FetchRequest, OffsetsStorage, SimpleConsumer
from kctl.model import TopicPartition
from tests.support.kafka_versions import OLD_VERSIONS, filled_broker
from tests.support.real_loop import real_loop

pytestmark = pytest.mark.kafka

TOPIC = TopicPartition("plain", 0)
PER_CODEC = 60


@pytest.fixture(scope="module", params=OLD_VERSIONS)
def broker(request, tmp_path_factory):
    with filled_broker(request.param, tmp_path_factory.mktemp("old"), topics=["plain"]) as broker:
        for codec in broker.codecs():
            # The broker assigns the offsets in a compressed message, and compresses it again.
            lines = "".join(f"{line}\n" for line in lines_of(codec))
            written = kctl(broker, "produce", "plain", "--compression", codec, stdin=lines)
            assert written.returncode == 0, written.stderr
        yield broker


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop


@pytest.fixture
def admin(loop, broker):
    admin = AdminClient.connect(loop.runtime, [server(broker)], 30_000, reads_only=True)
    yield admin
    admin.close()


def server(broker):
    host, port = broker.address.split(":")
    return host, int(port)


def kctl(broker, *arguments, stdin=None):
    command = [sys.executable, "-m", "kctl", *arguments, "-b", broker.address]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def lines_of(codec):
    return [f"{codec} {number}" for number in range(PER_CODEC)]


def test_topics_are_listed_and_described(broker):
    assert "plain" in kctl(broker, "topic", "list").stdout
    (row,) = kctl(broker, "topic", "describe", "plain", "-o", "csv").stdout.splitlines()[1:]
    assert row.split(",")[:2] == ["plain", "0"]


def test_every_record_is_read(broker):
    read = kctl(broker, "consume", "plain", "--from-beginning", "--exit")
    written = [line for codec in broker.codecs() for line in lines_of(codec)]
    assert read.stdout.splitlines() == written


def test_offsets_and_committed_offsets_are_read(broker, loop, admin):
    end = loop.run(admin.offsets.latest([TOPIC]))[TOPIC].offset
    assert end == PER_CODEC * len(broker.codecs())
    assert loop.run(admin.offsets.earliest([TOPIC]))[TOPIC].offset == 0
    writer = AdminClient.connect(loop.runtime, [server(broker)], 30_000)
    loop.run(writer.offsets.commit("g", {TOPIC: 19}))
    writer.close()
    assert loop.run(admin.offsets.committed("g"))[TOPIC].offset == 19
    described = kctl(broker, "group", "describe", "g").stdout
    assert f"lag {end - 19}" in described


def test_records_are_exported(broker, tmp_path):
    done = kctl(
        broker, "export", "-t", "plain", "--format", "ndjson", "--out", str(tmp_path / "out")
    )
    assert done.returncode == 0, done.stderr
    files = (tmp_path / "out").rglob("*.ndjson")
    lines = "".join(path.read_text() for path in files).splitlines()
    assert len(lines) == PER_CODEC * len(broker.codecs())


def test_what_the_release_cannot_do_is_named(broker):
    release = broker.version.rpartition(".")[0]
    failed = kctl(broker, "config", "describe", "topic", "plain")
    assert failed.returncode == 1
    assert f"(Kafka {release}) does not know DescribeConfigs" in failed.stderr


def test_a_simple_consumer_reads_messages_and_keeps_offsets_in_both_stores(broker):
    with SimpleConsumer(*server(broker), 30_000) as consumer:
        end = PER_CODEC * len(broker.codecs())
        assert consumer.get_offsets_before("plain", 0, LATEST_TIME, 5) == [end, 0]
        found = consumer.fetch(FetchRequest("plain", 0, 2, 30))
        assert next(iter(found)).message == b"none 2"
        assert found.request.fetch_size > 30
        several = consumer.multifetch([FetchRequest("plain", 0, 0), FetchRequest("plain", 0, end)])
        assert [len(list(it)) for it in several] == [end, 0]
        for number, storage in enumerate(OffsetsStorage):
            consumer.commit_offsets("simple", {TOPIC: number}, storage)
        stored = [consumer.fetch_offsets("simple", [TOPIC], it)[TOPIC] for it in OffsetsStorage]
        assert stored == [0, 1]
