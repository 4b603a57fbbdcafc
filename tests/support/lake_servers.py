"""Servers that hold or run lakes, each a JVM of its own: a REST catalog of Iceberg, a Hive
Metastore, HDFS and YARN.

`python -m tests.support.lake_servers` fetches their jars with Maven, except those of the Hive
Metastore, which pyspark has; tests are skipped where what they need is missing.
"""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import apache_kafka

PROGRAMS = Path(__file__).parent / "java"
# Group, artifact, version, and what comes after it in Maven's notation.
ARTIFACTS = [
    ("org.apache.iceberg", "iceberg-core", "1.7.1", ""),
    # The catalog's side of the protocol.
    ("org.apache.iceberg", "iceberg-core", "1.7.1", "<classifier>tests</classifier>"),
    ("org.eclipse.jetty", "jetty-servlet", "11.0.24", ""),
    ("org.xerial", "sqlite-jdbc", "3.47.0.0", ""),
    ("org.apache.hadoop", "hadoop-client-api", "3.5.0", ""),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.5.0", ""),
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0", ""),
    # Of YARN's cluster for tests, and of its resource manager.
    ("org.junit.jupiter", "junit-jupiter-api", "5.11.4", ""),
    ("ch.qos.reload4j", "reload4j", "1.2.25", ""),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1", ""),
]
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kctl.tests</groupId><artifactId>lakes</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    {}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>"
    "<version>{}</version>{}</dependency>"
)


def jars(*, fetch: bool = False) -> Path | None:
    """The folder with the jars, or None if they are not there."""
    pom = POM.format("\n    ".join(DEPENDENCY.format(*it) for it in ARTIFACTS))
    return apache_kafka.jars_of("lakes", pom, fetch=fetch)


def _jars_of_spark() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    return None if spec is None else Path(str(spec.origin)).parent / "jars"


@contextmanager
def lake_server(kind: str, directory: Path) -> Iterator[str]:
    """Yield the address of a `rest` catalog, a `hive` metastore or an `hdfs` name node, or the
    folder of a `yarn`'s configuration; its files are in `directory`."""
    is_hive = kind == "hive"
    libraries = _jars_of_spark() if is_hive else jars()
    if libraries is None or not shutil.which("java"):
        pytest.skip("no Java, or no jars: python -m tests.support.lake_servers")
    directory.mkdir(parents=True, exist_ok=True)
    words = [PROGRAMS / "HiveMetastore.java"] if is_hive else [PROGRAMS / "LakeServers.java", kind]
    words.append(directory)
    if kind in ("hive", "rest"):
        words.append(apache_kafka.free_port())
    java = ["java", "-Xmx512m", *apache_kafka.SMALL_JVM, "-cp", f"{libraries}/*"]
    with (directory / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [*java, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            cwd=directory, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("ready "):
                yield line.split()[1]
                break
        else:
            raise RuntimeError(f"{kind}: {(directory / 'stderr').read_text()[-3000:]}")
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    sys.stdout.write(f"{jars(fetch=True)}\n")
