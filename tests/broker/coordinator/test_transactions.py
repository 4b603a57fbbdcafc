"""The transaction coordinator: producers, ends of transactions, and state that survives
failover."""

import pytest

from kctl.broker.coordinator.transaction import transaction_coordinator
from kctl.broker.coordinator.transaction.transaction import (
    EPOCH_EXHAUSTED,
    LEGAL_MOVES,
    new_transaction,
)
from kctl.broker.coordinator.transaction.transaction_coordinator import Producer
from kctl.broker.coordinator.transaction_coordinator_service import COMPLETION_WAIT_MS_MAX
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.transaction_state import TransactionState
from kctl.store.errors import ConnectionLossError
from tests.support.transaction_world import STATE, T0, T1, T2, TIMEOUT_MS, TransactionWorld

ABORT_INTERVAL_MS = 10_000
NONE = ErrorCode.NONE


@pytest.fixture
def world():
    return TransactionWorld().elect()


def test_a_commit_reaches_every_partition_and_is_then_complete(world):
    producer = world.begin(T0, T2)
    assert world.add(producer, T1).response == NONE
    assert world.end(producer, commit=True).response == NONE
    assert sorted(world.markers()) == [(0, "commit", T0), (0, "commit", T1), (0, "commit", T2)]
    assert world.current().state is TransactionState.COMPLETE_COMMIT
    assert world.current().partitions == frozenset()


def test_an_abort_is_written_as_one(world):
    producer = world.begin(T0)
    assert world.end(producer, commit=False).response == NONE
    assert world.markers() == [(0, "abort", T0)]
    assert world.current().state is TransactionState.COMPLETE_ABORT


def test_one_producer_has_many_transactions_in_the_same_epoch(world):
    producer = world.begin(T0)
    for commit in (True, False, True):
        assert world.end(producer, commit=commit).response == NONE
        assert world.add(producer, T0).response == NONE
    assert world.current().producer_epoch == 0


def test_the_decision_is_answered_before_the_markers_are_written(world):
    world.brokers[0].is_holding = True
    producer = world.begin(T0)
    assert world.end(producer, commit=True).response == NONE
    assert world.current().state is TransactionState.PREPARE_COMMIT
    # Until they are written, the next transaction waits.
    assert world.end(producer, commit=False).response == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    world.brokers[0].release()
    world.scheduler.settle()
    assert world.add(producer, T1).response == NONE


@pytest.fixture
def ending(world):
    """Return a producer whose transaction has ended, with its markers in flight."""
    world.brokers[0].is_holding = True
    producer = world.begin(T0)
    assert world.end(producer, commit=True).response == NONE
    return producer


def complete(world):
    world.brokers[0].release()
    world.scheduler.settle()


def test_the_next_transaction_begins_when_the_previous_one_is_complete(world, ending):
    added = world.add(ending, T1)
    assert not added.is_there
    complete(world)
    assert added.response == NONE
    assert world.current().partitions == {T1}


def test_the_next_transaction_does_not_wait_forever(world, ending):
    added = world.add(ending, T1)
    world.advance(COMPLETION_WAIT_MS_MAX)
    assert added.response == ErrorCode.CONCURRENT_TRANSACTIONS
    complete(world)
    assert world.current().state is TransactionState.COMPLETE_COMMIT
    assert world.add(ending, T1).response == NONE


def test_only_one_request_waits(world, ending):
    first = world.add(ending, T1)
    assert world.add(ending, T2).response == ErrorCode.CONCURRENT_TRANSACTIONS
    zombie = Producer(ending.transactional_id, ending.producer_id, ending.producer_epoch - 1)
    assert world.add(zombie, T2).response == ErrorCode.PRODUCER_FENCED
    complete(world)
    assert first.response == NONE


def test_a_request_that_becomes_late_while_it_waits_is_not_executed(world, ending):
    late = world.add(ending, T1, connection=1)
    world.end(ending, commit=True, connection=2)
    complete(world)
    assert late.response is None
    assert world.current().state is TransactionState.COMPLETE_COMMIT


def test_a_waiting_request_fails_when_the_partition_moves(world, ending):
    added = world.add(ending, T1)
    world.resign(1)
    assert added.response == ErrorCode.NOT_COORDINATOR


def test_a_repeated_end_is_accepted_and_a_different_one_is_rejected(world):
    producer = world.begin(T0)
    world.end(producer, commit=True)
    assert world.end(producer, commit=True).response == NONE
    assert world.end(producer, commit=False).response == ErrorCode.INVALID_TXN_STATE
    assert world.markers() == [(0, "commit", T0)]


def test_without_a_transaction_there_is_nothing_to_end(world):
    producer = world.new_producer()
    assert world.end(producer, commit=True).response == ErrorCode.INVALID_TXN_STATE


