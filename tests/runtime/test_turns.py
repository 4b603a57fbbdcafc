"""Work in parts: whole, in order, with turns of the loop for others."""

from kctl.runtime.turns import at_once, done_in_turns, in_turns
from tests.support.virtual_runtime import virtual_runtime


def work(log, parts):
    for number in range(parts):
        if number:
            yield
        log.append(number)
    return "result"


def test_others_have_their_turn_between_parts():
    scheduler = virtual_runtime().scheduler
    log = []
    in_turns(scheduler, work(log, 3), log.append)
    assert log == [0]
    scheduler.call_soon(log.append, "other")
    scheduler.settle()
    assert log == [0, 1, "other", 2, "result"]


def test_work_of_one_part_is_done_at_once():
    log = []
    in_turns(virtual_runtime().scheduler, work(log, 1), log.append)
    assert log == [0, "result"]


def test_a_coroutine_waits_for_the_result():
    scheduler = virtual_runtime().scheduler
    log = []
    task = scheduler.spawn(done_in_turns(scheduler, work(log, 3)))
    assert log == [0]
    scheduler.settle()
    assert log == [0, 1, 2]
    assert task.result() == "result"


def test_at_once_leaves_no_turn_to_others():
    log = []
    assert at_once(work(log, 3)) == "result"
    assert log == [0, 1, 2]
