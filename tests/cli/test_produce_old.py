"""kctl produce to brokers of Kafka 0.7."""

import pytest

from tests.support.listener07 import Listener07


@pytest.fixture
def listener():
    listener = Listener07(0)
    yield listener
    listener.close()


def test_values_go_to_a_broker_of_the_list(kctl, listener):
    done = kctl(
        "produce", "orders", "tea", "coffee", "--broker-list", listener.address, "-z", "gzip"
    )
    assert done.status == 0
    assert listener.wait_for(2) == [("orders", -1, b"tea"), ("orders", -1, b"coffee")]
    assert "2 records written to orders" in done.err
    assert "acknowledges nothing" in done.err


def test_what_0_7_cannot_store_fails_alone(kctl, listener):
    done = kctl("produce", "orders", "tea", "-H", "a=b", "--broker-list", listener.address)
    assert done.status == 1
    assert "stores no headers" in done.err
    assert listener.received == []


def test_a_broker_that_is_down_stops_the_command(kctl, listener):
    listener.close()
    done = kctl("produce", "orders", "tea", "--broker-list", listener.address)
    assert done.status == 3
    assert "1 record unknown" in done.err


def test_a_dry_run_sends_nothing(kctl, listener):
    done = kctl("produce", "orders", "tea", "--broker-list", listener.address, "--dry-run")
    assert done.status == 0
    assert listener.connections == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--broker-list", "h:1", "--zookeeper", "h:2"], "exclude each other"),
        (["--broker-list", "localhost:9092"], "is not id:host:port"),
        (["--broker-list", "0:h:1", "--acks", "0"], "--acks"),
        (["--zookeeper", "h:1", "--transactional-id", "t"], "--transactional-id"),
    ],
)
def test_options_that_do_not_fit_are_refused(kctl, words, error):
    done = kctl("produce", "orders", "tea", *words)
    assert done.status == 2
    assert error in done.err
