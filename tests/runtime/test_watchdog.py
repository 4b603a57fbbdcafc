"""The watchdog of the loop: long turns are counted and logged by name, short ones only counted."""

import inspect
import os

import pytest

from kctl.broker.network.server_connection import ServerConnection
from kctl.runtime.future import Task, sleep
from kctl.runtime.real.loop import PHASE_MS
from kctl.runtime.real.poller import READABLE
from kctl.runtime.real.transport import RealTransport
from kctl.runtime.watchdog import (
    LOGGED_MS,
    REPORT_INTERVAL_MS,
    STALL_MS,
    TURN_MS_MAX,
    LoopWatchdog,
    describe_work,
)
from tests.support.real_loop import RecordingTrace


class Stopwatch:
    """A fake of the loop's measuring clock: time passes only when a callback spends it."""

    def __init__(self, scheduler) -> None:
        self.seconds = 1.0
        scheduler._now = lambda: self.seconds

    def spend(self, milliseconds: float) -> None:
        self.seconds += milliseconds / 1000


@pytest.fixture
def stopwatch(loop):
    return Stopwatch(loop.scheduler)


def long_turn_lines(loop):
    return loop.trace.long_turns


def test_a_turn_over_the_limit_is_counted_and_names_its_callback(loop, stopwatch):
    def crunch():
        stopwatch.spend(LOGGED_MS + 10)

    loop.scheduler.call_soon(crunch)
    loop.turns(3)
    watchdog = loop.scheduler.watchdog
    assert watchdog.long_turns == 1
    assert watchdog.turns >= 3
    assert round(watchdog.longest_turn_seconds * 1000) == LOGGED_MS + 10
    assert round(watchdog.busy_seconds * 1000) == LOGGED_MS + 10
    (line,) = long_turn_lines(loop)
    assert "crunch 60 ms" in line


def test_short_turns_are_counted_and_not_logged(loop, stopwatch):
    for _ in range(10):
        loop.scheduler.call_later(0, stopwatch.spend, 1)
    loop.turns(3)
    assert loop.scheduler.watchdog.long_turns == 0
    assert long_turn_lines(loop) == []


def test_a_turn_that_is_long_by_little_is_counted_and_not_logged(loop, stopwatch):
    loop.scheduler.call_soon(stopwatch.spend, TURN_MS_MAX + 1)
    loop.turns(3)
    assert loop.scheduler.watchdog.long_turns == 1
    assert long_turn_lines(loop) == []


def test_a_task_and_a_timer_are_named(loop, stopwatch):
    async def rebuild_everything():
        await sleep(loop.scheduler, 0)
        stopwatch.spend(LOGGED_MS + 1)

    loop.run(rebuild_everything())
    assert "task" in long_turn_lines(loop)[0]
    assert "rebuild_everything" in long_turn_lines(loop)[0]


def test_a_timer_is_named_by_what_it_calls(loop, stopwatch):
    loop.scheduler.call_later(0, stopwatch.spend, LOGGED_MS + 1)
    loop.turns(3)
    assert "timer Stopwatch.spend" in long_turn_lines(loop)[0]


def test_a_stall_is_a_warning_and_a_shorter_turn_is_not():
    trace = Lines()
    watchdog = LoopWatchdog(FixedClock(), trace)

    for milliseconds in (LOGGED_MS + 1, STALL_MS + 1, STALL_MS + 2):
        watchdog.turn_was_long(milliseconds / 1000, [])

    assert [line.split(" ms ")[0] for line in trace.infos] == ["The event loop was busy for 51"]
    assert len(trace.warnings) == 2


class FixedClock:
    """Every moment is the same."""

    def monotonic_ms(self):
        return 0


class Lines:
    """Keeps log lines by their severity."""

    def __init__(self):
        self.infos, self.warnings = [], []

    def info(self, message):
        self.infos.append(message)

    def warning(self, message, detail=""):
        self.warnings.append(message)


def test_log_lines_are_limited_and_tell_how_many_turns_they_left_out():
    class Clock:
        now_ms = 0

        def monotonic_ms(self):
            return self.now_ms

    clock, trace = Clock(), RecordingTrace()
    watchdog = LoopWatchdog(clock, trace)
    for _ in range(4):
        watchdog.turn_was_long(0.06, [(0.06, "work")])
    assert len(trace.long_turns) == 1
    clock.now_ms += REPORT_INTERVAL_MS
    watchdog.turn_was_long(0.07, [(0.07, "work")])
    assert "3 more turns" in trace.long_turns[1]
    assert watchdog.long_turns == 5


def test_a_stall_is_reported_before_anything_else_runs(loop, stopwatch):
    seen = []
    loop.scheduler.watchdog.on_stall(lambda seconds: seen.append(round(seconds, 3)))
    loop.scheduler.call_soon(stopwatch.spend, STALL_MS + 1)
    loop.scheduler.call_soon(seen.append, "the next callback")
    loop.turns(3)
    assert seen == [(STALL_MS + 1) / 1000, "the next callback"]


def test_callbacks_that_are_left_over_run_in_the_next_turn_in_order(loop, stopwatch):
    seen = []

    def work(number):
        seen.append((loop.scheduler.watchdog.turns, number))
        stopwatch.spend(PHASE_MS / 2)

    for number in range(9):
        loop.scheduler.call_soon(work, number)
    loop.turns(6)
    assert [number for _, number in seen] == list(range(9))
    # Three in a turn, of which the last overruns.
    turns = [turn for turn, _ in seen]
    assert max(turns.count(turn) for turn in turns) == 3
    assert loop.scheduler.watchdog.long_turns == 0


def test_descriptors_that_are_left_over_are_served_before_new_ones(loop, stopwatch):
    """The first descriptors are ready again at once and must not keep the others waiting."""
    served = []
    pipes = [os.pipe() for _ in range(6)]

    def serve(fd):
        served.append(fd)
        stopwatch.spend(PHASE_MS + 1)

    for read_end, write_end in pipes:
        os.write(write_end, b"x")
        # Never emptied: always ready.
        loop.scheduler.watch(read_end, READABLE, lambda _mask, fd=read_end: serve(fd))
    loop.until(lambda: len(served) >= 12)
    for read_end, write_end in pipes:
        loop.scheduler.unwatch(read_end)
        os.close(read_end)
        os.close(write_end)
    assert sorted(served[:6]) == sorted(read_end for read_end, _ in pipes)
    assert sorted(served[6:12]) == sorted(read_end for read_end, _ in pipes)


def test_a_descriptor_that_is_forgotten_while_it_waits_is_not_served(loop, stopwatch):
    served = []
    pipes = [os.pipe() for _ in range(3)]

    def serve(fd):
        served.append(fd)
        stopwatch.spend(PHASE_MS + 1)
        for read_end, _ in pipes:
            loop.scheduler.unwatch(read_end)

    for read_end, write_end in pipes:
        os.write(write_end, b"x")
        loop.scheduler.watch(read_end, READABLE, lambda _mask, fd=read_end: serve(fd))
    loop.turns(5)
    for ends in pipes:
        for end in ends:
            os.close(end)
    assert len(served) == 1


@pytest.mark.parametrize("owner", [ServerConnection, RealTransport, Task])
def test_every_owner_gets_the_arguments_of_the_callback(owner):
    """Found by the fault matrix: a slow callback with arguments ended the broker."""
    inspect.signature(owner.describe_work).bind(object(), "an argument", "another")


def test_work_is_described_by_its_owner_if_it_can():
    class Owner:
        def describe_work(self):
            return "what the owner says"

        def run(self):
            pass

    assert describe_work(Owner().run) == "what the owner says"
