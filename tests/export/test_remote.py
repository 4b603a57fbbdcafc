"""Logs and tables on file systems of fsspec: the same rows, and only the needed bytes fetched."""

import pyarrow as pa
import pytest

from kctl.arrow_files import files as files_module
from kctl.arrow_files.files import Files, _bounded
from kctl.cli.app import run as kctl
from kctl.errors import StorageError
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


def test_parameters_of_a_url_reach_the_tasks():
    given = "gs://anonymous@bucket/logs?scheme=http&endpoint_override=127.0.0.1%3A4443"
    files, path = Files.of(given)
    assert path == "bucket/logs"
    of_a_segment = files.url(f"{path}/orders-0/0.log")
    assert of_a_segment == given.replace("/logs?", "/logs/orders-0/0.log?")
    assert Files.of(of_a_segment)[1] == "bucket/logs/orders-0/0.log"
    assert files.location(path) == "gs://anonymous@bucket/logs"


def test_googles_client_does_not_repeat_requests_for_a_quarter_of_an_hour():
    assert _bounded("gs://bucket/t", "gs") == "gs://bucket/t?retry_limit_seconds=60"
    assert _bounded("gs://b/t?scheme=http", "gs").endswith("?scheme=http&retry_limit_seconds=60")
    chosen = "gs://b/t?retry_limit_seconds=5"
    assert _bounded(chosen, "gs") == chosen
    assert _bounded("s3://bucket/t", "s3") == "s3://bucket/t"


@pytest.mark.parametrize("words", [(), ("-f", "iceberg")])
def test_hdfs_without_a_client_is_an_error_that_names_both(tmp_path, capsys, monkeypatch, words):
    if words:
        pytest.importorskip("pyiceberg")
    monkeypatch.setattr(files_module, "find_spec", lambda _name: None)
    write_segment(RealDisk(), tmp_path / "orders-0", 0, [batch_of(0)])
    words = ["export", str(tmp_path), "--out", "hdfs://127.0.0.1:1/t", *words]
    assert kctl(words) in (1, 2)
    said = capsys.readouterr().err
    assert "hdfs" in said.partition("hint: ")[2]
    assert "ARROW_LIBHDFS_DIR" in said
    # Arrow names a hundred places where it has looked.
    assert len(said) < 800


def test_an_error_of_arrow_names_the_path():
    class Broken:
        def get_file_info(self, _path):
            raise pa.ArrowException("the account refuses this")

    with pytest.raises(StorageError, match="bucket/t: the account refuses this"):
        Files(Broken()).find("bucket/t")
