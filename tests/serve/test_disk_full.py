"""A full file system: producers get errors, acknowledged records stay, other directories work."""

import os
import subprocess
import time
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Producer

from kctl.broker.log.log_dir_failure_channel import FAILED_DIRECTORIES_HINT
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kctl.protocol.messages.metadata import MetadataRequest
from tests.support.broker_client import BrokerClient
from tests.support.kctl_process import KctlBroker, serve_to_end
from tests.support.log_world import batch
from tests.support.raw_requests import produce_request
from tests.support.segment_check import check_partition
from tests.support.steady_producer import read_all

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")

NO_SPACE = "No space left on device"
VALUE = b"v" * 1000
ACKED_MIN = 100


@contextmanager
def small_file_system(directory, size):
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


def grow(directory, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", directory], check=True)


def fill(client, topic):
    """Produce until an error; return the acknowledged records and the error code."""
    acked = {}
    while True:
        value = b"%08d" % len(acked) + VALUE
        answer = client.ask(produce_request(batch(value), topic=topic), 8)
        (partition,) = answer.responses[0].partitions
        if partition.error_code:
            return acked, partition.error_code
        acked[0, partition.base_offset] = value


@pytest.mark.slow
def test_the_producer_gets_an_error_and_a_broker_without_another_directory_stops(tmp_path):
    broker = KctlBroker(tmp_path / "b", "--seed-topic", "t:1")
    with small_file_system(tmp_path / "b" / "data", "2m"):
        with broker:
            with closing(BrokerClient(broker.address)) as client:
                acked, code = fill(client, "t")
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(acked) >= ACKED_MIN
            assert broker.process.wait(120) == 1
        *logged, error, hint = broker.errors.splitlines()
        (warning,) = [line for line in logged if " WARN log directory " in line]
        assert NO_SPACE in warning
        assert error.startswith("error: all log directories failed: ")
        assert hint == f"hint: {FAILED_DIRECTORIES_HINT}"
        # It cannot start either, and says why.
        done = serve_to_end("-D", broker.directory / "data", "--port", 0)
        assert done.returncode == 1
        assert NO_SPACE in done.stderr
        assert "Traceback" not in done.stderr

        grow(tmp_path / "b" / "data", "8m")
        with broker:
            assert read_all(broker.address, "t", 1) == acked
            assert fill_one(broker.address, "t")
            assert broker.stop() == 0
        check_partition(broker.log_dir / "t-0")


def fill_one(address, topic):
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    producer.produce(topic, b"continues", partition=0)
    return producer.flush(120) == 0


@pytest.mark.slow
def test_other_directories_are_served_on(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    with small_file_system(small, "2m"):
        broker = KctlBroker(
            tmp_path / "b", "-c", f"log.dirs={small},{large}", "--seed-topic", "a:1",
            "--seed-topic", "b:1",
        )  # fmt: skip
        with broker, closing(BrokerClient(broker.address)) as client:
            full, other = ("a", "b") if (small / "a-0").exists() else ("b", "a")
            acked, code = fill(client, full)
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            # The controller learns of it, then its clients do: the partition has no leader.
            wait_until(lambda: leader_of(client, full) == -1)
            assert fill_one(broker.address, other)
            assert broker.stop() == 0
        (line,) = [it for it in broker.errors.splitlines() if " WARN log directory " in it]
        assert f"{small} is offline: " in line
        assert NO_SPACE in line
        # The other directory was left in good order, the full one as it was.
        assert (large / ".kafka_cleanshutdown").exists()
        assert not (small / ".kafka_cleanshutdown").exists()

        grow(small, "8m")
        with broker, closing(BrokerClient(broker.address)) as client:
            wait_until(lambda: leader_of(client, full) == 0)
            assert read_all(broker.address, full, 1) == acked
            assert fill_one(broker.address, full)


def leader_of(client, topic):
    answer = client.ask(MetadataRequest(topics=None), 1)
    (found,) = [it for it in answer.topics if it.name == topic]
    return found.partitions[0].leader_id


def wait_until(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_metadata_on_a_full_file_system_refuse_changes_and_lose_nothing(tmp_path):
    """Every request that would write metadata is answered; records are served on."""
    store, logs = tmp_path / "b" / "data", tmp_path / "logs"
    with small_file_system(store, "128k"):
        broker = KctlBroker(tmp_path / "b", "-c", f"log.dirs={logs}", "--seed-topic", "kept:1")
        with broker, closing(BrokerClient(broker.address)) as client:
            (store / "filler").write_bytes(bytes(free_bytes(store)))
            # Each of them more than the last page of the journal has room for.
            refused = [
                client.ask(create_topics("new", 5000), 5).topics[0],
                client.ask(create_partitions("kept", 5000), 1).results[0],
                client.ask(alter_configs("kept"), 1).responses[0],
            ]
            assert {it.error_code for it in refused} == {ErrorCode.UNKNOWN_SERVER_ERROR}
            answer = client.ask(produce_request(batch(b"x"), topic="kept"), 8)
            assert answer.responses[0].partitions[0].error_code == 0
            assert broker.stop() == 0
        assert "Traceback" not in broker.errors
        (store / "filler").unlink()
        with broker, closing(BrokerClient(broker.address)) as client:
            assert len(read_all(broker.address, "kept", 1)) == 1
            assert client.ask(create_topics("new", 2), 5).topics[0].error_code == 0


def free_bytes(directory):
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize


def create_topics(name, partitions):
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000)


def create_partitions(name, count):
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=5000
    )


def alter_configs(name):
    value = ",".join(f"0:{number}" for number in range(1000))
    config = AlterableConfig(name="leader.replication.throttled.replicas", value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])
