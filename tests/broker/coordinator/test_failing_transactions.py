"""Transactions that cannot be ended: those of the last epoch, and errors in one id that must not
stop the rounds of its shard."""

import pytest

from kctl.broker.coordinator.transaction import transaction_coordinator
from kctl.broker.coordinator.transaction.transaction import EPOCH_MAX
from kctl.broker.coordinator.transaction.transaction_coordinator import Producer
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.transaction_state import TransactionState
from tests.support.transaction_world import T0, T1, TIMEOUT_MS, TransactionWorld

ABORT_INTERVAL_MS = 10_000
NONE = ErrorCode.NONE


@pytest.fixture
def world():
    return TransactionWorld().elect()


def open_at_last_epoch(world):
    """The producer has an open transaction in an epoch that no client is given."""
    world.new_producer()
    world.shard.entries["x"].current = world.current().with_epoch(EPOCH_MAX, -1, TIMEOUT_MS, 0)
    producer = Producer("x", world.current().producer_id, EPOCH_MAX)
    assert world.add(producer, T0).response == NONE
    return producer


def test_a_transaction_of_the_last_epoch_that_hangs_is_aborted(world):
    open_at_last_epoch(world)
    world.begin(T1, name="other")
    world.advance(TIMEOUT_MS + ABORT_INTERVAL_MS)
    assert sorted(world.markers()) == [(1, "abort", T1), (EPOCH_MAX, "abort", T0)]
    assert world.current().state is TransactionState.COMPLETE_ABORT


def test_a_new_instance_has_a_transaction_of_the_last_epoch_aborted(world):
    old = open_at_last_epoch(world)
    assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.markers() == [(EPOCH_MAX, "abort", T0)]
    new = world.new_producer()
    assert (new.producer_id != old.producer_id, new.producer_epoch) == (True, 0)
    assert world.add(old, T0).response == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def fail_for(monkeypatch, broken, name):
    """Have the records of the id `broken` raise an error."""
    original = getattr(transaction_coordinator, name)

    def failing(subject):
        if broken == getattr(subject, "transactional_id", subject):
            raise LookupError("a bug")
        return original(subject)

    monkeypatch.setattr(transaction_coordinator, name, failing)


def advance_and_fail(world, delay_ms):
    """The time passes; an error is logged, and the loop goes on."""
    with pytest.raises(LookupError):
        world.advance(delay_ms)
    world.scheduler.settle()


def test_a_transaction_that_cannot_be_aborted_does_not_stop_the_round(world, monkeypatch):
    names = ("before", "broken", "after")
    for producer in [world.new_producer(name) for name in names]:
        assert world.add(producer, T0).response == NONE
    fail_for(monkeypatch, "broken", "transaction_record")
    advance_and_fail(world, TIMEOUT_MS + ABORT_INTERVAL_MS)
    states = [world.current(name).state for name in names]
    aborted = TransactionState.COMPLETE_ABORT
    assert states == [aborted, TransactionState.ONGOING, aborted]
    monkeypatch.undo()
    world.advance(ABORT_INTERVAL_MS)
    assert world.current("broken").state is aborted


def test_an_id_that_cannot_be_expired_does_not_stop_the_round(monkeypatch):
    hour_ms = 60 * 60 * 1000
    world = TransactionWorld({"transactional.id.expiration.ms": str(hour_ms)}).elect()
    for name in ("before", "broken", "after"):
        world.new_producer(name)
    fail_for(monkeypatch, "broken", "tombstone")
    advance_and_fail(world, 2 * hour_ms)
    assert list(world.shard.entries) == ["broken"]
    monkeypatch.undo()
    world.advance(hour_ms)
    assert not world.shard.entries


def test_a_completion_that_fails_is_tried_again_and_does_not_stop_others(world, monkeypatch):
    names = ("before", "broken", "after")
    world.brokers[0].is_holding = True
    for producer in [world.begin(T0, name=name) for name in names]:
        assert world.end(producer, commit=True).response == NONE
    world.log.failures = 2 * [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.brokers[0].release()
    world.scheduler.settle()
    assert {world.current(name).state for name in names} == {TransactionState.PREPARE_COMMIT}
    fail_for(monkeypatch, "broken", "transaction_record")
    advance_and_fail(world, transaction_coordinator.COMPLETION_RETRY_MS)
    complete = TransactionState.COMPLETE_COMMIT
    states = [world.current(name).state for name in names]
    assert states == [complete, TransactionState.PREPARE_COMMIT, complete]
    monkeypatch.undo()
    world.advance(ABORT_INTERVAL_MS)
    assert world.current("broken").state is complete


def test_an_id_whose_first_record_cannot_be_made_is_available_again(world, monkeypatch):
    fail_for(monkeypatch, "x", "transaction_record")
    assert not world.init().is_there
    monkeypatch.undo()
    assert world.new_producer().producer_epoch == 0
