"""SIGTERM and SIGINT stop a broker in good order, whatever it is doing."""

import signal
import threading
import time

import pytest

from tests.support.kctl_process import KctlBroker
from tests.support.segment_check import check_partition
from tests.support.steady_producer import SteadyProducer, read_all

STOP_S = 15


def wait_for_exit(broker):
    return broker.process.wait(STOP_S)


def is_clean(broker):
    return (broker.log_dir / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_under_load_is_a_clean_stop(tmp_path, name):
    with (
        KctlBroker(tmp_path, "--seed-topic", "busy:2") as broker,
        SteadyProducer(broker.address, "busy", 2) as producer,
    ):
        producer.wait_for_more(2000)
        broker.process.send_signal(getattr(signal, name))
        assert wait_for_exit(broker) == 0
        assert is_clean(broker)
        assert broker.errors == ""
        for number in range(2):
            check_partition(broker.log_dir / f"busy-{number}")
        # No acknowledged record is lost, and the producer continues.
        broker.start()
        producer.wait_for_more(1)
        producer.finish()
        producer.check(broker.address)


def test_signals_that_come_together_are_one_request_to_stop(tmp_path):
    with (
        KctlBroker(tmp_path, "--seed-topic", "busy:2") as broker,
        SteadyProducer(broker.address, "busy", 2) as producer,
    ):
        producer.wait_for_more(100)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            broker.process.send_signal(number)
        assert wait_for_exit(broker) == 0
        assert is_clean(broker)
        assert broker.errors == ""


def test_a_reader_that_waits_does_not_hold_up_the_stop(tmp_path):
    """A consumer at the end of a partition has a fetch parked at the broker all the time."""
    with KctlBroker(tmp_path, "--seed-topic", "idle:1") as broker:
        reading = threading.Thread(target=read_until_gone, args=(broker.address,), daemon=True)
        reading.start()
        time.sleep(0.5)
        broker.process.send_signal(signal.SIGTERM)
        assert wait_for_exit(broker) == 0
        assert is_clean(broker)
        reading.join(STOP_S)


def read_until_gone(address):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "waits", "fetch.wait.max.ms": 60_000,
        "logger": _Silent(),
    })  # fmt: skip
    consumer.assign([TopicPartition("idle", 0, 0)])
    consumer.poll(2)
    consumer.close()


class _Silent:
    def log(self, *_):
        pass


def test_a_start_that_waits_for_zookeeper_can_be_ended(tmp_path):
    broker = KctlBroker(
        tmp_path, "--zookeeper", "127.0.0.1:1", "-c", "zookeeper.connection.timeout.ms=60000"
    )
    broker.launch()
    broker.wait_for_line("Waiting for ZooKeeper")
    broker.process.send_signal(signal.SIGTERM)
    assert wait_for_exit(broker) == 0
    assert [
        line for line in broker.errors.splitlines() if "Waiting for ZooKeeper" not in line
    ] == []


def test_the_port_is_free_and_the_lock_gone_at_once(tmp_path):
    with KctlBroker(tmp_path, "--seed-topic", "t:1") as broker:
        for _ in range(3):
            assert broker.stop() == 0
            broker.start()
        assert read_all(broker.address, "t", 1) == {}
