"""Detection of late requests on a producer's older connections."""

from kctl.broker.coordinator import connection_order
from kctl.broker.coordinator.connection_order import ConnectionOrder


def test_an_older_connection_is_late_after_a_request_on_a_newer_one():
    order = ConnectionOrder()
    assert not order.is_late(1, 0, 5)
    assert not order.is_late(1, 0, 7)
    assert order.is_late(1, 0, 5)
    assert not order.is_late(1, 0, 7)


def test_producers_and_epochs_are_independent():
    order = ConnectionOrder()
    order.is_late(1, 0, 7)
    assert not order.is_late(2, 0, 3)
    assert not order.is_late(1, 1, 3)  # a new instance
    assert not order.is_late(1, 0, 9)  # the coordinator handles zombies itself
    assert not order.is_late(1, 1, 4)


def test_the_least_recently_active_producer_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(connection_order, "PRODUCERS_MAX", 2)
    order = ConnectionOrder()
    for producer_id in (1, 2, 1, 3):
        order.is_late(producer_id, 0, 9)
    assert order.is_late(1, 0, 8)
    assert not order.is_late(2, 0, 8)
