"""Delta and Iceberg tables have each row of the log once, whatever crashed in between."""

import sys
from contextlib import contextmanager, nullcontext

import pytest

from kctl.arrow_files.files import Files
from kctl.cli.app import run as kctl
from kctl.errors import StorageError, UsageError
from kctl.export import lake, published
from kctl.export.lake import check_lake
from kctl.export.options import FieldFormat, TableFormat
from kctl.model import Position, PositionKind
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment

LAKES = [TableFormat.DELTA, TableFormat.ICEBERG]
lakes = pytest.mark.parametrize("table_format", LAKES)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def orders(tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    write_segment(RealDisk(), directory, 0, [batch_of(10 * n) for n in range(10)])
    return directory


def read(path, table_format):
    """The table as its own library reads it."""
    if table_format is TableFormat.DELTA:
        deltalake = pytest.importorskip("deltalake")
        return deltalake.DeltaTable(str(path)).to_pyarrow_table()
    tables = pytest.importorskip("pyiceberg.table")
    number = (path / "metadata" / "version-hint.text").read_text()
    newest = path / "metadata" / f"v{number}.metadata.json"
    return tables.StaticTable.from_metadata(str(newest)).scan().to_arrow()


def offsets(path, table_format):
    return sorted(read(path, table_format)["offset"].to_pylist())


@lakes
def test_runs_are_versions_of_one_table(orders, export, tmp_path, table_format):
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    end = Position(PositionKind.OFFSET, 30)
    words = {"table_format": table_format, "value_format": FieldFormat.JSON, "file_bytes": 1024}
    export(orders, bounds=(Position(PositionKind.EARLIEST), end), **words)
    assert offsets(tmp_path / "table", table_format) == list(range(30))
    for _ in range(2):
        export(orders, **words)
        found = read(tmp_path / "table", table_format)
        assert sorted(found["offset"].to_pylist()) == list(range(100))
    values = found["value"].combine_chunks().field("n").to_pylist()
    assert values == found["offset"].to_pylist()
    assert str(found.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    assert found["timestamp"][0].value == 1_600_000_000_000_000 + found["offset"][0].as_py() * 10**6


@lakes
def test_table_in_a_relative_directory(orders, tmp_path, table_format, monkeypatch):
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    monkeypatch.chdir(tmp_path)
    assert kctl(["export", "logs", "-f", table_format.value, "--out", "table"]) == 0
    assert offsets(tmp_path / "table", table_format) == list(range(100))


class Killed(BaseException):
    """An exception that no `except` of kctl catches."""


class Mortal:
    """Kills a run before its n-th use of the file system, and right after the lake's own commit,
    the method `step` of `kind`, if that is the n-th use."""

    def __init__(self, monkeypatch, kind=None, step=""):
        self._monkeypatch = monkeypatch
        self._places = [(Files, "_do", Files._do)]
        if kind is not None:
            self._places.append((kind, step, getattr(kind, step)))
        self.left = 0

    @contextmanager
    def dies_after(self, uses):
        """Within the block, raise Killed after so many uses."""
        self.left = uses
        (files, do, real_do), *commits = self._places
        self._monkeypatch.setattr(files, do, lambda *words: self._use() or real_do(*words))
        for kind, step, real_step in commits:
            self._monkeypatch.setattr(
                kind, step, lambda *words, real=real_step: (real(*words), self._use())
            )
        try:
            yield
        finally:
            for place in self._places:
                self._monkeypatch.setattr(*place)

    def _use(self):
        self.left -= 1
        if self.left < 0:
            raise Killed


@lakes
def test_run_killed_at_any_moment_is_continued(orders, export, tmp_path, monkeypatch, table_format):
    """Killed before its n-th use of the file system from the first file on, and right after the
    lake's own commit."""
    kind = lake._Delta if table_format is TableFormat.DELTA else lake._Iceberg
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    mortal, kills = Mortal(monkeypatch, kind, "add"), 0
    while True:
        out = f"table{kills}"
        try:
            with mortal.dies_after(kills):
                export(orders, out=out, table_format=table_format)
            break
        except Killed:
            kills += 1
        export(orders, out=out, table_format=table_format)
        assert offsets(tmp_path / out, table_format) == list(range(100))
    assert kills > 15


def test_many_versions_are_joined_whatever_kills_a_run(tmp_path, export, monkeypatch):
    """Killed before its n-th use of the file system, in the sixth run of seven."""
    pytest.importorskip("deltalake")
    monkeypatch.setattr(published, "JOINED_MIN", 2)
    mortal, kills, is_killed = Mortal(monkeypatch), 0, True
    while is_killed:
        out, logs, is_killed = f"table{kills}", tmp_path / f"logs{kills}" / "orders-0", False
        for number in range(7):
            write_segment(RealDisk(), logs, number * 10, [batch_of(number * 10)])
            try:
                with mortal.dies_after(kills) if number == 5 else nullcontext():
                    export(logs, out=out, table_format=TableFormat.DELTA)
            except Killed:
                is_killed = True
        assert offsets(tmp_path / out, TableFormat.DELTA) == list(range(70))
        names = {it.name for it in (tmp_path / out / "_kctl" / "published").iterdir()}
        assert len(names) <= 4
        assert len([it for it in names if it.endswith(".all.json")]) == 1
        kills += 1
    assert kills > 20


def test_files_rewritten_by_delta_are_not_added_again(orders, export, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    words = {"table_format": TableFormat.DELTA, "file_bytes": 1024}
    export(orders, **words)
    table = deltalake.DeltaTable(str(tmp_path / "table"))
    table.optimize.compact()
    table.delete("offset < 20")
    write_segment(RealDisk(), orders, 100, [batch_of(100)])
    export(orders, **words)
    assert offsets(tmp_path / "table", TableFormat.DELTA) == list(range(20, 110))


def test_directories_are_columns_of_delta(golden, export, tmp_path):
    pytest.importorskip("deltalake")
    words = {"table_format": TableFormat.DELTA, "partition_by": ("topic", "date")}
    report = export(golden, topics=["v2-none", "tx"], **words)
    found = read(tmp_path / "table", TableFormat.DELTA)
    assert set(found["topic"].to_pylist()) == {"v2-none", "tx"}
    assert found.num_rows == report.rows
    assert found["date"].null_count == 0


@pytest.mark.parametrize("keys", [("topic", "date"), ("date", "hour"), ("topic",)])
def test_iceberg_is_partitioned_by_columns(golden, export, tmp_path, orders, keys):
    tables = pytest.importorskip("pyiceberg.table")
    hour = 3_600_000
    times = [0, 1, hour, 24 * hour, 2]
    records = [Record(100 + n, when, b"k", b"v") for n, when in enumerate(times)]
    write_segment(RealDisk(), orders, 100, [build_batch(records)])
    # Records of v0 have no times.
    words = {"table_format": TableFormat.ICEBERG, "partition_by": keys}
    report = export(golden, orders, topics=["v0-none", "tx", "orders"], **words)
    found = read(tmp_path / "table", TableFormat.ICEBERG)
    assert found.num_rows == report.rows
    number = (tmp_path / "table" / "metadata" / "version-hint.text").read_text()
    newest = tmp_path / "table" / "metadata" / f"v{number}.metadata.json"
    table = tables.StaticTable.from_metadata(str(newest))
    assert len(list(table.scan().plan_files())) == report.files
    some = table.scan(row_filter="topic = 'orders' and timestamp < '1970-01-01T01:00:00+00:00'")
    assert some.to_arrow()["offset"].to_pylist() == [100, 101, 104]
    assert len(list(some.plan_files())) == 1


@lakes
def test_failure_of_the_lake_is_reported_and_repaired_by_the_next_run(
    orders, export, tmp_path, table_format
):
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    name = "_delta_log" if table_format is TableFormat.DELTA else "metadata"
    export(orders, table_format=table_format)
    log = tmp_path / "table" / name
    log.rename(tmp_path / "aside")
    log.write_text("in the way")
    write_segment(RealDisk(), orders, 100, [batch_of(100)])
    with pytest.raises(StorageError, match="table"):
        export(orders, table_format=table_format)
    log.unlink()
    (tmp_path / "aside").rename(log)
    assert export(orders, table_format=table_format).rows == 0
    assert offsets(tmp_path / "table", table_format) == list(range(110))


@pytest.mark.parametrize("missing", ["deltalake", "pyiceberg"])
def test_missing_library_of_a_lake_is_reported_before_the_work(
    orders, tmp_path, capsys, monkeypatch, missing
):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setitem(sys.modules, f"{missing}.catalog.memory", None)
    kind = "delta" if missing == "deltalake" else "iceberg"
    words = ["export", str(orders), "--format", kind, "--out", str(tmp_path / "table")]
    assert kctl(words) == 2
    assert f"hint: pip install 'kctl-kafka[{kind}]'" in capsys.readouterr().err
    assert not (tmp_path / "table").exists()
    check_lake(TableFormat.PARQUET)


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (
            {"table_format": TableFormat.ICEBERG, "partition_by": ("date",), "columns": ("value",)},
            "--columns must name timestamp",
        ),
    ],
)
def test_unsupported_options_of_a_lake_are_usage_errors_with_a_hint(orders, export, words, way_out):
    with pytest.raises(UsageError) as caught:
        export(orders, **words)
    assert way_out in caught.value.hint
