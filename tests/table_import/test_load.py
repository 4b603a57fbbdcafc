"""Tables become logs that verify-log and brokers accept: completely, or not at all."""

import json
import shutil

import pyarrow as pa
import pytest

from kctl.arrow_files.log_discovery import find_logs
from kctl.cli.app import run as kctl
from kctl.client.partitioner import partition_for_key
from kctl.errors import StorageError, UsageError
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import ExportOptions
from kctl.records.columnar import decode_columns
from kctl.records.columnar_arrow import HEADERS
from kctl.records.columnar_encoder import SCHEMA
from kctl.runtime.real.disk import RealDisk, RealDiskFile
from kctl.table_import import import_tasks
from tests.records.columns_support import as_records


def table_of(path, count=300, first=0, **more):
    with path.open("w") as file:
        for number in range(first, first + count):
            row = {"key": f"k{number % 17}", "value": f"v{number}", "timestamp": number + 10**12}
            file.write(json.dumps(row | {name: it(number) for name, it in more.items()}) + "\n")
    return path


def records_in(directory, topic="orders"):
    """Return {partition: records}."""
    found = {}
    for path in sorted(directory.glob(f"{topic}-[0-9]*")):
        data = b"".join(it.read_bytes() for it in sorted(path.glob("*.log")))
        columns = decode_columns(data)
        assert not columns.damages
        found[int(path.name.rsplit("-", 1)[1])] = as_records(columns)
    return found


