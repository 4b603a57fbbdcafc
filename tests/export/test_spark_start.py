"""What commands report if Spark or its executors do not start."""

import socket
import subprocess
import sys

import pytest

from kctl.cli.app import run as kctl
from kctl.cli.tables.spark import SparkOptions, spark_session
from kctl.errors import KctlError, UnreachableError, UsageError
from kctl.export.spark.runner import task_error
from kctl.runtime.real import spark_gateway, spark_master
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.spark_master import is_local, wait_for_master
from tests.export.log_files import batch_of, write_segment


@pytest.fixture
def listener():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        yield found


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def test_a_master_that_accepts_connections_is_not_waited_for(listener):
    said = []
    port = listener.getsockname()[1]
    wait_for_master(f"spark://{free_address()},127.0.0.1:{port}", said.append)
    wait_for_master("local[2]", said.append)
    wait_for_master("yarn", said.append)
    assert said == []


class CountingTime:
    """A second passes with every look at the clock, and none otherwise."""

    now_s = 0

    def monotonic(self):
        self.now_s += 1
        return self.now_s

    def sleep(self, seconds):
        pass


def test_a_master_that_cannot_be_reached_is_waited_for_and_named(monkeypatch):
    monkeypatch.setattr(spark_master, "time", CountingTime())
    said = []
    master = f"spark://{free_address()}"
    with pytest.raises(UnreachableError, match=f"{master} is unreachable: Connection refused"):
        wait_for_master(master, said.append, timeout_seconds=3)
    assert said == [f"waiting for Spark's master {master}: Connection refused"]


@pytest.mark.parametrize(
    "master", ["", "spak://x:1", "spark://", "spark://host", "spark://host:0", "spark://h:1,h",
               "local[", "host:7077"],
)  # fmt: skip
def test_invalid_master_url_is_rejected(master):
    with pytest.raises(UsageError, match="not the URL of a Spark master"):
        wait_for_master(master, print)


def test_only_local_masters_run_tasks_in_this_installation():
    masters = ("local", "local[*]", "local-cluster[1,1,1024]", "spark://h:1", "yarn")
    assert [is_local(it) for it in masters] == [True, True, False, False, False]


PREFIX = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 "
    "failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (host executor "
    "driver): "
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/no": error=2, No such file\n',
            'An executor cannot start Python: Cannot run program "/no": error=2, No such file',
        ),
        (
            (
                "Error from python worker:\n  Error while finding module specification for "
                "'pyspark.daemon' (ModuleNotFoundError: No module named 'pyspark')\n"
            ),
            "An executor lacks a package: No module named 'pyspark'",
        ),
        (
            (
                "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that "
                "in driver: 3.11, PySpark cannot run with different minor versions.\n"
            ),
            "The executors' Python is 3.9, but this command's is 3.11",
        ),
        (
            "Master removed our application: FAILED\n",
            "Spark: Master removed our application: FAILED",
        ),
        ("kctl.errors.StorageError: /x: full\n", "/x: full"),
    ],
)
def test_the_failure_of_an_executor_is_reported(text, said):
    assert str(task_error(RuntimeError(PREFIX + text))) == said


def test_an_unknown_failure_is_reported_with_sparks_reason():
    assert "Job aborted due to stage failure" in str(task_error(RuntimeError(PREFIX + "odd\n")))


@pytest.mark.spark
def test_a_missing_python_is_named(tmp_path):
    pytest.importorskip("pyspark")
    write_segment(RealDisk(), tmp_path / "orders-0", 0, [batch_of(0)])
    words = ["export", "--spark", "--master", "local[1]", tmp_path, "--out", tmp_path / "table"]
    ran = subprocess.run(
        [sys.executable, "-m", "kctl", *map(str, words), "--conf", "spark.pyspark.python=/nowhere"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert 'An executor cannot start Python: Cannot run program "/nowhere"' in ran.stderr


def test_a_command_rejects_an_invalid_master_with_status_2(tmp_path, capfd):
    pytest.importorskip("pyspark")
    write_segment(RealDisk(), tmp_path / "orders-0", 0, [batch_of(0)])
    words = ["export", "--spark", "--master", "spak://x", tmp_path, "--out", tmp_path / "table"]
    assert kctl(list(map(str, words))) == 2
    assert "--master is not the URL of a Spark master: spak://x" in capfd.readouterr().err


def test_a_command_names_a_master_that_cannot_be_reached(tmp_path, capfd, monkeypatch):
    pytest.importorskip("pyspark")
    write_segment(RealDisk(), tmp_path / "orders-0", 0, [batch_of(0)])
    monkeypatch.setattr(spark_master, "MASTER_TIMEOUT_SECONDS", 0.01)
    master = f"spark://{free_address()}"
    words = ["export", "--spark", "--master", master, tmp_path, "--out", tmp_path / "table"]
    assert kctl(list(map(str, words))) != 0
    said = capfd.readouterr().err
    assert f"waiting for Spark's master {master}" in said
    assert f"Spark's master {master} is unreachable: Connection refused" in said


def test_an_invalid_isolation_level_is_rejected_with_the_valid_ones(tmp_path, capfd):
    words = ["export", tmp_path, "--out", tmp_path / "table", "--isolation", "committed"]
    assert kctl(list(map(str, words))) == 2
    said = capfd.readouterr().err
    assert "read_uncommitted" in said
    assert "read_committed" in said


def test_the_first_start_with_a_java_stores_classes_and_later_ones_do_not(tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert spark_gateway.new_class_archive() == tmp_path / "cache" / "kctl"
    _, archive = spark_gateway._sharing_flags(java, spark_gateway._spark_home())
    archive[1].touch()
    assert spark_gateway.new_class_archive() is None


def test_a_command_says_what_the_first_start_prepares(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyspark")
    monkeypatch.setattr(spark_gateway, "new_class_archive", lambda: tmp_path)

    def failing(_pairs):
        # What the command has said before Spark starts.
        raise KctlError(capsys.readouterr().err)

    monkeypatch.setattr(spark_gateway, "start_spark_gateway", failing)
    session = spark_session(SparkOptions(spark=True))
    with pytest.raises(KctlError, match="starting Spark, for the first time with this Java"):
        session.__enter__()
