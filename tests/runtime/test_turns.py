"""Work in parts: whole, in order, with turns of the loop for others."""

import pytest

from kctl.runtime.turns import done_in_turns, fail_loudly, in_turns
from kctl.work import at_once, nested_parts
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
    in_turns(scheduler, work(log, 3), log.append, fail_loudly)
    assert log == [0]
    scheduler.call_soon(log.append, "other")
    scheduler.settle()
    assert log == [0, 1, "other", 2, "result"]


def test_work_of_one_part_is_done_at_once():
    log = []
    in_turns(virtual_runtime().scheduler, work(log, 1), log.append, fail_loudly)
    assert log == [0, "result"]


def failing(parts):
    yield from work([], parts)
    raise LookupError


def test_an_error_of_the_first_part_is_raised_to_the_caller():
    errors = []
    with pytest.raises(LookupError):
        in_turns(virtual_runtime().scheduler, failing(1), print, errors.append)
    assert errors == []


def test_an_error_of_a_later_part_is_reported():
    scheduler = virtual_runtime().scheduler
    errors = []
    in_turns(scheduler, failing(2), print, errors.append)
    scheduler.settle()
    assert [type(error) for error in errors] == [LookupError]


def test_an_error_of_a_late_result_is_reported_without_the_result():
    scheduler = virtual_runtime().scheduler
    errors = []
    in_turns(scheduler, work([], 2), [].index, errors.append)
    scheduler.settle()
    assert [type(error) for error in errors] == [ValueError]
    # A traceback would show it.
    assert errors[0].__context__ is None


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


def test_parts_of_groups_pause_before_a_turn_is_too_large():
    assert list(nested_parts([("a", [1, 2]), ("b", [3, 4, 5])], 4)) == [
        ("a", [1, 2]), None, ("b", [3, 4, 5]),
    ]  # fmt: skip
    assert list(nested_parts([("a", [1, 2, 3, 4, 5])], 2)) == [
        None, ("a", [1, 2]), None, ("a", [3, 4]), None, ("a", [5]),
    ]  # fmt: skip


def test_groups_without_items_take_turns():
    assert list(nested_parts([("a", [])] * 7, 3)) == [None, None]
