"""Filters print the selected records only; statistics count all records."""

import re
import shutil
from pathlib import Path

import pytest

from kctl.dump.dump import dump
from kctl.dump.file_stats import add_file
from kctl.dump.filtered_dump import filtered_dump, limited
from kctl.dump.filters import RecordFilter
from kctl.dump.hex_format import hex_lines
from kctl.dump.seek import end_offset, offset_at_time
from kctl.dump.shapes import Shape, shaped, shaper
from kctl.dump.stats import LogStats
from kctl.dump.values import DumpedBatch, DumpedRecord, DumpOptions
from kctl.runtime.real.disk import RealDisk
from tests.support.damage import logs

DISK = RealDisk()
DEEP = DumpOptions(with_records=True)
T0_MS = 1_600_000_000_000


@pytest.fixture
def log(golden_logs):
    return lambda name: str(golden_logs / "logs-clean" / name)


def items(directory, **wanted):
    return list(filtered_dump(DISK, [directory], DEEP, lambda _: RecordFilter(**wanted)))


def records(directory, **wanted):
    found = items(directory, **wanted)
    return [item.record for item in found if isinstance(item, DumpedRecord)]


def offsets(directory, **wanted):
    return [record.offset for record in records(directory, **wanted)]


@pytest.mark.parametrize(
    "name", ["v2-none-0", "v2-gzip-0", "v1-none-0", "v1-gzip-0", "v0-snappy-0"]
)
@pytest.mark.parametrize(("start", "end"), [(0, 1), (37, 63), (40, 40), (119, 121), (150, 10_000)])
def test_a_range_of_offsets_is_what_a_whole_dump_has_there(log, name, start, end):
    directory = log(name)
    every = [item.record.offset for item in dump(DISK, [directory], DEEP)
             if isinstance(item, DumpedRecord)]  # fmt: skip
    wanted = [offset for offset in every if start <= offset < end]
    assert offsets(directory, start_offset=start, end_offset=end) == wanted


def test_keys_patterns_and_headers(log):
    directory = log("v2-none-0")
    assert offsets(directory, keys=(b"key-00005", b"key-00061")) == [5, 61]
    assert offsets(directory, key_pattern=re.compile(rb"-0000[12]$")) == [1, 2]
    assert offsets(directory, headers=(("h1", b"v5"),)) == [5]
    assert offsets(directory, headers=(("h1", None),), end_offset=16) == [0, 5, 10, 15]


def test_batches_that_hold_nothing_wanted_are_not_shown(log):
    found = items(log("v2-none-0"), keys=(b"key-00061",))
    assert len([item for item in found if isinstance(item, DumpedBatch)]) == 1


def test_markers_and_aborted_transactions(log):
    directory = log("tx-0")
    control = [item.batch for item in items(directory, only_control=True)
               if isinstance(item, DumpedBatch)]  # fmt: skip
    assert control
    assert all(batch.is_control for batch in control)
    aborted = [item.batch for item in items(directory, only_aborted=True)
               if isinstance(item, DumpedBatch)]  # fmt: skip
    assert aborted
    assert all(batch.is_transactional for batch in aborted)
    assert len(aborted) < len(items(directory))


def test_producers_and_epochs(log):
    for batch in (item.batch for item in items(log("tx-0"), producer_id=5)
                  if isinstance(item, DumpedBatch)):  # fmt: skip
        assert batch.producer_id == 5
    assert offsets(log("v2-none-0"), leader_epoch=99) == []


def test_a_group_is_found_in_its_partition_only(log):
    found = items(log("__consumer_offsets-0"), group="g-simple")
    decoded = [item.decoded.key.group for item in found if isinstance(item, DumpedRecord)]
    assert set(decoded) == {"g-simple"}
    assert items(log("__consumer_offsets-1"), group="g-simple") == []


def test_a_limit_counts_records(log):
    found = limited(items(log("v2-none-0")), 25, of_records=True)
    assert len([item for item in found if isinstance(item, DumpedRecord)]) == 25


@pytest.mark.parametrize("name", ["v2-none-0", "v2-zstd-0", "v1-none-0"])
def test_a_time_leads_to_the_first_record_at_or_after_it(log, name):
    directory = log(name)
    every = records(directory)
    for moment in (0, T0_MS, T0_MS + 77_500, T0_MS + 120_000):
        first = next(record.offset for record in every if record.timestamp >= moment)
        assert offset_at_time(DISK, directory, moment) == first
    assert offset_at_time(DISK, directory, T0_MS * 2) is None
    assert end_offset(DISK, directory) == every[-1].offset + 1


def test_an_index_that_leads_astray_costs_no_record(golden_logs, tmp_path, log):
    directory = tmp_path / "v2-none-0"
    shutil.copytree(log("v2-none-0"), directory)
    for path in directory.glob("*index"):
        path.write_bytes(b"\x00\x00\x00\x07" * (path.stat().st_size // 4))
    assert offsets(str(directory), start_offset=37, end_offset=63) == list(range(37, 63))


def test_statistics_count_what_a_dump_shows(log):
    directory = log("v2-mixed-codecs-0")
    every = records(directory)
    stats = LogStats()
    for path in logs(Path(directory)):
        add_file(stats, DISK, str(path), int(path.stem))
    assert stats.records == len(every)
    assert stats.null_keys == sum(record.key is None for record in every)
    assert stats.value_bytes == sum(len(record.value or b"") for record in every)
    assert set(stats.by_codec) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert sum(codec.records for codec in stats.by_codec.values()) == len(every)
    assert sum(stats.batch_sizes) == stats.batches
    most, count = stats.keys.most_common(1)[0]
    assert count == sum(record.key == most for record in every)


def test_a_hexdump_shows_every_byte(log):
    path = logs(Path(log("v2-none-0")))[0]
    text = "".join(hex_lines(dump(DISK, [str(path)], DumpOptions())))
    shown = "".join(
        match[1]
        for match in re.finditer(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2} ?)+) ", text, re.MULTILINE)
    )
    assert bytes.fromhex(shown) == path.read_bytes()


@pytest.mark.parametrize(
    ("data", "shape", "expected"),
    [
        (b"abc", Shape.STRING, "abc"), (b"\xff", Shape.HEX, "ff"), (None, Shape.INT, None),
        (b"\xff\xff\xff\xfe", Shape.INT, -2), (b"abc", Shape.INT, "not an int: 616263"),
        (b'{"a": [1]}', Shape.JSON, {"a": [1]}), (b"{", Shape.JSON, "not JSON: 7b"),
    ],
)  # fmt: skip
def test_shapes(data, shape, expected):
    assert shaped(data, shaper(shape)) == expected
