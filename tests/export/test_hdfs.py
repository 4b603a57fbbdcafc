"""Logs and tables on a real HDFS of one node, through hdfs-native."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment
from tests.support.lake_servers import lake_server

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("hdfs_native")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[2]


def kctl_export(*words):
    return subprocess.run(
        [sys.executable, "-m", "kctl", "export", *map(str, words)], capture_output=True, text=True,
        check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_tables_and_logs_on_hdfs(tmp_path):
    logs = tmp_path / "logs"
    write_segment(RealDisk(), logs / "orders-0", 0, [batch_of(10 * n) for n in range(5)])
    with lake_server("hdfs", tmp_path / "server") as url:
        storage, _ = fsspec.core.url_to_fs(url)
        by_date = ("--partition-by", "topic,date")

        def exported(*words):
            ran = kctl_export(*words)
            assert ran.returncode == 0, ran.stderr

        def offsets(place):
            found = []
            for path in storage.find(place):
                if path.endswith(".parquet"):
                    with storage.open(path) as file:
                        found += pyarrow.parquet.read_table(file, columns=["offset"])["offset"]
            return sorted(it.as_py() for it in found)

        exported(logs, "--out", f"{url}/tables/orders", *by_date)
        write_segment(RealDisk(), logs / "orders-0", 50, [batch_of(50)])
        storage.put(str(logs), "/logs", recursive=True)
        # The rest, from a log that is on HDFS, too.
        exported(f"{url}/logs", "--out", f"{url}/tables/orders", *by_date)
        assert offsets("/tables/orders") == list(range(60))
        exported(logs, "--out", f"{url}/tables/orders", *by_date, "--retention", "30d")
        assert offsets("/tables/orders") == []

        refused = kctl_export(logs, "--out", f"{url}/tables/berg", "-f", "iceberg")
        assert refused.returncode == 2
        assert "pyiceberg needs Hadoop's libhdfs" in refused.stderr
        assert not storage.exists("/tables/berg")
        pytest.importorskip("deltalake")
        exported(logs, "--out", f"{url}/tables/delta", "-f", "delta")
        assert offsets("/tables/delta") == list(range(60))
        assert len(storage.find("/tables/delta/_delta_log")) == 2
