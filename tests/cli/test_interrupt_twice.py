"""Interrupt: signals that come together are one request to stop, a later one ends the command."""

import signal

import pytest

from kctl.cli import interrupt
from kctl.runtime.real.signals import REPEAT_MS


class Signals:
    """A scheduler that delivers signals at times of the test's choice."""

    def __init__(self, monkeypatch):
        self.now_ms = 5_000
        self._handlers = {}
        monkeypatch.setattr(interrupt, "monotonic_ms", lambda: self.now_ms)

    def on_signal(self, number, callback, at_once):
        self._handlers[number] = (callback, at_once)

    def handle(self, number):
        """The handler of a signal runs, and the loop has no turn."""
        self._handlers[number][1](number)

    def arrive(self, *numbers):
        """The handlers run as the signals arrive, then the loop has its turn."""
        for number in numbers:
            self.handle(number)
        for number in numbers:
            self._handlers[number][0]()


class Work:
    """A task that counts how often it is cancelled."""

    def __init__(self):
        self.cancelled = 0

    def cancel(self):
        self.cancelled += 1


@pytest.fixture
def signals(monkeypatch):
    return Signals(monkeypatch)


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def command(signals, work):
    command = interrupt.Interrupt(signals)
    command.guard(work)
    return command


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_right_after_the_first_does_not_end_the_clean_stop(
    signals, command, work, second
):
    """`timeout -s INT` sends one to the command and one to its process group."""
    signals.arrive(signal.SIGINT)
    signals.now_ms += REPEAT_MS - 1
    signals.arrive(second)
    assert work.cancelled == 1
    assert command.status == 128 + signal.SIGINT


def test_both_may_arrive_before_the_loop_has_a_turn(signals, command, work):
    signals.arrive(signal.SIGINT, signal.SIGINT)
    assert work.cancelled == 1


def test_a_later_signal_ends_the_command_at_once(signals, command):
    signals.arrive(signal.SIGTERM)
    signals.now_ms += REPEAT_MS
    with pytest.raises(KeyboardInterrupt):
        signals.arrive(signal.SIGINT)
    assert command.status == 128 + signal.SIGTERM


def test_a_later_signal_does_not_wait_for_a_turn_of_the_loop(signals, command):
    """The loop may be busy, or a write may wait for the reader of the output."""
    signals.arrive(signal.SIGINT)
    signals.now_ms += REPEAT_MS
    with pytest.raises(KeyboardInterrupt):
        signals.handle(signal.SIGINT)
