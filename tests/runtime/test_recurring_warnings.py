"""RecurringWarnings: a line when a condition has lasted, and when it changes."""

from types import SimpleNamespace

import pytest

from kctl.runtime import recurring_warnings
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.trace import NullTrace


class World(NullTrace):
    """A clock that is set, and the lines logged."""

    def __init__(self):
        self.now_ms = 0
        self.lines = []

    def monotonic_ms(self):
        return self.now_ms

    def warning(self, message, detail=""):
        self.lines.append(message)


@pytest.fixture
def world():
    return World()


def warnings_of(world, patience_ms):
    return RecurringWarnings(SimpleNamespace(trace=world, clock=world), patience_ms)


def test_a_condition_that_lasts_is_logged_once_until_it_changes_or_ends(world):
    warnings = warnings_of(world, 0)
    for message in ("gone", "gone", "refused", "refused", "gone"):
        warnings.warn("broker 1", message)
    warnings.warn("broker 2", "gone")
    assert world.lines == ["gone", "refused", "gone", "gone"]
    warnings.resolve("broker 1")
    warnings.warn("broker 1", "gone")
    warnings.warn("broker 2", "gone")
    assert len(world.lines) == 5
    warnings.clear()
    warnings.warn("broker 2", "gone")
    assert len(world.lines) == 6


def meet(world, warnings, *times_ms):
    for world.now_ms in times_ms:
        warnings.warn("broker 1", "gone")


def test_a_condition_is_logged_when_it_has_lasted(world):
    warnings = warnings_of(world, 1000)
    meet(world, warnings, 0, 400, 999)
    assert world.lines == []
    meet(world, warnings, 1000, 1100)
    assert world.lines == ["gone"]


def test_a_condition_that_passes_is_not_logged(world):
    warnings = warnings_of(world, 1000)
    meet(world, warnings, 0, 900)
    warnings.resolve("broker 1")
    meet(world, warnings, 1000, 1900)
    assert world.lines == []


def test_a_condition_that_comes_back_after_a_long_time_has_not_lasted(world):
    warnings = warnings_of(world, 1000)
    meet(world, warnings, 0, 500, 5000, 5900)
    assert world.lines == []


def test_a_bounded_number_is_remembered(monkeypatch, world):
    monkeypatch.setattr(recurring_warnings, "CONDITIONS_MAX", 3)
    warnings = warnings_of(world, 0)
    for number in (1, 2, 3, 1, 4, 4, 1):
        warnings.warn(number, str(number))
    # 4 took the place of 1, the oldest, which is logged again.
    assert world.lines == ["1", "2", "3", "4", "1"]
