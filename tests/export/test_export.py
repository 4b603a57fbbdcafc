"""Tables hold the records of the logs they were made from: all of them, once."""

import json
import resource
import shutil
import struct

import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest

from kctl.arrow_files.files import Files
from kctl.errors import CorruptDataError, NotFoundError, StorageError, UsageError
from kctl.export import joined_pieces, task
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.manifest import Manifest
from kctl.export.options import Compression, ExportOptions, FieldFormat, Isolation, TableFormat
from kctl.model import Position, PositionKind
from kctl.records.builder import build_batch
from kctl.records.columnar import decode_columns
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, record_rows, rows_of, write_segment
from tests.records.columns_support import as_records, read_one_by_one

TOPICS = ("v0-gzip", "v1-lz4", "v2-zstd", "upgraded", "compacted", "tx", "epochs")


def at(kind, value=0):
    return Position(kind, value)


@pytest.fixture
def disk():
    return RealDisk()


@pytest.fixture
def orders(tmp_path, disk):
    """orders-0: offsets 0 to 299 in three segments of ten batches."""
    directory = tmp_path / "logs" / "orders-0"
    for base in (0, 100, 200):
        write_segment(disk, directory, base, [batch_of(base + 10 * n) for n in range(10)])
    return directory


@pytest.mark.parametrize("topic", TOPICS)
def test_topic_of_apache_kafka_is_exported_record_for_record(golden, export, tmp_path, topic):
    export(golden, topics=[topic])
    expected = []
    for directory in sorted(golden.glob(f"{topic}-[0-9]*")):
        for segment in sorted(directory.glob("*.log")):
            records, _ = read_one_by_one(segment.read_bytes())
            expected += record_rows(topic, int(directory.name.rsplit("-", 1)[1]), records)
    assert rows_of(tmp_path / "table") == sorted(expected, key=lambda row: row[:3])


def test_deleted_records_stay_deleted(golden, export, tmp_path):
    report = export(golden, topics=["deleted-records"])
    assert min(row[2] for row in rows_of(tmp_path / "table")) > 0
    assert report.rows < 200


@pytest.mark.parametrize("file_bytes", [1024, 5_000, 10**9])
def test_splits_of_any_size_export_every_record(orders, export, tmp_path, file_bytes):
    report = export(orders, file_bytes=file_bytes)
    rows = rows_of(tmp_path / "table")
    assert [row[2] for row in rows] == list(range(300))
    assert report.rows == 300
    assert report.files == len(list((tmp_path / "table").glob("*.parquet")))
    assert (report.files > 3) == (file_bytes == 1024)


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((at(PositionKind.OFFSET, 95), at(PositionKind.OFFSET, 105)), range(95, 105)),
        ((at(PositionKind.TAIL, 7), None), range(293, 300)),
        ((at(PositionKind.TIME, 1_600_000_150_000), at(PositionKind.TIME, 1_600_000_155_001)),
         range(150, 156)),
        ((at(PositionKind.EARLIEST), at(PositionKind.OFFSET, 1)), range(1)),
        ((at(PositionKind.OFFSET, 250), at(PositionKind.LATEST)), range(250, 300)),
        ((at(PositionKind.OFFSET, 250), at(PositionKind.OFFSET, 200)), range(0)),
    ],
)  # fmt: skip
def test_range_is_exact(orders, export, tmp_path, bounds, expected, with_index):
    if not with_index:
        for path in orders.glob("*.index"):
            path.unlink()
    export(orders, bounds=bounds, file_bytes=1024)
    found = rows_of(tmp_path / "table") if expected else []
    assert [row[2] for row in found] == list(expected)


def test_files_are_named_by_topic_partition_and_offsets(orders, export, tmp_path):
    export(orders)
    (path,) = (tmp_path / "table").glob("*.parquet")
    assert path.name == "orders-0-00000000000000000000-00000000000000000299.parquet"


def test_second_run_adds_only_new_records(orders, export, tmp_path, disk):
    assert export(orders).rows == 300
    assert export(orders).rows == 0
    write_segment(disk, orders, 300, [batch_of(300)])
    report = export(orders)
    assert (report.rows, report.earlier_rows) == (10, 300)
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(310))


def test_ranges_before_and_after_an_earlier_one_are_added(orders, export, tmp_path):
    export(orders, bounds=(at(PositionKind.OFFSET, 100), at(PositionKind.OFFSET, 120)))
    export(orders)
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(300))


