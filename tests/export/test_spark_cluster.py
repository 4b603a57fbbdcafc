"""On a standalone cluster: executors are processes without kctl until it is sent to them."""

import json
import os
import subprocess
from ast import literal_eval

import pytest

from kctl.cli.app import run as kctl
from tests.export.log_files import rows_of
from tests.support import spark_cluster
from tests.table_import.test_load import records_in, table_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("pyspark")
    with spark_cluster.standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """A Python without kctl."""
    python = spark_cluster.python_without_kctl(tmp_path_factory.mktemp("env") / "env")
    ran = subprocess.run(
        [python, "-c", "import numpy, kctl"], capture_output=True, check=False, cwd=python.parent
    )
    assert b"No module named 'kctl'" in ran.stderr
    return python


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """orders, 1500 records in three partitions."""
    directory = tmp_path_factory.mktemp("loaded")
    tables = directory / "tables"
    tables.mkdir()
    for number in range(3):
        table_of(tables / f"{number}.ndjson", 500, first=500 * number)
    words = ("import", tables, "-t", "orders", "-p", "3", "-y", "--into", directory / "logs")
    assert kctl(list(map(str, words))) == 0
    return directory / "logs"


# The other worker has nothing to do with it.
ONE_EXECUTOR = ("--conf", "spark.cores.max=1")


@pytest.fixture
def on_spark(cluster):
    """Run a command of kctl on the cluster's executors."""

    def run(*words, python, status=0):
        spark = ("--spark", "--master", cluster.url, "--conf", f"spark.pyspark.python={python}")
        ran = cluster.run("-m", "kctl", *words, *spark, "-o", "json")
        assert ran.returncode == status, cluster.why(ran)
        return ran

    return run


def test_executors_are_sent_kctl(on_spark, bare_python, cluster, logs, tmp_path):
    def relative(path):
        """As the driver sees it; executors run in other directories."""
        return os.path.relpath(path, cluster.directory)

    there = relative(tmp_path / "there")
    ran = on_spark("export", relative(logs), "--out", there, python=bare_python)
    (report,) = json.loads(ran.stdout)
    assert (report["rows"], report["files"]) == (1500, 3)
    assert kctl(["export", str(logs), "--out", str(tmp_path / "here")]) == 0
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")
    words = ("import", there, "-t", "orders", "-p", "3", "-y", "--into")
    on_spark(*words, relative(tmp_path / "logs"), python=bare_python)
    assert records_in(tmp_path / "logs") == records_in(logs)


def test_executors_run_in_a_packed_environment(on_spark, bare_python, logs, tmp_path):
    archive = spark_cluster.pack(bare_python.parent.parent)
    ran = on_spark(
        "export", logs, "--out", tmp_path / "table", "--conf", f"spark.archives={archive}#env",
        *ONE_EXECUTOR, python="env/bin/python",
    )  # fmt: skip
    assert json.loads(ran.stdout)[0]["rows"] == 1500


def test_missing_package_of_executors_is_reported_with_a_remedy(on_spark, logs, tmp_path):
    python = spark_cluster.python_without_kctl(tmp_path / "env")
    (python.parent.parent / "packages" / "pyarrow").unlink()
    words = ("export", logs, "--out", tmp_path / "table", *ONE_EXECUTOR)
    ran = on_spark(*words, python=python, status=1)
    assert "An executor lacks a package: No module named 'pyarrow'" in ran.stderr
    assert "spark.archives=env.tar.gz#env" in ran.stderr


FRAME = """
import sys
from pyspark.sql import SparkSession
from kctl.export.spark.source import KctlDataSource
from kctl.runtime.real.spark_gateway import zip_package

builder = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
spark = builder.config("spark.cores.max", "1").config("spark.log.level", "ERROR").getOrCreate()
spark.sparkContext.addPyFile(zip_package("kctl"))
spark.dataSource.register(KctlDataSource)
rows = spark.read.format("kctl").schema("partition int, offset bigint").load(sys.argv[2]).collect()
print(sorted((row.partition, row.offset) for row in rows))
"""


def test_data_source_of_a_session_that_sends_kctl(cluster, bare_python, logs):
    relative = os.path.relpath(logs, cluster.directory)
    ran = cluster.run("-c", FRAME, cluster.url, relative, PYSPARK_PYTHON=str(bare_python))
    assert ran.returncode == 0, cluster.why(ran)
    found = {partition: len(records) for partition, records in records_in(logs).items()}
    expected = [(partition, offset) for partition in found for offset in range(found[partition])]
    assert literal_eval(ran.stdout) == expected, cluster.why(ran)
