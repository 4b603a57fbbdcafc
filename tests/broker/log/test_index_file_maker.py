"""Index files of new segments are created in the background, once no more logs are created."""

import dataclasses

from kctl.broker.log.index_files import DELAY_MS, IndexFileMaker
from kctl.simulation.disk import SimDisk
from tests.support.virtual_runtime import virtual_runtime

LOGS = 100


def index_of(number):
    return f"/t-{number}/{0:020d}.index"


def test_the_index_files_of_many_logs_follow_the_last_log():
    disk = SimDisk()
    runtime = dataclasses.replace(virtual_runtime(), disk=disk)
    maker = IndexFileMaker(runtime.scheduler, disk)
    for number in range(LOGS):
        assert disk.make_directory(f"/t-{number}")
        disk.open(f"/t-{number}/{0:020d}.log", create=True)
        maker.make_soon([index_of(number)])
        runtime.scheduler.advance(1)
    assert not any(disk.exists(index_of(number)) for number in range(LOGS))
    assert not disk.make_directory("/t-0")
    disk.remove(f"/t-7/{0:020d}.log")
    runtime.scheduler.advance(5 * DELAY_MS)
    found = [number for number in range(LOGS) if disk.exists(index_of(number))]
    assert found == [number for number in range(LOGS) if number != 7]  # deleted meanwhile
