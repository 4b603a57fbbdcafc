"""Future and Task, on a queue of callbacks that the test empties by hand."""

from collections import deque

import pytest

from kctl.runtime.future import CancelledError, Future, Task, gather, sleep, wait_at_most


class Queue:
    def __init__(self):
        self.callbacks = deque()

    def call_soon(self, callback, *args):
        self.callbacks.append((callback, args))

    def run(self):
        while self.callbacks:
            callback, args = self.callbacks.popleft()
            callback(*args)


@pytest.fixture
def queue():
    return Queue()


async def result_of(future):
    return await future


def test_a_future_is_set_once(queue):
    future = Future(queue.call_soon)
    future.set_result(1)
    with pytest.raises(RuntimeError):
        future.set_result(2)
    with pytest.raises(RuntimeError):
        future.set_error(ValueError())
    assert future.result() == 1


def test_result_of_an_unfinished_future_is_an_error(queue):
    with pytest.raises(RuntimeError):
        Future(queue.call_soon).result()


def test_callbacks_run_later_and_in_the_order_added(queue):
    future, seen = Future(queue.call_soon), []
    future.add_done_callback(lambda _: seen.append("first"))
    future.add_done_callback(lambda _: seen.append("second"))
    future.set_result(None)
    future.add_done_callback(lambda _: seen.append("late"))
    assert seen == []
    queue.run()
    assert seen == ["first", "second", "late"]


def test_awaiting_what_is_done_needs_no_turn_of_the_loop(queue):
    future = Future(queue.call_soon)
    future.set_result(7)
    task = Task(queue.call_soon, result_of(future))
    assert task.done
    assert task.result() == 7


def test_a_task_continues_when_its_future_is_done(queue):
    future = Future(queue.call_soon)
    task = Task(queue.call_soon, result_of(future))
    assert not task.done
    future.set_result("there")
    assert not task.done
    queue.run()
    assert task.result() == "there"


def test_an_error_is_raised_at_the_await(queue):
    future = Future(queue.call_soon)

    async def careful():
        try:
            await future
        except ValueError as error:
            return f"caught {error}"

    task = Task(queue.call_soon, careful())
    future.set_error(ValueError("it"))
    queue.run()
    assert task.result() == "caught it"


def test_a_cancelled_task_can_clean_up_and_does_not_get_the_result_it_awaited(queue):
    future, seen = Future(queue.call_soon), []

    async def work():
        try:
            await future
        finally:
            seen.append("cleaned up")

    task = Task(queue.call_soon, work())
    task.cancel()
    queue.run()
    future.set_result(1)
    queue.run()
    assert seen == ["cleaned up"]
    with pytest.raises(CancelledError):
        task.result()


def test_a_task_that_cancels_itself_stops_at_its_next_await(queue):
    future, tasks = Future(queue.call_soon), []

    async def work():
        await started
        tasks[0].cancel()
        await future

    started = Future(queue.call_soon)
    tasks.append(Task(queue.call_soon, work()))
    started.set_result(None)
    queue.run()
    assert isinstance(tasks[0].error(), CancelledError)


def test_an_error_that_is_never_retrieved_is_reported(queue):
    failures = []

    async def fail():
        raise ValueError("lost")

    Task(
        queue.call_soon,
        fail(),
        "work",
        lambda task, error: failures.append((task.name, str(error))),
    )
    queue.run()
    assert failures == [("work", "lost")]


def test_an_awaited_error_is_not_reported(queue):
    failures = []

    async def fail():
        raise ValueError("seen")

    failing = Task(queue.call_soon, fail(), "work", lambda *seen: failures.append(seen))
    waiting = Task(queue.call_soon, result_of(failing))
    queue.run()
    assert isinstance(waiting.error(), ValueError)
    assert failures == []


def test_gather_keeps_the_order_and_waits_for_all_before_it_raises(loop):
    finished = []

    async def after(turns, value):
        for _ in range(turns):
            await sleep(loop.scheduler, 0)
        finished.append(value)
        if value == "bad":
            raise ValueError(value)
        return value

    async def good():
        return await gather(loop.scheduler, [after(4, "slow"), after(1, "fast")])

    async def bad():
        return await gather(loop.scheduler, [after(1, "bad"), after(4, "other")])

    assert loop.run(good()) == ["slow", "fast"]
    with pytest.raises(ValueError, match="bad"):
        loop.run(bad())
    assert finished == ["fast", "slow", "bad", "other"]


def test_wait_at_most_gives_up_on_what_never_comes(loop):
    async def wait(future, timeout_ms):
        return await wait_at_most(loop.scheduler, future, timeout_ms, TimeoutError("late"))

    never, soon = loop.scheduler.future(), loop.scheduler.future()
    loop.scheduler.call_later(1, soon.set_result, "in time")
    assert loop.run(wait(soon, 10_000)) == "in time"
    with pytest.raises(TimeoutError):
        loop.run(wait(never, 1))
