"""An Iceberg table in a REST catalog, Iceberg's own, and in a Hive Metastore has each row once."""

import re

import pytest

from kctl.cli.app import run as kctl
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment
from tests.support.lake_servers import lake_server

catalogs = pytest.importorskip("pyiceberg.catalog")
config = pytest.importorskip("pyiceberg.utils.config")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("kind", ["rest", "hive"])
def test_runs_are_commits_of_the_catalogs_table(kind, tmp_path, capsys, monkeypatch):
    directory = tmp_path / "logs" / "orders-0"

    def export(uri, *more):
        words = ["export", str(directory), "-f", "iceberg", "--catalog", uri, *more]
        words += ["--partition-by", "topic,date", "--catalog-table", "sales.orders"]
        return kctl([*words, "--out", str(tmp_path / "table")])

    def offsets(uri):
        table = catalogs.load_catalog("any", uri=uri).load_table("sales.orders")
        return sorted(table.scan().to_arrow()["offset"].to_pylist())

    write_segment(RealDisk(), directory, 0, [batch_of(0)])
    with lake_server(kind, tmp_path / "server") as uri:
        if kind == "hive":
            pytest.importorskip("thrift")
            assert export(uri) == 2
            (hint,) = re.findall("set (.*)=true", capsys.readouterr().err)
            monkeypatch.setenv(hint, "true")
            monkeypatch.setattr(catalogs, "_ENV_CONFIG", config.Config())
        assert export(uri) == 0
        assert offsets(uri) == list(range(10))
        write_segment(RealDisk(), directory, 10, [batch_of(10)])
        for _ in range(2):
            assert export(uri) == 0
            assert offsets(uri) == list(range(20))
    write_segment(RealDisk(), directory, 20, [batch_of(20)])
    assert export(uri) == 1
    assert "hint: check its address" in capsys.readouterr().err
    # The catalog is back, at another address.
    with lake_server(kind, tmp_path / "server") as uri:
        assert export(uri) == 0
        assert offsets(uri) == list(range(30))
        assert export(uri, "--retention", "30d") == 0
        assert offsets(uri) == []
        assert export(uri) == 0
        assert offsets(uri) == []