def is_sound(directory, capsys):
    status = kctl(["verify-log", str(directory)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    return "no damage" in printed.out + printed.err


@pytest.fixture
def logs(tmp_path):
    return tmp_path / "logs"


@pytest.mark.parametrize("segment_bytes", [1 << 14, 1 << 30])
@pytest.mark.parametrize("codec", [0, 3, 4])
def test_new_topic_is_a_valid_log(load, logs, tmp_path, capsys, codec, segment_bytes):
    table = table_of(tmp_path / "t.ndjson", 20_000)
    report = load(table, topic="orders", partitions=3, compression_type=codec,
                  segment_bytes=segment_bytes)  # fmt: skip
    assert sum(it.rows for it in report.loaded) == 20_000
    assert is_sound(logs, capsys)
    for partition, records in records_in(logs).items():
        numbers = [int(it.value[1:]) for it in records]
        assert numbers == sorted(numbers)
        assert [it.offset for it in records] == list(range(len(records)))
        assert all(partition_for_key(it.key, 3) == partition for it in records)
        assert all(
            it.timestamp == number + 10**12 for it, number in zip(records, numbers, strict=True)
        )
    assert [it.name for it in logs.iterdir() if "kctl-import-" in it.name] == []


def test_exported_golden_topics_are_imported_unchanged(golden, load, logs, tmp_path, capsys):
    topics = ["v2-none", "v2-zstd", "v1-lz4"]
    export_logs(
        ExportRequest([str(golden)], str(tmp_path / "t"), ExportOptions(), topics), run_here
    )
    load(tmp_path / "t")
    assert is_sound(logs, capsys)
    for topic in topics:
        theirs, ours = records_in(golden, topic), records_in(logs, topic)
        assert theirs.keys() == ours.keys()
        for number, records in theirs.items():
            assert [it[1:] for it in ours[number]] == [it[1:] for it in records]


def test_golden_logs_are_appended_to(golden, load, tmp_path, capsys):
    """The logs are Apache Kafka's, with transactions, epochs, compaction and deleted records."""
    topics = [
        path.name.rsplit("-", 1)[0] for path in golden.iterdir()
        if path.name.endswith("-0") and not path.name.startswith("__")
    ]  # fmt: skip
    ends = {str(it.topic_partition): it.end_offset for it in find_logs([str(golden)], topics)}
    # verify-log may report afterwards what it reported before.
    before = kctl(["verify-log", str(golden)])
    known = capsys.readouterr().out
    table = table_of(tmp_path / "t.ndjson", 10 * len(topics), topic=lambda n: topics[n // 10])
    report = load(table, into=golden)
    assert kctl(["verify-log", str(golden)]) == before
    assert len(capsys.readouterr().out.splitlines()) == len(known.splitlines())
    for loaded in report.loaded:
        assert loaded.first_offset == ends[f"{loaded.topic}-{loaded.partition}"]
    assert sum(it.rows for it in report.loaded) == 10 * len(topics)


def test_second_import_is_appended_to_the_first(load, logs, tmp_path, capsys):
    load(table_of(tmp_path / "a.ndjson"), topic="orders", partitions=2)
    load(table_of(tmp_path / "b.ndjson", first=300), topic="orders")
    assert is_sound(logs, capsys)
    for records in records_in(logs).values():
        assert [it.offset for it in records] == list(range(len(records)))
    found = sorted(int(it.value[1:]) for records in records_in(logs).values() for it in records)
    assert found == list(range(600))


def test_directory_that_an_import_created_takes_another_topic(load, logs, tmp_path, capsys):
    load(table_of(tmp_path / "a.ndjson"), topic="orders", partitions=2)
    load(table_of(tmp_path / "b.ndjson"), topic="users", partitions=1)
    assert is_sound(logs, capsys)
    assert records_in(logs, "users").keys() == {0}


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_directory_that_a_broker_left_unclean_is_rejected(load, logs, tmp_path, name):
    table = table_of(tmp_path / "t.ndjson")
    load(table, topic="orders", partitions=2)
    (logs / name).touch()
    with pytest.raises(UsageError, match="not shut down cleanly"):
        load(table, topic="users", partitions=1)


def test_empty_partition_of_a_new_topic_exists(load, logs, tmp_path, capsys):
    load(table_of(tmp_path / "t.ndjson", 1), topic="orders", partitions=4)
    assert sorted(it.name for it in logs.glob("orders-*")) == [f"orders-{n}" for n in range(4)]
    assert is_sound(logs, capsys)


@pytest.mark.parametrize(("order_by", "key"), [("timestamp", 1), ("offset", 0)])
def test_order_by_a_column_holds_over_files(load, logs, tmp_path, order_by, key):
    for number in range(3):
        table_of(tmp_path / f"t{number}.ndjson", 100, timestamp=lambda n: 10**12 + n * 7919 % 1000,
                 offset=lambda n: n * 31 % 100)  # fmt: skip
    load(*tmp_path.glob("t?.ndjson"), topic="orders", partitions=1, order_by=order_by)
    (records,) = records_in(logs).values()
    places = [(int(it.value[1:]) * 31 % 100, it.timestamp)[key] for it in records]
    assert len(places) == 300
    assert places == sorted(places)


def staged(orders, value=b"v"):
    """A staged batch whose order column has these values; its timestamps count its rows."""
    count = len(orders)
    columns = {
        "key": pa.array([b"%d" % it for it in orders], pa.binary()),
        "value": pa.array([value] * count, pa.binary()),
        "timestamp": pa.array(range(count), pa.int64()), "headers": pa.nulls(count, HEADERS),
    }  # fmt: skip
    arrays = [columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array(orders, pa.int64())], [*SCHEMA.names, "order"]
    )


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
def test_rows_of_many_batches_are_sorted_stably(monkeypatch, chunk_bytes):
    monkeypatch.setattr(import_tasks, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(import_tasks, "_ORDERED_ROWS", 7)
    orders = [[number * 31 % 11 for number in range(n, n + n % 5)] for n in range(40)]
    batches = [staged(each) for each in orders]
    found = [row for each in import_tasks._ordered(batches) for row in each.to_pylist()]
    rows = [(order, at) for each in orders for at, order in enumerate(each)]
    wanted = sorted(rows, key=lambda row: row[0])
    assert [(int(row["key"]), row["timestamp"]) for row in found] == wanted
    assert list(import_tasks._ordered([])) == []


def test_sorted_rows_may_be_larger_together_than_an_arrow_array():
    """Each chunk put whole columns together."""
    one = staged(range(4), value=b"x" * (1 << 20))
    batches = [one] * 600
    assert sum(it.nbytes for it in batches) > 2**31
    before = pa.total_allocated_bytes()
    first = next(import_tasks._ordered(batches))
    assert first.column("key").to_pylist() == [b"0"] * first.num_rows
    assert 1 < first.num_rows <= 16
    assert pa.total_allocated_bytes() - before < 100 << 20


def test_row_goes_to_the_partition_it_names_unless_repartitioned(load, logs, tmp_path):
    table = table_of(tmp_path / "t.ndjson", partition=lambda n: n % 3, topic=lambda _: "orders")
    load(table)
    for partition, found in records_in(logs).items():
        assert {int(it.value[1:]) % 3 for it in found} == {partition}
    shutil.rmtree(logs)
    load(table, keeps_partitions=False, partitions=2)
    for partition, found in records_in(logs).items():
        assert {partition_for_key(it.key, 2) for it in found} == {partition}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "orders"}, "number of partitions is unknown"),
        ({"topic": "../orders", "partitions": 1}, "illegal"),
        ({"partitions": 1}, "rows have no topic"),
        ({"topic": "orders", "partitions": 1, "order_by": "key"}, "Cannot order by key"),
    ],
)
def test_mismatching_options_are_rejected_before_any_change(load, logs, tmp_path, options, message):
    with pytest.raises(Exception, match=message):
        load(table_of(tmp_path / "t.ndjson"), **options)
    assert not logs.exists()


