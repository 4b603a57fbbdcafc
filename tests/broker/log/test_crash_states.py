"""Explores what a log is after a power loss at any moment of a random life.

A log lives: appends, flushes, rolls, truncations, deletions, checkpoints, clean stops. At every
step some disks that a power loss could leave are drawn, and a broker is started on each: it must
start, serve every record that was durable, and nothing that was never there.
"""

import dataclasses

import pytest

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.unified_log import FetchIsolation
from kctl.records.memory_records import batches
from kctl.testing.sim_disk import SimDisk
from tests.support.log_world import TP, LogWorld, append, bytes_of
from tests.support.virtual_runtime import SeededEntropy, virtual_runtime

CONFIG = LogConfig(
    segment_bytes=4000, index_interval_bytes=300, retention_ms=-1, file_delete_delay_ms=5
)
SEEDS = 4
STEPS = 60
CRASHES_PER_STEP = 3


class Root:
    """What LogWorld asks of a directory."""

    def __truediv__(self, name):
        return f"/{name}"


def world_on(disk):
    runtime = dataclasses.replace(virtual_runtime(), disk=disk)
    return LogWorld(runtime, Root(), CONFIG)


def values_by_offset(log):
    found, offset = {}, log.log_start_offset
    while offset < log.log_end_offset:
        got = list(batches(bytes_of(log.read(offset, 10**6, isolation=FetchIsolation.LOG_END))))
        if not got:
            return found
        for batch in got:
            assert batch.is_crc_valid()
            found.update({r.offset: bytes(r.value) for r in batch.records() if r.offset >= offset})
            offset = batch.next_offset
    return found


class Life:
    """A log, what was ever appended to it, and what of that must survive."""

    def __init__(self, seed, *, fsync_keeps_names):
        self.entropy = SeededEntropy(seed)
        self.disk = SimDisk(fsync_keeps_names=fsync_keeps_names)
        self.world = world_on(self.disk)
        self.world.runtime.scheduler.settle()
        self.log = self.world.log()
        # Offset -> value, as it is now; and all that ever stood there.
        self.now = {}
        self.ever = {}
        self.durable_end = 0
        # Flushed as a whole, so that the log itself must be there.
        self.is_there = False

    def step(self):
        pick = self.entropy.random_below(100)
        if pick < 55:
            self.append()
        elif pick < 72:
            self.flush()
        elif pick < 78:
            self.log.roll()
        elif pick < 84:
            self.truncate()
        elif pick < 90:
            self.world.manager.checkpoint()
            self.world.runtime.scheduler.settle()
        elif pick < 94:
            self.world.runtime.scheduler.advance(10)
        elif pick < 97:
            self.delete_records()
        else:
            self.restart()

    def append(self):
        count = 1 + self.entropy.random_below(3)
        size = self.entropy.random_below(700)
        first = self.log.log_end_offset
        values = [b"%d:" % (first + n) + self.entropy.random_bytes(size) for n in range(count)]
        append(self.log, *values)
        for number, value in enumerate(values):
            self.now[first + number] = value
            self.ever.setdefault(first + number, set()).add(value)

    def flush(self):
        if self.entropy.random_below(2):
            self.log.flush()
        else:
            done = self.world.manager.flush_soon(self.log)
            self.world.runtime.scheduler.settle()
            done.result()
        self.durable_end = self.log.log_end_offset
        self.is_there = True

    def truncate(self):
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + self.entropy.random_below(end - start + 1)
        self.log.truncate_to(offset)
        # A batch goes as a whole: the followers' rule is to truncate where one ends.
        kept = values_by_offset(self.log)
        self.log.truncate_to(max(kept, default=self.log.log_start_offset - 1) + 1)
        self.now = kept
        self.durable_end = min(self.durable_end, self.log.log_end_offset)

    def delete_records(self):
        start, end = self.log.log_start_offset, self.log.high_watermark
        self.log.maybe_increment_log_start_offset(
            start + self.entropy.random_below(end - start + 1)
        )
        self.log.delete_old_segments(0)

    def restart(self):
        self.log = self.world.restart(clean=True)
        self.world.runtime.scheduler.settle()
        self.log.update_high_watermark(self.log.log_end_offset)
        self.durable_end = self.log.log_end_offset
        self.is_there = True


def check(life, disk):
    world = world_on(disk)
    assert not world.manager.damaged, world.warnings
    log = world.manager.get_log(TP)
    if log is None:
        assert not life.is_there, "the log itself is gone"
        return
    found = values_by_offset(log)
    for offset in range(life.log.log_start_offset, life.durable_end):
        if offset in life.now:
            assert found.get(offset) == life.now[offset], f"durable record {offset}"
    for offset, value in found.items():
        assert value in life.ever.get(offset, ()), f"record {offset} was never there"
    assert list(found) == list(range(log.log_start_offset, log.log_end_offset)), "a gap"
    # A second start finds nothing to repair.
    disk.kill()
    again = world_on(disk).manager.get_log(TP)
    assert (again.log_start_offset, again.log_end_offset) == (
        log.log_start_offset, log.log_end_offset,
    )  # fmt: skip
    assert values_by_offset(again) == found
    assert append(again, b"and on").first_offset == log.log_end_offset


@pytest.mark.parametrize("names", ["journal", "strict"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_loss_loses_nothing_durable_and_serves_nothing_torn(seed, names):
    life = Life(seed, fsync_keeps_names=names == "journal")
    for step in range(STEPS):
        life.step()
        for crash in range(CRASHES_PER_STEP):
            entropy = SeededEntropy(seed * 10_000 + step * 10 + crash)
            check(life, life.disk.power_loss(entropy))
