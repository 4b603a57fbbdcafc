"""Data directories with open transactions: what kctl left is carried on by Apache Kafka 2.7.2 in
the same directory, and the other way round."""

import pytest

from kctl.cli import app
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support import apache_kafka
from tests.support.broker_client import BrokerClient
from tests.support.kctl_process import KctlBroker
from tests.support.transaction_requests import (
    RawProducer,
    end_offset,
    fetch,
    find_coordinators,
    wait_until_stable,
)
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.kafka

NONE = ErrorCode.NONE
# Few, so that loading is quick.
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


@pytest.fixture
def zookeeper(tmp_path):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as server:
        yield server.address


def on_kctl(tmp_path, zookeeper):
    words = [word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}")]
    logs = ("-c", f"log.dirs={tmp_path / 'broker' / 'logs'}", "-c", "broker.id=0")
    return KctlBroker(tmp_path / "broker", "--zookeeper", zookeeper, *logs, *words)


def on_apache(tmp_path, zookeeper):
    return apache_kafka.apache_broker(tmp_path / "broker", zookeeper, settings=SETTINGS)


def address_of(broker):
    return broker if isinstance(broker, str) else broker.address


@pytest.mark.parametrize("first", ["kctl", "apache"])
def test_open_transactions_are_carried_on_by_the_other_broker(tmp_path, zookeeper, first, kctl):
    begin, go_on = (on_kctl, on_apache) if first == "kctl" else (on_apache, on_kctl)
    with begin(tmp_path, zookeeper) as broker:
        address = address_of(broker)
        with BrokerClient(address) as client:
            new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            assert client.ask(CreateTopicsRequest(topics=[new])).topics[0].error_code == 0
        find_coordinators(address, "open", "g")
        kept, lost = RawProducer(address, "open"), RawProducer(address, "lost")
        for producer in (kept, lost):
            assert producer.init() is NONE
            assert producer.add("t", 0) == [NONE]
            assert producer.produce("t", producer.transactional_id) is NONE
        assert kept.add_offsets("g") is NONE
        assert kept.commit_offset("g", "t", 1) is NONE
        kept.close()
        lost.close()
    with go_on(tmp_path, zookeeper) as broker:
        address = address_of(broker)
        find_coordinators(address, "open", "g")
        with BrokerClient(address) as reader:
            assert end_offset(reader, "t", committed=True) == 0
            heir = RawProducer(address, "open")
            heir.producer_id, heir.epoch = kept.producer_id, kept.epoch
            heir.sequences["t", 0] = 1
            assert heir.produce("t", "more") is NONE
            assert heir.end(commit=True) is NONE
            other = RawProducer(address, "lost")
            assert other.init() is NONE
            assert (other.producer_id, other.epoch) == (lost.producer_id, lost.epoch + 2)
            wait_until_stable(reader, "t", 5)
            aborted = fetch(reader, "t", committed=True).aborted_transactions
            assert [(it.producer_id, it.first_offset) for it in aborted] == [(lost.producer_id, 1)]
            heir.close()
            other.close()
    for directory in sorted((tmp_path / "broker" / "logs").glob("__transaction_state-*")):
        [log] = directory.glob("*.log")
        ours = kctl("dump-log", "--format", "kafka", "--transaction-log-decoder", log)
        words = ("--files", log, "--transaction-log-decoder")
        theirs = apache_kafka.run_tool("kafka.tools.DumpLogSegments", *words)
        assert ours == theirs.stdout


@pytest.fixture
def kctl(capfd):
    def run(*words):
        capfd.readouterr()
        assert app.run([str(word) for word in words]) == 0
        return capfd.readouterr().out

    return run
