"""Segments that a crash tore are repaired; corrupt segments are reported, left unchanged and not
served, and other partitions are unaffected."""

import json
import subprocess
import sys
from contextlib import closing

import pytest

from kctl.protocol.error_codes import ErrorCode
from tests.support.broker_client import BrokerClient
from tests.support.kctl_process import KctlBroker
from tests.support.log_world import batch
from tests.support.raw_requests import produce_request
from tests.support.segment_check import batches_of, check_partition
from tests.support.steady_producer import read_all

SEEDS = ("--seed-topic", "hurt:1", "--seed-topic", "well:1")
COUNT = 50


@pytest.fixture
def broker(tmp_path):
    """A broker that was killed with records in both topics."""
    broker = KctlBroker(tmp_path, *SEEDS)
    with broker, closing(BrokerClient(broker.address)) as client:
        for topic in ("hurt", "well"):
            for number in range(COUNT):
                assert produce(client, topic, b"value %d" % number) == 0
        broker.kill()
        yield broker


def produce(client, topic, value):
    answer = client.ask(produce_request(batch(value), topic=topic), 8)
    return answer.responses[0].partitions[0].error_code


def values(broker, topic):
    return list(read_all(broker.address, topic, 1).values())


def segment_of(broker):
    return broker.log_dir / "hurt-0" / f"{0:020}.log"


def said(broker):
    return [line for line in broker.errors.splitlines() if " WARN " in line]


def test_a_torn_tail_is_truncated_and_the_log_continues(broker):
    segment = segment_of(broker)
    whole = batches_of(segment)
    with segment.open("r+b") as file:
        file.truncate(whole[-1].position + whole[-1].size - 1)
    broker.start()
    (line,) = [line for line in said(broker) if str(segment) in line]
    assert f"{segment}: {whole[-1].size - 1} bytes at the end were incompletely written" in line
    assert f"continues at offset {COUNT - 1}" in line
    assert values(broker, "hurt") == [b"value %d" % n for n in range(COUNT - 1)]
    with closing(BrokerClient(broker.address)) as client:
        assert produce(client, "hurt", b"again") == 0
    assert values(broker, "hurt")[-1] == b"again"
    assert broker.stop() == 0
    assert check_partition(segment.parent) == COUNT


@pytest.mark.slow
def test_rot_takes_the_partition_offline_and_no_other(broker):
    segment = segment_of(broker)
    middle = batches_of(segment)[COUNT // 2]
    content = bytearray(segment.read_bytes())
    content[middle.position + middle.size - 3] ^= 0x01
    segment.write_bytes(content)
    broker.start()
    lines = [line for line in said(broker) if "hurt-0 is not served" in line]
    assert len(lines) == 1
    assert str(segment) in lines[0]
    assert "Traceback" not in broker.errors
    with closing(BrokerClient(broker.address)) as client:
        assert produce(client, "well", b"more") == 0
        assert produce(client, "hurt", b"more") in (
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
    assert len(values(broker, "well")) == COUNT + 1
    assert leader_of(broker, "hurt") is None
    assert broker.stop() == 0
    # A repair finds every byte as it was, also what a crash left to recover.
    assert segment.read_bytes() == content
    content[middle.position + middle.size - 3] ^= 0x01
    segment.write_bytes(content)
    broker.start()
    assert values(broker, "hurt") == [b"value %d" % n for n in range(COUNT)]
    assert leader_of(broker, "hurt") == 0


def test_a_corrupt_partition_restarts_empty_once_its_files_are_removed(broker, tmp_path):
    segment = segment_of(broker)
    middle = batches_of(segment)[COUNT // 2]
    content = bytearray(segment.read_bytes())
    content[middle.position + middle.size - 3] ^= 0xFF
    segment.write_bytes(content)
    broker.start()
    assert broker.stop() == 0
    segment.parent.rename(tmp_path / "evidence")
    broker.start()
    with closing(BrokerClient(broker.address)) as client:
        assert produce(client, "hurt", b"new life") == 0
    assert values(broker, "hurt") == [b"new life"]
    assert broker.stop() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()


def leader_of(broker, topic):
    done = kctl(broker, "topic", "describe", topic, "-o", "json")
    (found,) = json.loads(done.stdout)
    return found["partitions"][0]["leader"]


def kctl(broker, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "kctl", "-b", broker.address, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
