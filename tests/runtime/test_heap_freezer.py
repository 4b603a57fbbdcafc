"""Searches for reference cycles stay short, and no client waits for a full one."""

from types import SimpleNamespace

import pytest

from kctl.runtime.real import heap_freezer
from kctl.runtime.real.heap_freezer import CHECK_MS, SEARCH_SECONDS_MAX, HeapFreezer
from tests.support.virtual_runtime import virtual_runtime


class FakeCollector:
    """Counts objects; `garbage` of the frozen ones are in cycles that nothing refers to."""

    def __init__(self):
        self.callbacks = []
        self.frozen = 0
        self.young = 1_000
        self.garbage = 0
        self.searched = []
        # Objects visited to count them.
        self.counted = 0

    def set_threshold(self, *thresholds):
        self.thresholds = thresholds

    def freeze(self):
        self.frozen += self.young
        self.young = 0

    def unfreeze(self):
        self.young += self.frozen
        self.frozen = 0

    def get_freeze_count(self):
        self.counted += self.frozen
        return self.frozen

    def collect(self):
        self.searched.append(self.young)
        self.young -= self.garbage
        self.garbage = 0


@pytest.fixture
def world():
    collector = FakeCollector()
    runtime = virtual_runtime()
    world = SimpleNamespace(gc=collector, scheduler=runtime.scheduler, clients=0, now=0.0)
    world.freezer = HeapFreezer(
        runtime.scheduler, lambda: world.clients > 0, collector, lambda: world.now
    )
    world.freezer.start()
    return world


def search(world, generation, seconds):
    for phase in ("start", "stop"):
        for callback in world.gc.callbacks:
            callback(phase, {"generation": generation})
        world.now += seconds


def test_what_is_there_at_the_start_is_not_searched(world):
    assert (world.gc.frozen, world.gc.young) == (1_000, 0)


@pytest.mark.parametrize(
    ("generation", "factor", "is_frozen"),
    [(0, 2, False), (1, 0.5, False), (1, 2, True), (2, 2, True)],
)
def test_what_survives_a_long_search_is_frozen(world, generation, factor, is_frozen):
    world.gc.young = 40_000
    search(world, generation, factor * SEARCH_SECONDS_MAX)
    assert (world.gc.young == 0) == is_frozen


def grow(world, count, *, garbage=0):
    world.gc.young, world.gc.garbage = count, garbage
    world.gc.freeze()


def test_frozen_objects_are_searched_when_they_have_grown_and_no_client_waits(world):
    world.clients = 1
    grow(world, heap_freezer.GROWTH_OBJECTS + 1_000, garbage=30_000)
    world.scheduler.advance(10 * CHECK_MS)
    assert world.gc.searched == []
    world.clients = 0
    world.scheduler.advance(10 * CHECK_MS)
    assert world.gc.searched == [heap_freezer.GROWTH_OBJECTS + 2_000]
    assert world.gc.frozen == heap_freezer.GROWTH_OBJECTS - 28_000


def test_no_growth_of_the_heap_makes_a_client_wait_for_a_full_search(world):
    world.clients = 1
    counted = world.gc.counted
    for _ in range(50):
        grow(world, 250_000)
        world.scheduler.advance(CHECK_MS)
    assert world.gc.searched == []
    assert world.gc.counted == counted


def test_a_heap_that_does_not_grow_is_not_searched(world):
    grow(world, heap_freezer.GROWTH_OBJECTS)
    world.scheduler.advance(10 * CHECK_MS)
    assert world.gc.searched == []


def test_nothing_is_frozen_after_the_stop(world):
    world.freezer.stop()
    world.gc.young = 40_000
    search(world, 2, 1)
    world.scheduler.advance(10 * CHECK_MS)
    assert world.gc.young == 40_000
