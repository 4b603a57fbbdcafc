"""kctl mirror verify --spark: Spark's tasks compare the partitions, with the same result."""

import json

import pytest

from kctl.cli.app import run as kctl
from kctl.runtime.real.disk import RealDisk
from tests.mirror.planted import write_planted

pytest.importorskip("pyspark")


@pytest.mark.spark
def test_spark_finds_the_planted_faults(tmp_path, capfdbinary):
    planted = {
        partition: write_planted(RealDisk(), tmp_path, partition, 5_000, 14, partition)
        for partition in (0, 1)
    }
    words = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    words += ["--spark", "--master", "local[2]", "-o", "json"]
    assert kctl(["mirror", "verify", *map(str, words)]) == 1
    found = json.loads(capfdbinary.readouterr().out)
    for row in found:
        offsets = sorted(each["source_offset"] for each in row["differences"])
        assert offsets == sorted(it.source_offset for it in planted[row["partition"]])
