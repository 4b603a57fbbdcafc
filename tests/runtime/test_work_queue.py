"""WorkQueue: long work of many requests, one step of all of it in a turn of the loop."""

import pytest

from kctl.runtime import work_queue
from kctl.runtime.work_queue import WorkQueue
from kctl.work import EXCLUSIVE
from tests.support.builds import needs_sources
from tests.support.virtual_runtime import virtual_runtime


def work(log, name, steps):
    for number in range(steps):
        if number:
            yield
        log.append(f"{name}{number}")
    return f"{name}!"


@pytest.fixture
def scheduler():
    return virtual_runtime().scheduler


def test_short_work_is_done_at_once(scheduler):
    log = []
    WorkQueue(scheduler).start(work(log, "a", 1), log.append, log.append)
    assert log == ["a0", "a!"]


def test_an_error_of_what_takes_the_result_is_raised_without_the_result(scheduler):
    with pytest.raises(ValueError, match="list") as caught:
        WorkQueue(scheduler).start(work([], "a", 1), [].index, print)
    assert caught.value.__context__ is None


def test_one_step_of_all_work_is_done_in_a_turn(scheduler):
    log = []
    queue = WorkQueue(scheduler)
    for name in "abc":
        queue.start(work(log, name, 3), log.append, log.append)
    assert log == ["a0", "b0", "c0"]
    for expected in (["a1"], ["b1"], ["c1"], ["a2", "a!"], ["b2", "b!"], ["c2", "c!"]):
        before = len(log)
        scheduler.turn()
        assert log[before:] == expected


def test_a_turn_that_is_spent_starts_no_work(scheduler):
    log = []
    scheduler.turn_is_spent = True
    WorkQueue(scheduler).start(work(log, "a", 1), log.append, log.append)
    assert log == []
    scheduler.turn_is_spent = False
    scheduler.turn()
    assert log == ["a0", "a!"]


def test_work_continues_in_every_other_turn_that_is_spent(scheduler):
    log = []
    queue = WorkQueue(scheduler)
    for name in "ab":
        queue.start(work(log, name, 2), log.append, log.append)
    scheduler.turn_is_spent = True
    for expected in ([], ["a1", "a!"], [], ["b1", "b!"]):
        before = len(log)
        scheduler.turn()
        assert log[before:] == expected


def test_an_error_ends_only_the_work_that_raised_it(scheduler):
    def failing():
        yield
        raise ValueError

    log, errors = [], []
    queue = WorkQueue(scheduler)
    queue.start(failing(), log.append, errors.append)
    queue.start(work(log, "a", 3), log.append, errors.append)
    scheduler.settle()
    assert log[-1] == "a!"
    assert [type(error) for error in errors] == [ValueError]


@needs_sources
def test_concurrent_work_is_limited(scheduler, monkeypatch):
    monkeypatch.setattr(work_queue, "ACTIVE_MAX", 2)
    log = []
    queue = WorkQueue(scheduler)
    for name in "abcd":
        queue.start(work(log, name, 2), log.append, log.append)
    assert log == ["a0", "b0"]
    scheduler.settle()
    assert log == ["a0", "b0", "a1", "a!", "b1", "b!", "c0", "d0", "c1", "c!", "d1", "d!"]


def large_work(log, name, steps):
    log.append(f"{name} asks")
    yield EXCLUSIVE
    for number in range(steps):
        log.append(f"{name}{number}")
        yield
    return f"{name}!"


def test_one_piece_of_work_at_a_time_holds_much(scheduler):
    log = []
    queue = WorkQueue(scheduler)
    for name in "abc":
        queue.start(large_work(log, name, 2), log.append, log.append)
    queue.start(work(log, "small", 2), log.append, log.append)
    assert log == ["a asks", "b asks", "c asks", "small0"]
    scheduler.settle()
    large = [entry for entry in log[4:] if not entry.startswith("small")]
    assert large == ["a0", "a1", "a!", "b0", "b1", "b!", "c0", "c1", "c!"]
    assert log.index("small!") < log.index("a!")


def test_work_that_fails_lets_the_next_hold_much(scheduler):
    def failing():
        yield EXCLUSIVE
        raise ValueError

    log, errors = [], []
    queue = WorkQueue(scheduler)
    queue.start(failing(), log.append, errors.append)
    queue.start(large_work(log, "a", 1), log.append, log.append)
    scheduler.settle()
    assert len(errors) == 1
    assert log == ["a asks", "a0", "a!"]


def test_work_that_is_no_longer_wanted_ends_and_makes_room(scheduler):
    log, wanted = [], ["a"]
    queue = WorkQueue(scheduler)
    abandoned = large_work(log, "a", 5)
    queue.start(abandoned, log.append, log.append, lambda: "a" in wanted)
    queue.start(large_work(log, "b", 1), log.append, log.append)
    wanted.clear()
    scheduler.settle()
    assert log == ["a asks", "b asks", "b0", "b!"]
    assert next(abandoned, "closed") == "closed"
