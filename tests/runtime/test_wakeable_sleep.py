"""A sleep ends when it is due or when its task is woken, and leaves nothing behind."""

import pytest

from kctl.runtime.wakeable_sleep import WakeableSleep
from tests.support.virtual_runtime import virtual_runtime


@pytest.fixture
def scheduler():
    return virtual_runtime().scheduler


@pytest.fixture
def sleep(scheduler):
    return WakeableSleep(scheduler)


@pytest.mark.parametrize("due_ms", [None, 5_000])
def test_a_wake_ends_the_sleep_and_its_timer(scheduler, sleep, due_ms):
    task = scheduler.spawn(sleep.until(due_ms))
    scheduler.settle()
    assert not task.done
    sleep.wake()
    sleep.wake()
    scheduler.settle()
    assert task.done
    assert scheduler.timer_count == 0


def test_a_sleep_ends_when_it_is_due(scheduler, sleep):
    task = scheduler.spawn(sleep.until(5_000))
    scheduler.advance(4_999)
    assert not task.done
    scheduler.advance(1)
    assert task.done


def test_a_sleep_until_the_past_gives_up_a_turn(scheduler, sleep):
    task = scheduler.spawn(sleep.until(0))
    assert not task.done
    scheduler.turn()
    assert task.done


def test_a_wake_of_a_task_that_does_not_sleep_has_no_effect(scheduler, sleep):
    sleep.wake()
    task = scheduler.spawn(sleep.until(None))
    scheduler.settle()
    assert not task.done
