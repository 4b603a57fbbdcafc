"""On executors that are processes of their own: kctl is sent to them, and tasks come back."""

import json
import subprocess
import sys

import pytest

from tests.bulk_load.test_load import records_in, table_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CLUSTER = "local-cluster[2,1,1024]"


def kctl(*words, cwd):
    """Run where the executors cannot find kctl beside them."""
    ran = subprocess.run(
        [sys.executable, "-m", "kctl", *map(str, words), "-o", "json"],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_import_and_export_on_a_cluster_are_those_without(tmp_path):
    pytest.importorskip("pyspark")
    tables = tmp_path / "tables"
    tables.mkdir()
    for number in range(3):
        table_of(tables / f"{number}.ndjson", 500, first=500 * number)
    words = ("import", tables, "-t", "orders", "-p", "3", "-y", "--into")
    spark = ("--spark", "--master", CLUSTER)
    kctl(*words, tmp_path / "here", cwd=tmp_path)
    loaded = kctl(*words, tmp_path / "there", *spark, cwd=tmp_path)
    assert sum(row["rows"] for row in loaded) == 1500
    assert records_in(tmp_path / "there") == records_in(tmp_path / "here")
    (report,) = kctl("export", tmp_path / "there", "--out", tmp_path / "t", *spark, cwd=tmp_path)
    assert (report["rows"], report["files"]) == (1500, 3)
