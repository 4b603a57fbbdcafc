"""Upper bounds of times: the end of a partition is left out only where the headers of its batches
prove that no earlier time follows."""

from random import Random  # noqa: TID251 - seeded

import pytest

pytest.importorskip("pyarrow")

from kctl.arrow_files.log_discovery import find_logs
from kctl.export.options import ExportOptions
from kctl.export.rows import SplitReader
from kctl.export.splits import plan_log
from kctl.records.builder import RecordBatchBuilder
from kctl.records.record_batch import LOG_APPEND_TIME
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import write_segment

SEED, LOGS = 11, 60


def batch(offset, times, *, appended=None):
    """Of records with these times; with `appended`, the broker's time in their place."""
    facts = {}
    if appended is not None:
        facts = {"timestamp_type": LOG_APPEND_TIME, "append_timestamp": appended}
    builder = RecordBatchBuilder(base_offset=offset, **facts)
    for time_ms in times:
        builder.append(timestamp=time_ms, key=None, value=b"v")
    return bytes(builder.build())


def log_of(directory, segments, **more):
    base = 0
    for batches in segments:
        made = []
        start = base
        for times, appended in batches:
            made.append(batch(base, times, appended=appended))
            base += len(times)
        write_segment(RealDisk(), directory / "orders-0", start, made, **more)
    (log,) = find_logs([str(directory)], [], [])
    return log


def test_the_brokers_times_end_a_partition(tmp_path):
    log = log_of(tmp_path, [
        [([5, 5], 100), ([5, 5], 110)],
        [([5, 5], 120), ([5, 5], 130)],
        [([5, 5], 140)],
    ])  # fmt: skip
    found = {time: log.end_before_time(time) for time in (99, 100, 101, 115, 120, 125, 141)}
    assert found == {99: 0, 100: 0, 101: 2, 115: 4, 120: 4, 125: 6, 141: 10}


def test_a_producers_times_prove_nothing_about_a_batch_of_several_records(tmp_path):
    log = log_of(tmp_path, [[([200, 10], None)], [([300], None), ([310], None)]])
    assert log.end_before_time(150) == 2
    assert log.end_before_time(305) == 3


def test_a_clock_that_was_set_back_is_noticed(tmp_path):
    log = log_of(tmp_path, [[([5], 100), ([5], 200)], [([5], 150)], [([5], 300)]])
    assert log.end_before_time(180) == 3


def test_damage_proves_nothing(tmp_path):
    log_of(tmp_path, [[([5], 100), ([5], 200), ([5], 300)]])
    path = next((tmp_path / "orders-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(data)
    (log,) = find_logs([str(tmp_path)], [], [])
    assert log.end_before_time(50) == log.end_offset


def test_no_row_before_the_time_is_left_out(tmp_path):
    rng = Random(SEED)
    left_out = 0
    for number in range(LOGS):
        at = 1000
        segments = []
        for _ in range(rng.randrange(1, 5)):
            batches = []
            for _ in range(rng.randrange(1, 6)):
                at += rng.randrange(-3, 12)
                times = [at + rng.randrange(-9, 9) for _ in range(rng.randrange(1, 4))]
                batches.append((times, at if rng.random() < 0.8 else None))
            segments.append(batches)
        log = log_of(tmp_path / str(number), segments, with_index=rng.random() < 0.5)
        bound = rng.randrange(990, at + 20)
        end = log.end_before_time(bound)
        options = ExportOptions()
        for split in plan_log(log, options):
            for columns in SplitReader(split, options).chunks():
                early = columns.offsets[columns.timestamps < bound]
                assert (early < end).all(), (number, bound)
        left_out += end < log.end_offset
    assert left_out > LOGS // 3
