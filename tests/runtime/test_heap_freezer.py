"""Searches for reference cycles stay short, and no client waits for a full one."""

from types import SimpleNamespace

import pytest

from kctl.runtime.real.clock import RealClock
from kctl.runtime.real.heap_freezer import SEARCH_SECONDS_MAX, WORK_SECONDS_MAX, HeapFreezer
from kctl.runtime.real.loop import RealScheduler


class FakeCollector:
    """Counts objects, and remembers the generations that were searched."""

    def __init__(self):
        self.callbacks = []
        self.frozen = 0
        self.young = 1_000
        self.counts = (0, 0, 0)
        self.searched = []

    def set_threshold(self, *thresholds):
        self.thresholds = thresholds

    def freeze(self):
        self.frozen += self.young
        self.young = 0

    def get_count(self):
        return self.counts

    def collect(self, generation):
        self.searched.append(generation)
        for phase in ("start", "stop"):
            for callback in self.callbacks:
                callback(phase, {"generation": generation})


@pytest.fixture
def world():
    world = SimpleNamespace(gc=FakeCollector(), scheduler=RealScheduler(RealClock()), now=0.0)
    world.freezer = HeapFreezer(world.scheduler, world.gc, lambda: world.now)
    world.freezer.start()
    yield world
    world.scheduler.close()


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


def test_no_growth_of_the_heap_makes_a_client_wait_for_a_full_search(world):
    for _ in range(50):
        world.gc.young = 250_000
        search(world, 1, 2 * SEARCH_SECONDS_MAX)
    assert world.gc.frozen == 1_000 + 50 * 250_000
    assert world.gc.searched == []


def work_in_parts(world, seconds):
    """Work that has parts, each of which takes so long."""

    def part(left):
        world.now += seconds
        if left:
            world.scheduler.call_later(0, part, left - 1)
        else:
            done.set_result(None)

    done = world.scheduler.future()
    world.scheduler.call_soon(part, 8)
    world.scheduler.run_until(done)


def test_long_work_in_parts_searches_what_is_new_as_it_goes(world):
    """While much is freed, Python's own count of new objects does not rise."""
    world.gc.counts = (1, 0, 0)
    work_in_parts(world, WORK_SECONDS_MAX * 0.6)
    assert world.gc.searched == [0] * 4


def test_short_work_in_parts_leaves_the_searches_to_python(world):
    work_in_parts(world, WORK_SECONDS_MAX * 0.1)
    assert world.gc.searched == []


@pytest.mark.parametrize(("counts", "generation"), [((9, 1, 9), 0), ((9, 2, 1), 1), ((9, 2, 2), 2)])
def test_a_search_of_long_work_includes_older_objects_as_pythons_own_do(world, counts, generation):
    world.gc.counts = counts
    work_in_parts(world, WORK_SECONDS_MAX * 0.2)
    assert world.gc.searched == [generation]


def test_nothing_is_frozen_or_searched_after_the_stop(world):
    world.freezer.stop()
    world.gc.young = 40_000
    search(world, 2, 1)
    work_in_parts(world, 1)
    assert world.gc.young == 40_000
    assert world.gc.searched == []
