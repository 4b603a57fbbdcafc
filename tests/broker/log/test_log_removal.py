"""Directories and files of logs are removed a few at a time."""

import dataclasses

import pytest

from kctl.broker.log.log_removal import FILES_PER_JOB, LogRemoval
from kctl.runtime.real.disk import RealDisk
from tests.support.virtual_runtime import virtual_runtime


class CountingDisk(RealDisk):
    """A disk that counts what is removed."""

    removed = 0

    def remove(self, path):
        self.removed += 1
        super().remove(path)


@pytest.fixture
def runtime():
    return dataclasses.replace(virtual_runtime(), disk=CountingDisk())


def test_a_large_directory_is_removed_in_many_jobs_between_which_flushes_run(runtime, tmp_path):
    count = 5 * FILES_PER_JOB
    directory = tmp_path / "t-0.0-delete"
    (directory / "left by hand").mkdir(parents=True)
    for number in range(count):
        (directory / f"{number:020d}.log").touch()
    scheduler, disk = runtime.scheduler, runtime.disk
    LogRemoval(runtime, print).remove_later([str(directory)], 60_000)
    scheduler.advance(59_999)
    assert disk.removed == 0
    before_flush = []

    def flush():
        scheduler.background(lambda: before_flush.append(disk.removed))

    scheduler.call_later(1, flush)
    scheduler.advance(1)
    scheduler.settle()
    assert before_flush[0] <= FILES_PER_JOB
    assert disk.removed == count
    assert not directory.exists()


def test_a_removal_that_fails_is_reported_and_ends(runtime, tmp_path):
    segment = tmp_path / "00000000000000000000.log.deleted"
    segment.mkdir()
    (segment / "a file in place of a segment").touch()
    runtime.disk.remove_tree = runtime.disk.remove
    LogRemoval(runtime, print).remove_later([str(segment)], 0)
    runtime.scheduler.advance(0)
    runtime.scheduler.settle()
    assert any("cannot remove" in it for it in runtime.trace.warnings)
