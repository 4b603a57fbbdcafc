"""kctl mirror verify --spark: Spark's tasks compare the partitions, with the same result."""

import json
import subprocess
import sys

import pytest

from kctl.runtime.real.disk import RealDisk
from tests.mirror.planted import write_planted

pytest.importorskip("pyspark")


@pytest.mark.spark
def test_spark_finds_the_planted_faults(tmp_path):
    planted = {
        partition: write_planted(RealDisk(), tmp_path, partition, 5_000, 14, partition)
        for partition in (0, 1)
    }
    words = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    words += ["--spark", "--master", "local[2]", "-o", "json"]
    # In a process of its own: the command ends its session, and other tests here may share one.
    command = [sys.executable, "-m", "kctl", "mirror", "verify", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    found = json.loads(ran.stdout)
    for row in found:
        offsets = sorted(each["source_offset"] for each in row["differences"])
        assert offsets == sorted(it.source_offset for it in planted[row["partition"]])
