"""Spark's own Kafka source for tests: its jars.

`python -m tests.support.spark_kafka` fetches them from Maven Central; tests that need them are
skipped where they are not.
"""

import sys
import urllib.request
from pathlib import Path

from tests.support.apache_kafka import cache_dir

REPOSITORY = "https://repo1.maven.org/maven2"
_TOKENS = "org/apache/spark/spark-token-provider-kafka-0-10_2.13"
JARS = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.0.0/spark-sql-kafka-0-10_2.13-4.0.0.jar",
    f"{_TOKENS}/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org/apache/kafka/kafka-clients/3.9.0/kafka-clients-3.9.0.jar",
    "org/apache/commons/commons-pool2/2.12.0/commons-pool2-2.12.0.jar",
)


def jars(*, fetch: bool = False) -> list[Path] | None:
    """The jars for Spark 4.0.0, or None if they are not there."""
    home = cache_dir() / "spark-sql-kafka-4.0.0"
    found = []
    for path in JARS:
        jar = home / path.rsplit("/", 1)[1]
        if not jar.exists():
            if not fetch:
                return None
            home.mkdir(parents=True, exist_ok=True)
            urllib.request.urlretrieve(f"{REPOSITORY}/{path}", jar.with_suffix(".part"))
            jar.with_suffix(".part").rename(jar)
        found.append(jar)
    return found


if __name__ == "__main__":
    sys.stdout.write(f"{jars(fetch=True)}\n")
