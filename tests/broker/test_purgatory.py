"""Purgatory: an operation is completed once, by its key or by its deadline."""

import pytest

from kctl.broker.purgatory import HEAP_SLACK, UNITS_PER_TURN, DelayedOperation, Purgatory
from kctl.broker.replication.purgatory_timer import PurgatoryTimer
from kctl.runtime.real import make_runtime


class Waits(DelayedOperation):
    """Completes once `ready` is set; records that it did."""

    __slots__ = ("log", "name", "ready")

    def __init__(self, name, deadline_ms, log):
        super().__init__(deadline_ms)
        self.name, self.log, self.ready = name, log, False

    def try_complete(self):
        return self.ready

    def on_complete(self):
        self.log.append(self.name)


@pytest.fixture
def log():
    return []


def test_an_operation_that_is_ready_never_waits(log):
    purgatory = Purgatory()
    operation = Waits("a", 10, log)
    operation.ready = True
    assert purgatory.try_complete_else_watch(operation, ["k"])
    assert log == ["a"]
    assert len(purgatory) == 0
    assert purgatory.next_deadline_ms() is None


def test_a_key_completes_only_what_is_ready_in_the_order_of_arrival(log):
    purgatory = Purgatory()
    operations = [Waits(name, 10, log) for name in "abc"]
    for operation in operations:
        assert not purgatory.try_complete_else_watch(operation, ["k"])
    operations[2].ready = operations[0].ready = True
    assert purgatory.check("other") == 0
    assert purgatory.check("k") == 2
    assert log == ["a", "c"]
    assert len(purgatory) == 1


def test_an_operation_under_many_keys_completes_once(log):
    purgatory = Purgatory()
    operation = Waits("a", 10, log)
    purgatory.try_complete_else_watch(operation, ["k1", "k2"])
    operation.ready = True
    assert purgatory.check("k1") == 1
    assert purgatory.check("k2") == 0
    assert purgatory.expire(100) == 0
    assert log == ["a"]


def test_an_operation_under_one_key_twice_completes_once(log):
    purgatory = Purgatory()
    operation = Waits("a", 10, log)
    purgatory.watch(operation, ["k", "other", "k"])
    operation.ready = True
    assert purgatory.check("k") == 1
    assert log == ["a"]
    assert not purgatory.watched


def test_deadlines_expire_in_order_and_only_when_due(log):
    purgatory = Purgatory()
    for name, deadline_ms in (("late", 30), ("first", 10), ("second", 10)):
        purgatory.try_complete_else_watch(Waits(name, deadline_ms, log), ["k"])
    assert purgatory.next_deadline_ms() == 10
    assert purgatory.expire(9) == 0
    assert purgatory.expire(10) == 2
    assert log == ["first", "second"]
    assert purgatory.next_deadline_ms() == 30


def test_a_cancelled_operation_is_never_completed(log):
    purgatory = Purgatory()
    operation = Waits("a", 10, log)
    purgatory.try_complete_else_watch(operation, ["k"])
    purgatory.cancel(operation)
    operation.ready = True
    assert purgatory.check("k") == 0
    assert purgatory.expire(100) == 0
    assert log == []


def test_completed_operations_do_not_pile_up_in_the_heap(log):
    purgatory = Purgatory()
    keeper = Waits("keeper", 10**9, log)
    purgatory.try_complete_else_watch(keeper, ["keep"])
    for number in range(HEAP_SLACK * 3):
        operation = Waits(number, 10**8, log)
        purgatory.try_complete_else_watch(operation, ["k"])
        operation.ready = True
        purgatory.check("k")
        purgatory.next_turn(now_ms=0)
    assert purgatory.next_deadline_ms() == 10**9
    assert len(purgatory._heap) == 1


def test_an_operation_may_watch_another_while_it_completes(log):
    purgatory = Purgatory()

    class Again(Waits):
        __slots__ = ()

        def on_complete(self):
            super().on_complete()
            purgatory.try_complete_else_watch(Waits("next", 50, log), ["k"])

    operation = Again("a", 10, log)
    purgatory.try_complete_else_watch(operation, ["k"])
    operation.ready = True
    assert purgatory.check("k") == 1
    assert len(purgatory) == 1
    assert purgatory.next_deadline_ms() == 50


