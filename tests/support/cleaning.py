"""Compacted logs on a disk in memory, cleaned when a test says so."""

import dataclasses

from kctl.broker.log.log_cleaner import CleanerSettings
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.unified_log import AppendOrigin, FetchIsolation
from kctl.records.builder import RecordBatchBuilder
from kctl.records.memory_records import batches
from kctl.simulation.disk import SimDisk
from tests.support.log_world import BASE_MS, LogWorld, bytes_of
from tests.support.virtual_runtime import virtual_runtime

COMPACTED = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=200,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    retention_ms=-1,
)
DAY_MS = 86_400_000
BY_HAND = CleanerSettings(is_enabled=False)


class Root:
    def __truediv__(self, name):
        return f"/{name}"


def compacted(cleaner=BY_HAND, **changes):
    """A world with one compacted log, on a disk in memory."""
    runtime = dataclasses.replace(virtual_runtime(), disk=SimDisk())
    config = dataclasses.replace(COMPACTED, **changes)
    return LogWorld(runtime, Root(), config, cleaner=lambda: cleaner)


def clean(world):
    """Let the cleaner do all that is due."""
    count = 0
    while True:
        task = world.runtime.scheduler.spawn(world.manager.cleaner.clean_one())
        world.runtime.scheduler.settle()
        if not task.result():
            return count
        count += 1


def pass_time(world, delay_ms):
    """Without all that happens every few seconds."""
    world.runtime.clock.now_ms += delay_ms


def put(log, *records, **options):
    """Append one batch of (key, value)."""
    origin = options.pop("origin", AppendOrigin.CLIENT)
    builder = RecordBatchBuilder(**options)
    for number, (key, value) in enumerate(records):
        headers = (("h", key),) if number % 2 else ()
        builder.append(timestamp=BASE_MS + number, key=key, value=value, headers=headers)
    log.append_as_leader(bytearray(builder.build()), 0, origin=origin, now_ms=BASE_MS)
    log.update_high_watermark(log.log_end_offset)


def all_batches(log, isolation=FetchIsolation.LOG_END):
    found, offset = [], log.log_start_offset
    while got := list(batches(bytes_of(log.read(offset, 500, isolation=isolation)))):
        found += [one for one in got if one.last_offset >= offset]
        offset = found[-1].next_offset
    return found


def records_of(log):
    return [it for one in all_batches(log) if not one.is_control for it in one.records()]


def committed(log):
    """What a reader of committed records gets, as Kafka's consumer filters it."""
    aborted = [it for segment in log.segments for it in segment.transaction_index.entries()]
    aborted.sort(key=lambda it: it.first_offset, reverse=True)
    found, ongoing = [], set()
    for one in all_batches(log, FetchIsolation.TXN_COMMITTED):
        while aborted and aborted[-1].first_offset <= one.last_offset:
            ongoing.add(aborted.pop().producer_id)
        if one.is_control:
            marker = next(iter(one.records()), None)
            if marker is not None and marker.key[3] == 0:
                ongoing.discard(one.producer_id)
        elif not (one.is_transactional and one.producer_id in ongoing):
            found += one.records()
    return found