def test_row_for_a_missing_partition_is_rejected(load, tmp_path):
    table = table_of(tmp_path / "t.ndjson", partition=lambda n: n % 5)
    with pytest.raises(UsageError, match="name partition 4, but it has 3 partitions"):
        load(table, topic="orders", partitions=3)


def test_directory_of_a_running_or_killed_broker_is_left_alone(load, logs, tmp_path):
    table = table_of(tmp_path / "t.ndjson")
    load(table, topic="orders", partitions=2)
    (logs / ".kctl-import").unlink()
    with pytest.raises(UsageError, match="not shut down cleanly"):
        load(table, topic="orders")
    lock = RealDisk().lock(str(logs / ".lock"))
    with pytest.raises(StorageError, match="locked"):
        load(table, topic="orders")
    lock.release()


def test_topic_with_only_some_of_its_partitions_is_rejected(load, logs, tmp_path):
    table = table_of(tmp_path / "t.ndjson")
    load(table, topic="orders", partitions=3)
    shutil.rmtree(logs / "orders-1")
    with pytest.raises(UsageError, match="holds partitions 0, 2 of orders, not all"):
        load(table, topic="orders")
    shutil.rmtree(logs / "orders-0")
    with pytest.raises(UsageError, match="holds partition 2 of orders, not all"):
        load(table, topic="orders")


def test_declined_import_changes_nothing(load, logs, tmp_path):
    table = table_of(tmp_path / "t.ndjson")
    assert load(table, topic="orders", partitions=3, confirm=lambda _plan: False) is None
    assert not logs.exists()


class Killed(BaseException):
    """An exception that no `except` of kctl catches."""


class MortalDisk(RealDisk):
    """Dies before its n-th change."""

    def __init__(self, changes):
        self.left = changes

    def _change(self):
        self.left -= 1
        if self.left < 0:
            raise Killed

    def rename(self, old, new):
        self._change()
        super().rename(old, new)

    def write_file(self, path, data, **options):
        self._change()
        super().write_file(path, data, **options)

    def remove_tree(self, path):
        self._change()
        super().remove_tree(path)

    def remove(self, path):
        self._change()
        super().remove(path)

    def open(self, path, *, create=False, read_only=False) -> RealDiskFile:
        self._change()
        return super().open(path, create=create, read_only=read_only)


@pytest.mark.parametrize(
    ("first_change", "step"), [(2, 9), pytest.param(0, 1, marks=pytest.mark.slow)]
)
def test_import_killed_at_any_moment_is_continued(load, tmp_path, capsys, first_change, step):
    first, more = table_of(tmp_path / "a.ndjson", 40), table_of(tmp_path / "b.ndjson", 40, 40)
    template = tmp_path / "template"
    load(first, into=template, topic="orders", partitions=2)
    (template / ".kafka_cleanshutdown").touch()
    options = {"topic": "orders", "segment_bytes": 1 << 14}
    whole = tmp_path / "whole"
    shutil.copytree(template, whole)
    load(more, into=whole, **options)
    expected = records_in(whole)
    for changes in range(first_change, 1000, step):
        into = tmp_path / f"logs{changes}"
        shutil.copytree(template, into)
        try:
            load(more, into=into, disk=MortalDisk(changes), **options)
        except Killed:
            load(more, into=into, **options)
            assert records_in(into) == expected, changes
            assert is_sound(into, capsys)
            shutil.rmtree(into)
        else:
            break
    assert changes > 25


def test_discarded_interrupted_import_leaves_nothing(load, logs, tmp_path, capsys):
    table = table_of(tmp_path / "t.ndjson")
    with pytest.raises(Killed):
        load(table, disk=MortalDisk(6), topic="orders", partitions=2)
    load(table_of(tmp_path / "u.ndjson", 10), topic="users", partitions=1)
    assert sorted(it.name for it in logs.iterdir()) == [".kctl-import", ".lock", "users-0"]
    assert is_sound(logs, capsys)


def test_other_import_is_rejected_while_one_is_partly_installed(load, logs, tmp_path):
    table, other = table_of(tmp_path / "t.ndjson"), table_of(tmp_path / "u.ndjson")
    for changes in range(1000):
        with pytest.raises(Killed):
            load(table, disk=MortalDisk(changes), topic="orders", partitions=2)
        if list(logs.glob("kctl-import*/install.json")):
            break
        shutil.rmtree(logs, ignore_errors=True)
    with pytest.raises(UsageError, match="is incomplete"):
        load(other, topic="users", partitions=1)
    assert load(table, topic="orders", partitions=2).is_taken_up
    names = sorted(it.name for it in logs.iterdir() if not it.name.startswith("."))
    assert names == ["orders-0", "orders-1"]
