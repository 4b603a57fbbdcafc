"""Small files of a followed table are merged, and a kill leaves each row there once."""

from contextlib import suppress

import pyarrow.parquet
import pytest

from kctl.arrow_files.files import Files
from kctl.errors import UsageError
from kctl.export.compaction import MERGED_MAX, Compactor, Small, next_merge
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.manifest import Manifest, ManifestRow, WrittenFile
from kctl.export.options import Compression, ExportOptions, TableFormat
from tests.export.log_files import batch_of, rows_of


def small(first, size=10, level=0, count=10):
    return Small(ManifestRow("t", 0, first, first + count, [WrittenFile("", "", 1, size)]), level)


def test_adjacent_files_are_merged_when_they_reach_the_size():
    rows = [small(number * 10) for number in range(5)]
    assert next_merge(rows, 30) == (0, 3)
    assert next_merge(rows, 60) is None
    # A gap in the offsets: a row has one range.
    assert next_merge([small(0), small(10), small(30), small(40), small(50)], 30) == (2, 5)
    assert next_merge([small(0, size=30), small(10, size=30)], 30) is None


def test_many_files_of_one_level_are_merged_below_the_size():
    rows = [small(number * 10) for number in range(MERGED_MAX)]
    assert next_merge(rows[1:], 10**6) is None
    assert next_merge(rows, 10**6) == (0, MERGED_MAX)
    assert next_merge([small(0, level=1, count=10), *rows[1:]], 10**6) is None


def test_only_parquet_is_merged(tmp_path):
    with pytest.raises(UsageError, match="Parquet"):
        Compactor(str(tmp_path), ExportOptions(TableFormat.DELTA), 100)


class KilledError(Exception):
    pass


def compacted(table, options, run):
    manifest = Manifest.open(str(table), options, run)
    compactor = Compactor(str(table), options, 10**6)
    for row in sorted(manifest.rows, key=lambda it: it.range):
        compactor.add(row)
    merges = 0
    while compactor.merge(manifest, f"{run}-0"):
        merges += 1
    return merges


@pytest.mark.parametrize("partition_by", [(), ("date",)])
def test_a_merge_that_is_killed_at_any_step_leaves_each_row_once(
    tmp_path, monkeypatch, partition_by
):
    monkeypatch.setattr("kctl.export.compaction.MERGED_MAX", 3)
    log = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    options = ExportOptions(partition_by=partition_by)
    whole = {name: getattr(Files, name) for name in ("create", "move", "delete", "delete_tree")}
    for killed_at in range(100):
        table = tmp_path / f"table{killed_at}"
        log.write_bytes(b"")
        for number in range(3):
            with log.open("ab") as file:
                file.write(batch_of(number * 10))
            request = ExportRequest([str(log)], str(table), options, run=f"run{number}")
            export_logs(request, run_here)
        before = rows_of(table)
        left = killed_at

        def step(name):
            def stepped(*arguments, **named):
                nonlocal left
                left -= 1
                if left < 0:
                    raise KilledError
                return whole[name](*arguments, **named)

            return stepped

        is_whole = False
        with monkeypatch.context() as patch:
            for name in whole:
                patch.setattr(Files, name, step(name))
            with suppress(KilledError):
                is_whole = compacted(table, options, "merge") == 1
        manifest = Manifest.open(str(table), options, "after")
        assert rows_of(table) == before, killed_at
        assert sum(row.rows for row in manifest.rows) == 30
        if is_whole:
            assert len(list(table.rglob("*.parquet"))) == 1
            break
    assert killed_at > 5


def test_merged_files_have_the_codec_of_the_run_that_merges(tmp_path, monkeypatch):
    monkeypatch.setattr("kctl.export.compaction.MERGED_MAX", 2)
    log = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    table, options = tmp_path / "table", ExportOptions(compression=Compression.LZ4)
    for number in range(2):
        with log.open("ab") as file:
            file.write(batch_of(number * 10))
        export_logs(ExportRequest([str(log)], str(table), ExportOptions(), run=f"run{number}"),
                    run_here)  # fmt: skip
    assert compacted(table, options, "merge") == 1
    (path,) = table.glob("*.parquet")
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    assert group.column(0).compression == "LZ4"
