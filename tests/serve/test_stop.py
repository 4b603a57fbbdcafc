"""SIGTERM, SIGINT and SIGHUP stop a broker in good order, whatever it is doing."""

import json
import signal
import subprocess
import threading

import pytest

from tests.support.kctl_process import KctlBroker
from tests.support.segment_check import check_partition
from tests.support.steady_producer import SteadyProducer, read_all
from tests.support.waiting import PATIENCE_S

# librdkafka's largest; a stop that waited for such a fetch would last longer than PATIENCE_S.
FETCH_WAIT_MS = 300_000


def wait_for_exit(broker):
    return broker.process.wait(PATIENCE_S)


def assert_nothing_failed(broker):
    # A busy machine may have the broker report what takes long.
    assert "Traceback" not in broker.errors
    assert "Unexpected error" not in broker.errors


def is_clean(broker):
    return (broker.log_dir / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
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
        assert_nothing_failed(broker)
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
        assert_nothing_failed(broker)


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN])
def hang_up(request):
    """What programs that are started do about SIGHUP; `nohup` ignores it."""
    previous = signal.signal(signal.SIGHUP, request.param)
    yield request.param
    signal.signal(signal.SIGHUP, previous)


def test_a_closed_terminal_is_a_clean_stop_unless_hang_ups_are_ignored(tmp_path, hang_up):
    with KctlBroker(tmp_path, "--seed-topic", "t:1") as broker:
        broker.process.send_signal(signal.SIGHUP)
        if hang_up is signal.SIG_IGN:
            with pytest.raises(subprocess.TimeoutExpired):
                broker.process.wait(1)
            broker.process.send_signal(signal.SIGTERM)
        assert wait_for_exit(broker) == 0
        assert is_clean(broker)
        assert_nothing_failed(broker)


@pytest.mark.slow
def test_a_reader_that_waits_does_not_hold_up_the_stop(tmp_path):
    """A consumer at the end of a partition has a fetch parked at the broker all the time."""
    with KctlBroker(tmp_path, "--seed-topic", "idle:1") as broker:
        waits, is_over = threading.Event(), threading.Event()
        reading = threading.Thread(
            target=read_until, args=(is_over, broker.address, waits), daemon=True
        )
        reading.start()
        assert waits.wait(PATIENCE_S)
        broker.process.send_signal(signal.SIGTERM)
        assert wait_for_exit(broker) == 0
        assert is_clean(broker)
        is_over.set()
        reading.join(PATIENCE_S)
        assert not reading.is_alive()


def read_until(is_over, address, waits):
    """Read until `is_over`; set `waits` once a fetch is sent and has no answer."""
    from confluent_kafka import Consumer, TopicPartition

    def on_statistics(text):
        for broker in json.loads(text)["brokers"].values():
            if broker["req"].get("Fetch") and broker["waitresp_cnt"]:
                waits.set()

    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "waits", "fetch.wait.max.ms": FETCH_WAIT_MS,
        "socket.timeout.ms": FETCH_WAIT_MS, "session.timeout.ms": FETCH_WAIT_MS,
        "max.poll.interval.ms": FETCH_WAIT_MS, "statistics.interval.ms": 50,
        "stats_cb": on_statistics, "logger": _Silent(),
    })  # fmt: skip
    consumer.assign([TopicPartition("idle", 0, 0)])
    while not is_over.is_set():
        consumer.poll(0.1)
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


def test_a_crash_of_the_interpreter_reports_what_its_threads_did(tmp_path):
    with KctlBroker(tmp_path) as broker:
        broker.process.send_signal(signal.SIGSEGV)
        assert wait_for_exit(broker) == -signal.SIGSEGV
        assert "Fatal Python error: Segmentation fault" in broker.errors
        assert "in run_until" in broker.errors
        # As after a kill: the next start recovers.
        broker.start()
        assert broker.stop() == 0
