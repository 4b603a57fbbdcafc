"""The limit on open segment files is shared by all log directories; a failure is not."""

import dataclasses
from pathlib import PurePosixPath

import pytest

from kctl.broker.log.log_config import LogConfig
from kctl.model import TopicPartition
from kctl.simulation.disk import SimDisk
from tests.support.log_world import LogWorld, append, values_of
from tests.support.virtual_runtime import virtual_runtime

LIMIT = 2
BATCHES = 30


@pytest.fixture
def world():
    runtime = dataclasses.replace(virtual_runtime(), disk=SimDisk())
    return LogWorld(
        runtime, PurePosixPath("/"), LogConfig(index_interval_bytes=1), 2, open_segments_max=LIMIT
    )


@pytest.fixture
def logs(world):
    """Four logs, two in each directory."""
    return [world.log(TopicPartition("t", number)) for number in range(4)]


def in_directory(world, logs, number):
    return [log for log in logs if log.log_directory == world.log_dirs[number]]


def evict_with_failing_save(world, logs):
    """Evict a log of the second directory, which fails, by the use of logs of the first."""
    healthy, (failing, _) = in_directory(world, logs, 0), in_directory(world, logs, 1)
    for number in range(BATCHES):
        append(failing, b"%d" % number)
    world.runtime.disk.fail[world.log_dirs[1]] = "No space left on device"
    for _ in range(2):
        for log in healthy:
            append(log, b"v")
    return healthy, failing


def test_a_segment_that_cannot_be_saved_makes_no_append_of_another_directory_fail(world, logs):
    healthy, failing = evict_with_failing_save(world, logs)
    assert [log.log_end_offset for log in healthy] == [2, 2]
    assert len(world.manager._factory.open_segments) == LIMIT
    assert failing.segments[-1].offset_index.is_loaded
    # Its own next flush meets the error.
    world.manager.flush_soon(failing)
    world.runtime.scheduler.settle()
    assert world.manager.offline_log_dirs == [world.log_dirs[1]]


def test_an_index_that_could_not_be_saved_is_saved_later(world, logs):
    _, failing = evict_with_failing_save(world, logs)
    world.runtime.disk.fail.clear()
    log_end = failing.log_end_offset
    tp, entries = failing.topic_partition, bytes(failing.segments[-1].offset_index.raw())
    assert entries
    world.restart(clean=True)
    log = world.manager.get_log(tp)
    assert bytes(log.segments[-1].offset_index.raw()) == entries
    assert values_of(log) == [(number, b"%d" % number) for number in range(log_end)]