MANY = 2 * UNITS_PER_TURN


def test_a_key_that_many_wait_for_completes_them_over_many_turns_in_order(log):
    purgatory = Purgatory()
    for number in range(MANY):
        operation = Waits(number, 10, log)
        purgatory.watch(operation, ["k"])
        operation.ready = True
    turns = 1
    purgatory.check("k")
    while len(purgatory):
        before = len(log)
        assert before <= turns * UNITS_PER_TURN // 3
        purgatory.next_turn(now_ms=0)
        turns += 1
        assert len(log) > before
    assert log == list(range(MANY))
    assert not purgatory.watched


def test_wide_operations_count_their_keys(log):
    purgatory = Purgatory()
    for number in range(10):
        operation = Waits(number, 10, log)
        purgatory.watch(operation, range(UNITS_PER_TURN))
        operation.ready = True
    purgatory.check(0)
    assert log == [0]
    purgatory.next_turn(now_ms=0)
    assert log == [0, 1]


def test_a_key_that_changes_again_during_its_walk_is_walked_again(log):
    purgatory = Purgatory()
    operations = [Waits(number, 10, log) for number in range(MANY)]
    for operation in operations:
        purgatory.watch(operation, ["k"])
    assert purgatory.check("k") == 0
    operations[0].ready = True
    assert purgatory.check("k") == 0
    assert purgatory.check("k") == 0
    for _ in range(5):
        purgatory.next_turn(now_ms=0)
    assert log == [0]
    assert not purgatory._walks


def test_a_key_that_a_completion_changes_again_is_walked_again(log):
    purgatory = Purgatory()
    operations = [Waits(number, 10, log) for number in range(MANY)]

    class Changes(Waits):
        __slots__ = ()

        def on_complete(self):
            super().on_complete()
            operations[0].ready = True
            purgatory._units_left = 0
            purgatory.check("k")

    for operation in (operations[0], changing := Changes("changes", 10, log), *operations[1:]):
        purgatory.watch(operation, ["k"])
    changing.ready = True
    purgatory.check("k")
    for _ in range(5):
        purgatory.next_turn(now_ms=0)
    assert log == ["changes", 0]


def test_a_change_behind_a_long_walk_is_not_missed(log):
    purgatory = Purgatory()
    for number in range(MANY):
        purgatory.watch(Waits(number, 10, log), ["crowded"])
    alone = Waits("alone", 10, log)
    purgatory.watch(alone, ["quiet"])
    purgatory.check("crowded")
    alone.ready = True
    purgatory.check("quiet")
    for _ in range(3):
        purgatory.next_turn(now_ms=0)
    assert log == ["alone"]


def test_deadlines_of_many_expire_over_many_turns(log):
    purgatory = Purgatory()
    for number in range(MANY):
        purgatory.watch(Waits(number, 10, log), ["k"])
    assert 0 < purgatory.expire(10) <= UNITS_PER_TURN // 3 + 1
    for _ in range(MANY):
        purgatory.next_turn(now_ms=10)
    assert log == list(range(MANY))


def test_deadlines_of_many_cause_no_search_for_cycles(log):
    """A timer of 0 ms is a part of long work for HeapFreezer; these turns are short."""
    runtime = make_runtime()
    parts = []
    runtime.scheduler.on_part = lambda: parts.append(1)
    purgatory = PurgatoryTimer(runtime)
    done = runtime.scheduler.future()
    now_ms = runtime.clock.monotonic_ms()
    for number in range(MANY):
        purgatory.watch(Waits(number, now_ms, log), ["k"])

    def look():
        if len(purgatory):
            runtime.scheduler.call_later(1, look)
        else:
            done.set_result(None)

    runtime.scheduler.call_later(1, look)
    runtime.scheduler.run_until(done)
    runtime.scheduler.close()
    assert log == list(range(MANY))
    assert not parts


def test_an_operation_watched_under_more_keys_completes_by_each_of_them(log):
    purgatory = Purgatory()
    operation = Waits("a", 10, log)
    purgatory.watch(operation, [])
    assert not purgatory.watch_more(operation, ["k1", "k2", "k1"])
    assert operation.keys == ("k1", "k2")
    operation.ready = True
    assert purgatory.watch_more(operation, ["k3"])
    assert log == ["a"]
    assert not purgatory.watched