def test_partitions_that_are_in_the_transaction_already_cost_no_record(world):
    producer = world.begin(T0, T1)
    before = len(world.log.records(STATE))
    assert world.add(producer, T1).response == NONE
    assert len(world.log.records(STATE)) == before


# Producers and epochs


def test_a_new_instance_gets_the_next_epoch_and_the_old_one_is_fenced(world):
    old = world.new_producer()
    new = world.new_producer()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, 1)
    assert world.add(old, T0).response == ErrorCode.PRODUCER_FENCED
    assert world.end(old, commit=True).response == ErrorCode.PRODUCER_FENCED
    assert world.add(new, T0).response == NONE


def test_a_new_instance_has_the_old_ones_transaction_aborted_first(world):
    world.brokers[0].is_holding = True
    old = world.begin(T0)
    assert world.init().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(old, commit=True).response == ErrorCode.PRODUCER_FENCED
    world.brokers[0].release()
    world.scheduler.settle()
    assert world.markers() == [(1, "abort", T0)]  # the fence's epoch keeps late batches out
    assert world.new_producer().producer_epoch == 2


def test_other_producers_are_unknown(world):
    producer = world.new_producer()
    stranger = type(producer)("x", producer.producer_id + 1, 0)
    never_seen = type(producer)("never seen", 0, 0)
    for unknown in (stranger, never_seen):
        assert world.add(unknown, T0).response == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert world.end(unknown, commit=True).response == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("led", "code"),
    [
        (True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (False, ErrorCode.NOT_COORDINATOR),
        (ConnectionLossError("away"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_replaced_coordinator_rejects_no_producer_for_good(world, led, code):
    """Found by simulation: a broker whose links were slow had been replaced as coordinator, did not
    know the ids that its successor had given out, and made their producers give up."""
    world.led = led
    newer = Producer("given out by the successor", 2008, 0)
    assert world.add(newer, T0).response == code
    assert world.end(newer, commit=True).response == code


def test_a_replaced_coordinator_fences_no_producer(world):
    producer = world.new_producer()
    newer = Producer("x", producer.producer_id, producer.producer_epoch + 1)
    assert world.add(newer, T0).response == ErrorCode.PRODUCER_FENCED
    assert world.init(producer=newer).error == ErrorCode.PRODUCER_FENCED
    world.led = False
    assert world.add(newer, T0).response == ErrorCode.NOT_COORDINATOR
    assert world.init(producer=newer).error == ErrorCode.NOT_COORDINATOR


def test_a_producer_continues_after_an_error_with_the_next_epoch(world):
    producer = world.new_producer()
    again = world.new_producer(producer=producer)
    assert again.producer_epoch == 1
    # The response was lost: the producer retries with its old id and epoch, and gets the same
    # result.
    assert world.new_producer(producer=producer) == again
    assert world.new_producer(producer=again).producer_epoch == 2
    # Another producer has continued by now.
    assert world.init(producer=producer).error == ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_mean_another_producer_id(world):
    producer = world.new_producer()
    world.shard.entries["x"].current = world.current().with_epoch(EPOCH_EXHAUSTED, -1, 1000, 0)
    last = type(producer)("x", producer.producer_id, EPOCH_EXHAUSTED)
    fresh = world.new_producer(producer=last)
    assert fresh.producer_id != producer.producer_id
    assert fresh.producer_epoch == 0
    # Lost responses are requested again with the old id, any number of times.
    assert world.new_producer(producer=last) == fresh
    assert world.new_producer(producer=last) == fresh


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_out_of_bounds_are_refused(world, timeout_ms):
    assert world.init(timeout_ms=timeout_ms).error == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.log.records(STATE) == []


def test_timeouts_out_of_bounds_are_refused_at_any_broker(world):
    world.resign(0)
    assert world.init().error == ErrorCode.NOT_COORDINATOR
    assert world.init(timeout_ms=0).error == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.init("", timeout_ms=0).error == ErrorCode.INVALID_REQUEST


def test_an_empty_transactional_id_is_none(world):
    assert world.init("").error == ErrorCode.INVALID_REQUEST


def test_two_first_instances_do_not_get_the_same_epoch(world):
    world.log.is_holding = True
    first = world.init()
    second = world.init()
    assert second.error == ErrorCode.CONCURRENT_TRANSACTIONS
    world.log.release()
    world.scheduler.settle()
    assert first.response.producer_epoch == 0


# # Late requests (KAFKA-17754)


def test_a_late_commit_does_not_end_the_next_transaction(world):
    producer = world.begin(T0)
    assert world.end(producer, commit=True, connection=2).response == NONE
    assert world.add(producer, T1, connection=2).response == NONE
    # The following request was sent for the first transaction, over the previous connection.
    assert world.end(producer, commit=True, connection=1).response is None
    assert world.end(producer, commit=False, connection=2).response == NONE
    assert world.markers() == [(0, "commit", T0), (0, "abort", T1)]


def test_late_partitions_do_not_open_a_transaction(world):
    producer = world.begin(T0)
    world.end(producer, commit=True, connection=2)
    assert world.add(producer, T1, connection=1).response is None
    assert world.current().state is TransactionState.COMPLETE_COMMIT


def test_a_new_instance_may_come_over_an_older_connection(world):
    old = world.begin(T0)
    world.end(old, commit=True, connection=9)
    new = world.new_producer()
    assert world.add(new, T0, connection=3).response == NONE
    # The zombie's newer connection does not make the new instance's requests late.
    assert world.add(old, T0, connection=10).response == ErrorCode.PRODUCER_FENCED
    assert world.end(new, commit=True, connection=3).response == NONE


# Time


def test_a_transaction_that_hangs_is_aborted_and_its_producer_fenced(world):
    producer = world.begin(T0)
    world.advance(TIMEOUT_MS)
    assert world.markers() == []
    world.advance(ABORT_INTERVAL_MS)
    assert world.markers() == [(1, "abort", T0)]
    assert world.end(producer, commit=True).response == ErrorCode.PRODUCER_FENCED
    assert world.current().state is TransactionState.COMPLETE_ABORT


def test_the_clock_of_a_transaction_starts_with_its_first_partition(world):
    producer = world.begin(T0)
    world.end(producer, commit=True)
    world.advance(TIMEOUT_MS)
    world.add(producer, T0)
    world.advance(TIMEOUT_MS - ABORT_INTERVAL_MS)
    world.add(producer, T1)
    assert world.end(producer, commit=True).response == NONE


def test_unused_ids_expire():
    hour_ms = 60 * 60 * 1000
    world = TransactionWorld({"transactional.id.expiration.ms": str(hour_ms)}).elect()
    idle = world.new_producer("idle")
    world.advance(2 * hour_ms + 1)
    assert "idle" not in world.shard.entries
    assert world.log.records(STATE)[-1][1] is None
    assert world.add(idle, T0).response == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def writes_by_turn(world, monkeypatch):
    """The numbers of records that timers write in each turn, without turns that write none."""
    writes = []
    fire_timers = world.shard.fire_timers

    def counted(moment):
        outcome = fire_timers(moment)
        writes.extend([len(outcome.writes)] if outcome.writes else [])
        return outcome

    monkeypatch.setattr(world.shard, "fire_timers", counted)
    return writes


def test_unused_ids_are_looked_for_over_many_turns(monkeypatch):
    monkeypatch.setattr(transaction_coordinator, "ENTRIES_PER_TURN", 2)
    hour_ms = 60 * 60 * 1000
    world = TransactionWorld({"transactional.id.expiration.ms": str(hour_ms)}).elect()
    for number in range(7):
        world.new_producer(f"id-{number}")
    writes = writes_by_turn(world, monkeypatch)
    world.advance(2 * hour_ms + 1)
    assert writes == [2, 2, 2, 1]
    assert not world.shard.entries


def test_hanging_transactions_are_looked_for_over_many_turns(world, monkeypatch):
    monkeypatch.setattr(transaction_coordinator, "ENTRIES_PER_TURN", 2)
    producers = [world.new_producer(f"id-{number}") for number in range(5)]
    for producer in producers:
        assert world.add(producer, T0).response == NONE
    writes = writes_by_turn(world, monkeypatch)
    world.advance(TIMEOUT_MS + ABORT_INTERVAL_MS)
    assert writes == [2, 2, 1]
    assert len(world.markers()) == 5


# Markers


def test_markers_are_retried_until_the_leader_accepts_them(world):
    world.brokers[0].failures[T0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]
    producer = world.begin(T0, T2)
    world.end(producer, commit=True)
    assert world.current().state is TransactionState.PREPARE_COMMIT
    world.advance(1_000)
    assert sorted(world.markers()) == [(0, "commit", T0), (0, "commit", T2)]
    assert world.current().state is TransactionState.COMPLETE_COMMIT


def test_markers_follow_their_partition_to_another_leader(world):
    world.brokers[0].is_down = True
    producer = world.begin(T0)
    world.end(producer, commit=True)
    world.learn({T0: 1})
    world.advance(1_000)
    assert [where for _, _, _, where in world.brokers[1].written] == [T0]
    assert world.brokers[0].closed == 1
    assert world.current().state is TransactionState.COMPLETE_COMMIT


def test_markers_wait_for_a_leader(world):
    producer = world.begin(T0)
    world.learn({T0: -1})
    world.end(producer, commit=True)
    world.advance(1_000)
    assert world.markers() == []
    world.learn({T0: 0})
    world.advance(1_000)
    assert world.markers() == [(0, "commit", T0)]


def test_a_partition_that_was_deleted_needs_no_marker(world):
    producer = world.begin(T0, T1)
    world.learn({T1: -2})
    assert world.end(producer, commit=True).response == NONE
    assert world.markers() == [(0, "commit", T0)]
    assert world.current().state is TransactionState.COMPLETE_COMMIT


def test_a_partition_missing_from_the_metadata_gets_its_marker(world):
    # A broker may coordinate after its start before it has received all partitions.
    world.create_topic(T0.topic)
    producer = world.begin(T0)
    world.learn({T0: -2})
    world.end(producer, commit=False)
    world.advance(1_000)
    assert world.current().state is TransactionState.PREPARE_ABORT
    world.learn({T0: 0})
    world.advance(1_000)
    assert world.markers() == [(0, "abort", T0)]
    assert world.current().state is TransactionState.COMPLETE_ABORT


def test_a_partition_without_transactions_needs_no_marker(world):
    world.brokers[0].failures[T0] = [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
    producer = world.begin(T0)
    world.end(producer, commit=True)
    assert world.current().state is TransactionState.COMPLETE_COMMIT


def test_markers_of_a_newer_coordinator_remain(world):
    world.brokers[0].failures[T0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    producer = world.begin(T0)
    world.end(producer, commit=True)
    world.advance(10_000)
    assert len(world.brokers[0].requests) == 1
    assert world.current().state is TransactionState.PREPARE_COMMIT


def test_ends_that_are_decided_meanwhile_go_in_one_request(world):
    world.brokers[0].is_holding = True
    producers = [world.begin(T0, name=name) for name in ("a", "b", "c")]
    for producer in producers:
        world.end(producer, commit=True)
    world.brokers[0].release()
    world.scheduler.settle()
    assert [len(request.markers) for request in world.brokers[0].requests] == [1, 2]


# The log


def test_a_write_that_the_log_rejects_has_no_effect(world):
    producer = world.begin(T0)
    world.log.failures = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.end(producer, commit=True).response == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.current().state is TransactionState.ONGOING
    assert world.markers() == []
    assert world.end(producer, commit=True).response == NONE


def test_a_completion_that_the_log_rejects_is_written_again(world):
    producer = world.begin(T0)
    world.brokers[0].is_holding = True
    world.end(producer, commit=True)
    world.log.failures = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
    world.brokers[0].release()
    world.advance(1_000)
    assert world.current().state is TransactionState.COMPLETE_COMMIT


def test_an_id_that_could_not_be_written_is_available_again(world):
    world.log.failures = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.init().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.new_producer().producer_epoch == 0


def test_the_next_coordinator_restores_the_state_from_the_log(world):
    open_one = world.begin(T0, T2, name="open")
    world.new_producer("idle")
    gone = world.begin(T1, name="done")
    world.end(gone, commit=True)
    before = {name: entry.current for name, entry in world.shard.entries.items()}
    world.resign(1)
    assert world.end(open_one, commit=True).response == ErrorCode.NOT_COORDINATOR
    world.elect(2)
    assert {name: entry.current for name, entry in world.shard.entries.items()} == before
    assert world.end(open_one, commit=True).response == NONE
    assert len(world.markers()) == 3


def test_the_next_coordinator_completes_decided_transactions(world):
    world.brokers[0].is_down = True
    producer = world.begin(T0, T2)
    world.end(producer, commit=True)
    world.resign(1)
    world.brokers[0].is_down = False
    world.elect(7)
    assert world.current().state is TransactionState.COMPLETE_COMMIT
    last = world.brokers[0].requests[-1].markers[0]
    assert (last.coordinator_epoch, last.transaction_result) == (7, True)


def test_a_request_that_waits_for_a_record_fails_when_the_partition_moves(world):
    producer = world.begin(T0)
    world.log.is_holding = True
    answer = world.end(producer, commit=True)
    assert not answer.is_there
    world.resign(1)
    assert answer.response == ErrorCode.NOT_COORDINATOR


# Moves


def test_only_legal_moves_are_made():
    start = new_transaction("x", 1, 1000, 0)
    ongoing = start.with_partitions([T0], 1)
    prepared = ongoing.prepared(2, is_commit=True)
    for transaction, move in (
        (start, lambda it: it.prepared(3, is_commit=True)),
        (start, lambda it: it.fenced(3)),
        (ongoing, lambda it: it.completed(3)),
        (ongoing, lambda it: it.with_epoch(1, 0, 1000, 3)),
        (prepared, lambda it: it.with_partitions([T1], 3)),
        (prepared, lambda it: it.prepared(3, is_commit=False)),
    ):
        with pytest.raises(RuntimeError, match="cannot move from"):
            move(transaction)


def test_every_state_has_its_moves():
    assert set(LEGAL_MOVES) == set(TransactionState)
    assert TransactionState.PREPARE_EPOCH_FENCE.title == "PrepareEpochFence"