class Killed(BaseException):
    """An exception that no `except` of kctl catches."""


@pytest.mark.slow
def test_run_killed_at_any_moment_is_continued(orders, export, tmp_path, monkeypatch):
    """Killed before its n-th use of the file system, for every n."""
    real = Files._do
    left = 0

    def mortal(self, path, work):
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return real(self, path, work)

    kills = 0
    while True:
        left = kills
        out = f"table{kills}"
        monkeypatch.setattr(Files, "_do", mortal)
        try:
            export(orders, out=out, file_bytes=4000)
            break
        except Killed:
            kills += 1
        finally:
            monkeypatch.setattr(Files, "_do", real)
        export(orders, out=out, file_bytes=4000)
        assert [row[2] for row in rows_of(tmp_path / out)] == list(range(300))
        assert not (tmp_path / out / "_kctl" / "tmp").exists()
        shutil.rmtree(tmp_path / out)
    assert kills > 30


def test_log_that_grows_between_two_crashes_has_no_row_twice(orders, export, tmp_path, disk):
    def dying(plan):
        for number, row in enumerate(run_here(plan)):
            if number == 2:
                raise Killed
            yield row

    with pytest.raises(Killed):
        export(orders, file_bytes=4000, runner=dying)
    write_segment(disk, orders, 300, [batch_of(300)])
    export(orders, file_bytes=9000)
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(310))


def test_table_with_other_options_is_rejected(orders, export):
    export(orders)
    with pytest.raises(UsageError, match="a different value_format"):
        export(orders, value_format=FieldFormat.STRING)


def test_directory_with_other_files_is_rejected(orders, export, tmp_path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        export(orders)
    assert (tmp_path / "table" / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("table_format", [TableFormat.PARQUET, TableFormat.ORC, TableFormat.CSV])
def test_a_file_that_cannot_grow_is_named(tmp_path, export, disk, table_format):
    records = [Record(n, 0, key=None, value=b"%04d" % n * 2000) for n in range(40)]
    write_segment(disk, tmp_path / "logs" / "zeros-0", 0, [build_batch(records)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = {"compression": Compression.NONE} if table_format is not TableFormat.CSV else {}
    # As a full disk, with another number.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StorageError) as raised:
            export(tmp_path / "logs", table_format=table_format, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}/table/_kctl/tmp/")
    assert message.endswith(" File too large")
    export(tmp_path / "logs", table_format=table_format, **options)


def test_damage_is_skipped_and_reported(orders, export, tmp_path):
    path = orders / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(batch_of(100))
    data[size + 70] ^= 1
    path.write_bytes(data)
    report = export(orders)
    assert [row[2] for row in rows_of(tmp_path / "table")] == [*range(110), *range(120, 300)]
    (damage,) = report.damages
    assert (damage.path, damage.position, damage.size) == (str(path), size, len(batch_of(110)))
    assert (damage.first_offset, damage.last_offset) == (110, 119)


def test_a_last_segment_without_a_readable_batch_is_reported(orders, export, tmp_path):
    path = orders / f"{300:020d}.log"
    path.write_bytes(bytes(4096))
    assert export(orders).damages == []
    path.write_bytes(b"no batch " * 1000)
    for _ in range(2):
        (damage,) = export(orders).damages
        assert (damage.path, damage.position, damage.size) == (str(path), 0, 9000)
    with pytest.raises(CorruptDataError) as raised:
        export(orders, fails_on_damage=True)
    assert str(path) in str(raised.value)
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(300))


def test_records_before_a_damaged_end_of_the_last_segment_are_exported(orders, export, tmp_path):
    """Also where the last entry of the index points into the damage."""
    batches = [batch_of(number) for number in range(300, 340, 10)]
    position = sum(map(len, batches))
    path = orders / f"{300:020d}.log"
    path.write_bytes(b"".join(batches) + b"no batch " * 100)
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 45, position + 9))
    (damage,) = export(orders).damages
    assert (damage.path, damage.position) == (str(path), position)
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(340))


def test_damage_fails_a_run_that_must_not_skip_it(orders, export):
    path = orders / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="stored crc") as raised:
        export(orders, fails_on_damage=True)
    assert str(path) in str(raised.value)


