"""Spark's own Kafka source for tests: its jars, in the version nearest to the installed pyspark.

`python -m tests.support.spark_kafka` fetches them from Maven Central; tests that need them are
skipped where they are not.
"""

import sys
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.support.apache_kafka import cache_dir

REPOSITORY = "https://repo1.maven.org/maven2"
# Spark's version to those of kafka-clients and commons-pool2 that its Kafka source depends on.
# A source reports data loss only on a Spark that has its logging classes: 4.0 cannot on 4.3.
RELEASES = {"4.0.0": ("3.9.0", "2.12.0"), "4.2.0": ("3.9.2", "2.13.1")}
# Delegation tokens, which no test uses: the classes only have to load.
_TOKENS = "4.0.0"


def release() -> str:
    """The newest known release that is not newer than the installed pyspark; else the oldest."""
    try:
        installed = _numbers(version("pyspark"))
    except PackageNotFoundError:
        return min(RELEASES, key=_numbers)
    known = [it for it in RELEASES if _numbers(it)[:2] <= installed[:2]]
    return max(known or [min(RELEASES, key=_numbers)], key=_numbers)


def jars(*, fetch: bool = False) -> list[Path] | None:
    """The jars for the installed Spark, or None if they are not there."""
    spark = release()
    home = cache_dir() / f"spark-sql-kafka-{spark}"
    found = []
    for path in _paths(spark):
        jar = home / path.rsplit("/", 1)[1]
        if not jar.exists():
            if not fetch:
                return None
            home.mkdir(parents=True, exist_ok=True)
            urllib.request.urlretrieve(f"{REPOSITORY}/{path}", jar.with_suffix(".part"))
            jar.with_suffix(".part").rename(jar)
        found.append(jar)
    return found


def _paths(spark: str) -> list[str]:
    clients, pool = RELEASES[spark]
    artifacts = [
        ("org/apache/spark", "spark-sql-kafka-0-10_2.13", spark),
        ("org/apache/spark", "spark-token-provider-kafka-0-10_2.13", _TOKENS),
        ("org/apache/kafka", "kafka-clients", clients),
        ("org/apache/commons", "commons-pool2", pool),
    ]
    return [f"{group}/{name}/{each}/{name}-{each}.jar" for group, name, each in artifacts]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


if __name__ == "__main__":
    sys.stdout.write(f"{jars(fetch=True)}\n")
