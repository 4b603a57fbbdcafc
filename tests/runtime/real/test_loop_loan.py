"""Callers that make one call after the other run the loop of a LoopThread themselves."""

import os
import signal
import threading

import pytest

from kctl.errors import UsageError
from kctl.runtime.future import sleep
from kctl.runtime.real.loop_thread import LoopThread
from kctl.runtime.real.poller import READABLE
from kctl.runtime.trace import NullTrace

END_S = 60
# A machine that is busy elsewhere may make each call look like a single one.
ATTEMPTS_MAX = 100_000


@pytest.fixture
def loop():
    made = LoopThread("test", NullTrace())
    yield made
    made.close(END_S)


def borrow(loop, function=lambda: None):
    """Return the result of a call that the calling thread makes itself."""
    me, result = threading.get_ident(), []

    async def call():
        if threading.get_ident() == me:
            found = function()
            result.append(await found if hasattr(found, "__await__") else found)

    for _ in range(ATTEMPTS_MAX):
        loop.run(call)
        if result:
            return result[0]
    raise AssertionError("the loop is never lent")


def test_the_second_call_in_a_row_lends_the_loop_to_its_caller(loop):
    assert loop.run(threading.get_ident) != threading.get_ident()
    assert borrow(loop, threading.get_ident) == threading.get_ident()
    assert borrow(loop, lambda: sleep(loop.runtime.scheduler, 1)) is None


def test_a_loop_that_is_not_called_runs_by_itself(loop):
    fired = threading.Event()
    borrow(loop, lambda: loop.runtime.scheduler.call_later(1, fired.set) and None)
    assert fired.wait(END_S)


def test_what_came_while_the_loop_was_paused_is_served_before_the_call(loop):
    """A message must not be sent on a connection whose end has arrived."""
    reader, writer = os.pipe()
    order = []

    def served(_mask):
        order.append(os.read(reader, 1))

    borrow(loop, lambda: loop.runtime.scheduler.watch(reader, READABLE, served))
    for _ in range(50):
        order.clear()
        os.write(writer, b"x")
        loop.run(order.append, "call")
        assert order == [b"x", "call"]
    loop.run(loop.runtime.scheduler.unwatch, reader)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("way", ["post", "submit", "call"])
def test_work_of_others_resumes_a_paused_loop(loop, way):
    borrow(loop)
    done = threading.Event()
    if way == "post":
        loop.post(done.set)
    elif way == "submit":
        loop.submit(done.set).result(END_S)
    else:
        loop.call(done.set, timeout_s=END_S)
    assert done.wait(END_S)


def test_two_threads_never_run_the_loop_at_once(loop):
    inside, most, results = set(), [0], []

    async def work():
        inside.add(me := object())
        most[0] = max(most[0], len(inside))
        inside.discard(me)
        await sleep(loop.runtime.scheduler, 0)
        return "done"

    def call():
        results.extend(loop.run(work) for _ in range(100))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for it in callers:
        it.start()
    for it in callers:
        it.join()
    assert (most[0], results) == (1, ["done"] * 300)


def test_a_call_in_progress_does_not_keep_another_from_its_result(loop):
    gate = loop.runtime.scheduler.future()
    waits = threading.Event()

    async def wait():
        waits.set()
        await gate

    def open_gate():
        assert waits.wait(END_S)
        loop.submit(gate.set_result, None).result(END_S)

    other = threading.Thread(target=open_gate)
    other.start()
    borrow(loop, wait)
    other.join()


@pytest.fixture
def ctrl_c_raises():
    """The handler that Python installs where SIGINT is not ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_cancels_the_call_and_leaves_the_loop_whole(loop):
    seen = []

    async def wait():
        os.kill(os.getpid(), signal.SIGINT)
        # A handler that raised at once would end the coroutine here.
        seen.append("after the signal")
        try:
            await loop.runtime.scheduler.future()
        finally:
            seen.append("cancelled")

    with pytest.raises(KeyboardInterrupt):
        borrow(loop, wait)
    assert seen == ["after the signal", "cancelled"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert loop.run(threading.active_count)


def test_where_another_signal_handler_may_raise_the_loop_is_not_lent(loop):
    borrow(loop)
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert loop.run(threading.get_ident) != threading.get_ident()
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_call_from_within_a_borrowed_loop_is_an_error(loop):
    with pytest.raises(UsageError, match="own thread"):
        borrow(loop, lambda: loop.run(threading.get_ident))


def test_closing_ends_a_call_of_the_borrower(loop):
    waits = threading.Event()

    async def wait():
        waits.set()
        await loop.runtime.scheduler.future()

    def close():
        assert waits.wait(END_S)
        loop.close(END_S)

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(UsageError, match="the loop is closed"):
        borrow(loop, wait)
    closer.join()


def test_the_errors_of_a_borrowed_call_are_raised(loop):
    borrow(loop)
    with pytest.raises(ZeroDivisionError):
        borrow(loop, lambda: 1 // 0)
    assert loop.run(threading.active_count)


def borrowed_future(loop, make):
    """Return the result of `make()`, a Future that the calling thread waits for on the loop."""
    me, borrowed = threading.get_ident(), []

    def call():
        if threading.get_ident() != me:
            return None
        borrowed.append(True)
        return make()

    for _ in range(ATTEMPTS_MAX):
        result = loop.run(call)
        if borrowed:
            return result
    raise AssertionError("the loop is never lent")


def test_a_call_may_return_a_future_which_needs_no_task(loop):
    scheduler = loop.runtime.scheduler

    def soon():
        future = scheduler.future()
        scheduler.call_later(1, future.set_result, "tea")
        return future

    def done():
        future = scheduler.future()
        future.set_result("tea")
        return future

    def failed():
        future = scheduler.future()
        scheduler.call_soon(future.set_error, KeyError("tea"))
        return future

    assert borrowed_future(loop, soon) == borrowed_future(loop, done) == "tea"
    with pytest.raises(KeyError):
        borrowed_future(loop, failed)
    assert loop.run(soon) == "tea"


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_ends_the_wait_for_a_future_and_nothing_else(loop):
    scheduler = loop.runtime.scheduler
    future = scheduler.future()

    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        return future

    with pytest.raises(KeyboardInterrupt):
        borrowed_future(loop, interrupted)
    # An interrupt that comes too late to stop one call does not stop the next one.
    assert not future.done
    loop.run(future.set_result, None)
    loop._stop_waiting(future)
    assert borrow(loop, lambda: sleep(scheduler, 1)) is None
