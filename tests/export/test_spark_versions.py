"""The data source on other releases of Spark: the tests of reading and writing, batches and
streams, brokers and directories, run once more in a process that imports another pyspark.

By hand, as a release takes minutes: `KCTL_SPARK_VERSIONS=4.0.2,4.1.4 pytest -m spark
tests/export/test_spark_versions.py`. pip fetches a release once, into the cache of the tests.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.apache_kafka import cache_dir

pytestmark = [pytest.mark.spark, pytest.mark.slow]
VERSIONS = [it for it in os.environ.get("KCTL_SPARK_VERSIONS", "").split(",") if it]
ROOT = Path(__file__).parents[2]
TESTS = (
    "test_spark_guide_examples.py", "test_spark_brokers.py", "test_spark_write.py",
    "test_spark_filters.py", "test_spark_secured.py", "test_spark.py",
)  # fmt: skip


def pyspark(version):
    """The directory to import this release from."""
    directory = cache_dir() / f"pyspark-{version}"
    if not directory.exists():
        part = directory.with_suffix(f".part-{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", part]
        subprocess.run([*command, f"pyspark=={version}"], check=True)
        part.rename(directory)
    return directory


@pytest.mark.skipif(not VERSIONS, reason="KCTL_SPARK_VERSIONS names no release")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_reads_and_writes(version):
    paths = [str(pyspark(version)), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    fetched = [sys.executable, "-m", "tests.support.spark_kafka"]
    subprocess.run(fetched, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    tests = [f"tests/export/{name}" for name in TESTS]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "spark", *tests],
        env=environment, cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-5000:]