def test_only_committed_records_are_exported(golden, export, tmp_path):
    export(golden, topics=["tx"], out="all")
    export(golden, topics=["tx"], isolation=Isolation.READ_COMMITTED)
    every, committed = rows_of(tmp_path / "all"), rows_of(tmp_path / "table")
    assert set(committed) < set(every)


def test_committed_records_need_no_index(golden, export, tmp_path):
    """Without .txnindex and .snapshot files, markers give the same result."""
    export(golden, topics=["tx"], isolation=Isolation.READ_COMMITTED)
    bare = tmp_path / "bare"
    for directory in golden.glob("tx-*"):
        (bare / directory.name).mkdir(parents=True)
        for segment in directory.glob("*.log"):
            shutil.copy(segment, bare / directory.name)
    export(bare, out="again", isolation=Isolation.READ_COMMITTED)
    assert rows_of(tmp_path / "again") == rows_of(tmp_path / "table") != []


def test_latest_per_key_is_what_compaction_would_leave(tmp_path, export, disk):
    directory = tmp_path / "logs" / "users-0"
    records = [
        Record(n, n, b"k%d" % (n % 5), None if n in (17, 11) else b"v%d" % n) for n in range(20)
    ] + [Record(20, 20, None, b"no key")]
    write_segment(disk, directory, 0, [build_batch(records)])
    export(directory, latest_per_key=True)
    # k2 was deleted last at 17; k1 lives at 16 though it was deleted at 11.
    assert [row[2] for row in rows_of(tmp_path / "table")] == [15, 16, 18, 19]
    write_segment(disk, directory, 21, [build_batch([Record(21, 21, b"k3", b"new")])])
    report = export(directory, latest_per_key=True)
    assert [row[2] for row in rows_of(tmp_path / "table")] == [15, 16, 19, 21]
    assert report.files == 1
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 1


@pytest.mark.parametrize("runs", [["1", "2", "3", "4"], ["9", "10", "5", "4"]])
def test_a_range_that_comes_again_keeps_its_file(tmp_path, disk, runs):
    """A log lost its end: the range that it had before was still that of a replaced row, and the
    next run deleted the file. Nor do the names of runs matter, which come from clocks."""
    logs, table = tmp_path / "logs", tmp_path / "table"
    options = ExportOptions(latest_per_key=True)
    write_segment(disk, logs / "users-1", 0, [batch_of(0)])
    for run, end, partitions in zip(runs, (20, 30, 20, 20), ([0], [0], [0], [1]), strict=True):
        write_segment(disk, logs / "users-0", 0, [batch_of(n) for n in range(0, end, 10)])
        request = ExportRequest([str(logs)], str(table), options, (), partitions, run=run)
        export_logs(request, run_here)
        found = [row[2] for row in rows_of(table) if row[1] == 0]
        assert found == list(range(end - 7, end))
    found = Manifest.look(str(table), options).done()
    assert found == {("users", 0): [(0, 20)], ("users", 1): [(0, 10)]}
    assert len(list(table.glob("*.parquet"))) == 2


def test_a_replacement_by_a_clock_that_was_behind_is_read(tmp_path, disk):
    """Tables of earlier versions have such names."""
    table, options = tmp_path / "table", ExportOptions(latest_per_key=True)
    for run, end in (("2", 10), ("3", 20)):
        write_segment(disk, tmp_path / "logs" / "users-0", 0, [batch_of(0, end)])
        request = ExportRequest([str(tmp_path / "logs")], str(table), options, run=run)
        export_logs(request, run_here)
    lines = table / "_kctl" / "manifest"
    (lines / "3-000001.jsonl").rename(lines / "1-000001.jsonl")
    assert Manifest.look(str(table), options).done() == {("users", 0): [(0, 20)]}


def test_rows_are_partitioned_by_topic_date_and_hour(tmp_path, export, disk):
    directory = tmp_path / "logs" / "orders-0"
    hour = 3_600_000
    times = [0, 1, hour, 24 * hour, 5, -1]
    records = [Record(n, when, b"k", b"v") for n, when in enumerate(times)]
    write_segment(disk, directory, 0, [build_batch(records)])
    export(directory, partition_by=("topic", "date", "hour"))
    table = tmp_path / "table"
    name = "orders-0-00000000000000000000-00000000000000000005.parquet"
    found = {
        str(path.parent.relative_to(table)): pyarrow.parquet.ParquetFile(path).metadata.num_rows
        for path in table.rglob(name)
    }
    assert found == {
        "topic=orders/date=1970-01-01/hour=00": 3,
        "topic=orders/date=1970-01-01/hour=01": 1,
        "topic=orders/date=1970-01-02/hour=00": 1,
        "topic=orders/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__": 1,
    }
    assert len(rows_of(table)) == 6


