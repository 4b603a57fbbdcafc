"""Logs and tables on file systems of fsspec: the same rows, and only the needed bytes fetched."""

import pytest

from kctl.arrow_files.files import Files
from kctl.cli.app import run as kctl
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import ExportOptions
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, rows_of, write_segment

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def bucket(tmp_path):
    """A log directory in a file system of this process' memory: orders-0 in three segments."""
    directory = tmp_path / "logs" / "orders-0"
    for base in (0, 1000, 2000):
        write_segment(RealDisk(), directory, base, [batch_of(base + 10 * n) for n in range(100)])
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "logs"), "/bucket/logs", recursive=True)
    yield memory
    memory.rm("/", recursive=True)


def rows(memory, table, tmp_path):
    memory.get(table, str(tmp_path / "fetched"), recursive=True)
    return rows_of(tmp_path / "fetched")


def test_table_of_a_remote_log_is_that_of_a_local_one(bucket, export, tmp_path):
    words = ["export", "memory://bucket/logs", "--file-size", "9k", "-j", "1", "--out"]
    for offset in ("0..1500", "earliest"):
        assert kctl([*words, "memory://bucket/table", "--offset", offset]) == 0
    export(tmp_path / "logs", out="here")
    assert rows(bucket, "/bucket/table", tmp_path) == rows_of(tmp_path / "here")
    assert not bucket.exists("/bucket/table/_kctl/tmp")


def test_each_byte_of_a_log_is_fetched_once(bucket, tmp_path, monkeypatch):
    """A segment is divided into several splits; only the last one's tail is fetched again."""
    kind = type(bucket.open("/bucket/logs/orders-0/00000000000000000000.log"))
    read = kind.read
    fetched = 0

    def counted(self, *words):
        nonlocal fetched
        data = read(self, *words)
        fetched += len(data) if self.path.endswith(".log") else 0
        return data

    monkeypatch.setattr(kind, "read", counted)
    request = ExportRequest(
        ["memory://bucket/logs"], str(tmp_path / "t"), ExportOptions(file_bytes=2048)
    )
    report = export_logs(request, run_here)
    assert (report.rows, report.files > 20) == (3000, True)
    assert report.log_bytes <= fetched < report.log_bytes + 4096


def test_what_is_around_a_fetched_range_is_zeros(bucket):
    files, path = Files.of("memory://bucket/logs/orders-0/00000000000000000000.log")
    whole = bytes(files.map(path))
    view = files.map(path, 100, 200)
    assert len(view) == len(whole)
    assert bytes(view) == bytes(100) + whole[100:200] + bytes(len(whole) - 200)


def test_unknown_scheme_is_a_usage_error(tmp_path, capsys):
    assert kctl(["export", "carrier://pigeon/logs", "--out", str(tmp_path / "t")]) == 2
    assert "carrier" in capsys.readouterr().err
