"""kctl export --spark on YARN: a resource manager and a node, whose containers are executors.

A minute or two, so `KCTL_YARN=1` asks for it.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, rows_of, write_segment
from tests.support.lake_servers import lake_server

pytestmark = [
    pytest.mark.spark, pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("KCTL_YARN"), reason="KCTL_YARN=1 runs it"),
]  # fmt: skip
ROOT = Path(__file__).parents[2]


def test_executors_are_containers(tmp_path):
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("pyspark is not installed")
    jars = Path(spec.origin).parent / "jars"
    for partition in range(3):
        directory = tmp_path / "logs" / f"orders-{partition}"
        write_segment(RealDisk(), directory, 0, [batch_of(10 * n) for n in range(5)])
    settings = {
        "spark.yarn.jars": f"local:{jars}/*", "spark.yarn.stagingDir": f"file://{tmp_path}/staging",
        "spark.executor.instances": "1", "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "512m", "spark.pyspark.python": sys.executable,
    }  # fmt: skip
    with lake_server("yarn", tmp_path / "server") as conf:
        words = [sys.executable, "-m", "kctl", "export", "--spark", "--master", "yarn"]
        words += [f"--conf={name}={value}" for name, value in settings.items()]
        ran = subprocess.run(
            [*words, "logs", "--out", "table"], cwd=tmp_path, check=False, capture_output=True,
            text=True, env=os.environ | {
                "HADOOP_CONF_DIR": conf, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    rows = rows_of(tmp_path / "table", ("topic", "partition", "offset"))
    assert rows == [("orders", partition, n) for partition in range(3) for n in range(50)]
