"""RealScheduler: order, fairness, threads, signals, and that one failure is one failure."""

import os
import signal
import threading

import pytest

from kctl.runtime.future import sleep
from kctl.runtime.real.loop import CALLBACKS_PER_TURN, CANCELLED_TIMERS_MAX


def test_callbacks_run_in_the_order_asked_for(loop):
    seen = []
    for number in range(5):
        loop.scheduler.call_soon(seen.append, number)
    loop.turns(1)
    assert seen == [0, 1, 2, 3, 4]


def test_timers_with_equal_deadlines_ring_in_the_order_set(loop):
    seen = []
    when_ms = loop.runtime.clock.monotonic_ms() + 2
    for number in range(50):
        loop.scheduler.call_at(when_ms, seen.append, number)
    loop.until(lambda: len(seen) == 50)
    assert seen == list(range(50))


def test_an_earlier_deadline_rings_first(loop):
    seen = []
    loop.scheduler.call_later(5, seen.append, "later")
    loop.scheduler.call_later(1, seen.append, "sooner")
    loop.until(lambda: len(seen) == 2)
    assert seen == ["sooner", "later"]


def test_a_timer_cancelled_by_one_that_rings_with_it_does_not_ring(loop):
    seen = []
    when_ms = loop.runtime.clock.monotonic_ms()
    timers = []

    def cancel_the_next():
        timers[0].cancel()

    loop.scheduler.call_at(when_ms, cancel_the_next)
    timers.append(loop.scheduler.call_at(when_ms, seen.append, "cancelled"))
    loop.scheduler.call_at(when_ms, seen.append, "rings")
    loop.until(lambda: seen)
    assert seen == ["rings"]


def test_cancelled_timers_do_not_pile_up(loop):
    for _ in range(20 * CANCELLED_TIMERS_MAX):
        loop.scheduler.call_later(1_000_000, print).cancel()
    assert len(loop.scheduler._timers) < 3 * CANCELLED_TIMERS_MAX


def test_a_callback_that_reschedules_itself_forever_starves_no_other(loop):
    done = loop.scheduler.future()

    def again():
        if not done.done:
            loop.scheduler.call_soon(again)

    for _ in range(2 * CALLBACKS_PER_TURN):
        loop.scheduler.call_soon(again)
    loop.scheduler.call_later(1, done.set_result, "timers too")
    assert loop.wait(done) == "timers too"


def test_a_failing_callback_is_logged_and_the_loop_continues(loop):
    seen = []
    loop.scheduler.call_soon(lambda: 1 // 0)
    loop.scheduler.call_soon(seen.append, "next")
    loop.turns(2)
    assert seen == ["next"]
    assert "ZeroDivisionError" in loop.trace.warnings[0]


def test_the_error_of_an_unawaited_task_is_logged(loop):
    async def fail():
        await sleep(loop.scheduler, 1)
        raise ValueError("unobserved")

    loop.scheduler.spawn(fail(), "house-keeping")
    loop.until(lambda: loop.trace.warnings)
    assert "house-keeping" in loop.trace.warnings[0]
    assert "unobserved" in loop.trace.warnings[0]


def test_background_jobs_run_off_the_loop_in_the_order_given(loop):
    seen = []

    def job(number):
        seen.append((number, threading.current_thread() is not threading.main_thread()))
        return number

    futures = [loop.scheduler.background(lambda n=n: job(n)) for n in range(10)]

    async def results():
        return [await future for future in futures]

    assert loop.run(results()) == list(range(10))
    assert seen == [(number, True) for number in range(10)]


def test_jobs_given_together_run_side_by_side_and_in_their_turn(loop):
    together = threading.Barrier(4, timeout=120)
    seen = []

    def job():
        together.wait()
        seen.append("together")

    loop.scheduler.background(lambda: seen.append("before"))
    # No job passes the barrier alone; jobs beyond the number of threads wait for their turn.
    done = loop.scheduler.background_all([job] * 4 + [lambda: seen.append("together")] * 50)
    loop.scheduler.background(lambda: seen.append("after"))
    loop.wait(loop.scheduler.background_all([]))
    assert done.done
    assert seen == ["before", *["together"] * 54, "after"]


def test_the_error_of_a_background_job_comes_through_its_future(loop):
    with pytest.raises(ZeroDivisionError):
        loop.wait(loop.scheduler.background(lambda: 1 // 0))


def test_another_thread_can_wake_the_loop(loop):
    future = loop.scheduler.future()
    loop.scheduler.call_later(1_000_000, print)
    thread = threading.Thread(
        target=lambda: loop.scheduler.call_soon_threadsafe(future.set_result, "awake")
    )
    thread.start()
    assert loop.wait(future) == "awake"
    thread.join()


def test_more_wake_ups_than_a_pipe_holds_are_no_problem(loop):
    seen = []
    for number in range(70_000):
        loop.scheduler.call_soon_threadsafe(seen.append, number)
    loop.until(lambda: len(seen) == 70_000)
    assert seen[-1] == 69_999


def test_a_signal_runs_its_callback_on_the_loop(loop):
    before = signal.getsignal(signal.SIGTERM)
    got = loop.scheduler.future()
    loop.scheduler.on_signal(signal.SIGTERM, lambda: got.set_result("stop"))
    loop.scheduler.call_soon(os.kill, os.getpid(), signal.SIGTERM)
    assert loop.wait(got) == "stop"
    loop.scheduler.close()
    assert signal.getsignal(signal.SIGTERM) == before


def test_stop_ends_run_forever(loop):
    loop.scheduler.call_later(1, loop.scheduler.stop)
    loop.scheduler.run_forever()


def test_a_loop_that_nothing_can_wake_says_so_instead_of_hanging(loop):
    with pytest.raises(RuntimeError, match="nothing can ever wake it"):
        loop.scheduler.run_until(loop.scheduler.future())


def test_the_loop_is_not_run_inside_itself(loop):
    async def inside():
        await sleep(loop.scheduler, 1)
        loop.scheduler.run_forever()

    with pytest.raises(RuntimeError, match="running already"):
        loop.run(inside())


def test_bulk_transfers_take_turns_with_everybody_else(loop):
    order = []
    done = loop.scheduler.future()

    def bulk(name, left):
        order.append(name)
        if left:
            loop.scheduler.queue_bulk(lambda: bulk(name, left - 1))
        elif name == "b":
            done.set_result(None)

    def small(left):
        order.append("small")
        if left:
            loop.scheduler.call_soon(small, left - 1)

    loop.scheduler.queue_bulk(lambda: bulk("a", 2))
    loop.scheduler.queue_bulk(lambda: bulk("b", 2))
    loop.scheduler.call_soon(small, 4)
    loop.wait(done)
    assert [name for name in order if name != "small"] == ["a", "b"] * 3
    assert order.index("small") == 1


def test_a_response_to_a_bulk_transfer_leaves_in_the_same_turn(loop):
    """No event follows: a send that waited for the next event would never complete."""
    sent = []
    loop.scheduler.queue_bulk(lambda: loop.scheduler.send_soon(lambda: sent.append("response")))
    loop.scheduler._turn()  # nothing but this: `loop.turns` would add callbacks, which send, too
    assert sent == ["response"]
