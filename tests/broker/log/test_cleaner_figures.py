"""The figures of the cleaner that metrics show."""

import dataclasses

import pytest

from kctl.broker.log.cleaner_manager import LOOKED_AT_PER_TURN
from kctl.broker.log.offset_map import ENTRY_BYTES
from kctl.work import at_once
from tests.support.cleaning import BY_HAND, DAY_MS, clean, compacted, pass_time, put
from tests.support.log_world import BASE_MS


def fill(log, keys=(b"k",)):
    for number in range(60):
        put(log, (keys[number % len(keys)], b"v%d" % number))


def overdue_ms(world, log):
    """As the cleaner finds it when it looks, without cleaning."""
    manager = world.manager.cleaner.manager
    at_once(manager.filthiest([log], world.runtime.clock.wall_ms()))
    return manager.overdue_ms


def test_the_bytes_of_a_damaged_log_wait_until_it_is_truncated():
    world = compacted()
    log = world.log()
    manager = world.manager.cleaner.manager
    fill(log)
    assert manager.uncleanable_bytes(["/empty"], BASE_MS) == {"/empty": 0}
    world.runtime.disk.open(log.segments[1].records.path).pwrite(b"\xff", 70)
    assert clean(world) == 1
    waiting = sum(segment.size for segment in log.segments[:-1])
    assert waiting > 0
    assert manager.uncleanable_bytes(["/empty"], BASE_MS) == {
        "/empty": 0,
        log.log_directory: waiting,
    }
    log.truncate_to(0)
    clean(world)
    assert manager.uncleanable_bytes([], BASE_MS) == {}


def test_a_log_is_overdue_by_the_age_of_its_oldest_dirty_batch_until_it_is_cleaned():
    world = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=DAY_MS)
    log = world.log()
    fill(log)
    age_ms = world.runtime.clock.wall_ms() - BASE_MS
    pass_time(world, DAY_MS - age_ms)
    assert overdue_ms(world, log) == 0
    assert clean(world) == 0
    pass_time(world, 5_000)
    assert overdue_ms(world, log) == 5_000
    assert clean(world) == 1
    assert overdue_ms(world, log) == 0


def test_the_active_segment_and_logs_without_a_limit_are_not_overdue():
    for lag in ({}, {"max_compaction_lag_ms": DAY_MS}):
        world = compacted(**lag)
        log = world.log()
        put(log, (b"k", b"v"))
        pass_time(world, 30 * DAY_MS)
        assert overdue_ms(world, log) == 0


def test_the_share_of_the_buffer_is_that_of_the_keys():
    keys = [b"key %d" % number for number in range(12)]
    settings = dataclasses.replace(BY_HAND, dedupe_buffer_bytes=100 * ENTRY_BYTES)
    world = compacted(cleaner=settings)
    fill(world.log(), keys)
    assert world.manager.cleaner.last.buffer_share == 0
    assert clean(world) == 1
    assert world.manager.cleaner.last.buffer_share == pytest.approx(0.12)


def test_the_logs_to_clean_are_looked_for_over_many_turns():
    world = compacted()
    log = world.log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    manager = world.manager.cleaner.manager
    looking = manager.filthiest([log] * (2 * LOOKED_AT_PER_TURN + 1), BASE_MS)
    assert sum(1 for _ in looking) == 2