def test_files_of_many_hours_buffer_few_rows_together(tmp_path, export, disk, monkeypatch):
    monkeypatch.setattr(task, "_HELD_BYTES_MAX", 10_000)
    monkeypatch.setattr(joined_pieces, "_PIECE_BYTES_MAX", 0)
    directory = tmp_path / "logs" / "orders-0"
    for base in range(0, 600, 100):
        # Each segment is decoded separately and has records of every hour.
        records = [
            Record(n, n % 20 * 3_600_000, None, b"%050d" % n) for n in range(base, base + 100)
        ]
        write_segment(disk, directory, base, [build_batch(records)])
    export(directory, partition_by=("hour",))
    files = [pyarrow.parquet.ParquetFile(path) for path in (tmp_path / "table").rglob("*.parquet")]
    assert len(files) == 20
    assert max(file.num_row_groups for file in files) > 1
    assert sorted(row[2] for row in rows_of(tmp_path / "table")) == list(range(600))


@pytest.mark.parametrize("table_format", [it for it in TableFormat if not it.is_lake])
def test_every_format_holds_every_record(golden, export, tmp_path, table_format):
    export(golden, topics=["v2-none"], table_format=table_format)
    (path,) = (tmp_path / "table").glob("v2-none-0-*")
    expected = as_records(decode_columns(b"".join(
        segment.read_bytes() for segment in sorted((golden / "v2-none-0").glob("*.log"))
    )))  # fmt: skip
    assert read_offsets(path, table_format) == [record.offset for record in expected]


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("table_format", [TableFormat.PARQUET, TableFormat.ORC])
def test_files_are_compressed_as_chosen(golden, export, tmp_path, table_format, compression):
    export(golden, topics=["v2-none"], table_format=table_format, compression=compression)
    (path,) = (tmp_path / "table").glob("v2-none-0-*")
    if table_format is TableFormat.PARQUET:
        group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
        found = {group.column(it).compression for it in range(group.num_columns)}
    else:
        found = {pyarrow.orc.ORCFile(path).compression}
    wanted = {"uncompressed"} if compression is Compression.NONE else {compression.value}
    assert {it.lower() for it in found} == wanted
    assert read_offsets(path, table_format)


def test_a_table_may_have_files_of_several_codecs(orders, export, tmp_path, disk):
    export(orders)
    write_segment(disk, orders, 300, [build_batch([Record(300, 0, b"k", b"v")])])
    export(orders, compression=Compression.SNAPPY)
    found = {
        pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression
        for path in (tmp_path / "table").glob("*.parquet")
    }
    assert found == {"ZSTD", "SNAPPY"}


def test_text_is_not_compressed():
    ExportOptions(TableFormat.CSV, compression=Compression.NONE)
    with pytest.raises(UsageError, match="--compression is for Parquet and ORC"):
        ExportOptions(TableFormat.CSV, compression=Compression.SNAPPY)


def read_offsets(path, table_format):
    if table_format is TableFormat.PARQUET:
        return pyarrow.parquet.read_table(path)["offset"].to_pylist()
    if table_format is TableFormat.ORC:
        return pyarrow.orc.read_table(path)["offset"].to_pylist()
    if table_format is TableFormat.CSV:
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return pyarrow.csv.read_csv(path, parse_options=options)["offset"].to_pylist()
    return [json.loads(line)["offset"] for line in path.read_text().splitlines()]


def test_an_unknown_topic_is_reported(orders, export):
    with pytest.raises(NotFoundError, match="No topic payments"):
        export(orders, topics=["payments"])


def test_two_replicas_of_a_partition_are_rejected(orders, export, tmp_path):
    shutil.copytree(orders, tmp_path / "other" / "orders-0")
    with pytest.raises(UsageError, match="one replica"):
        export(orders, tmp_path / "other")


def test_single_segment_is_a_source(orders, export, tmp_path):
    export(orders / f"{100:020d}.log")
    assert [row[2] for row in rows_of(tmp_path / "table")] == list(range(100, 200))
