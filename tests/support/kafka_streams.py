"""Kafka Streams 2.7.2 for tests: its jars, and programs that run on them.

`python -m tests.support.kafka_streams` fetches them with Maven; tests that need them are skipped
where they are not.
"""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.support import apache_kafka

VERSION = "2.7.2"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kctl.tests</groupId><artifactId>kafka-streams</artifactId><version>{VERSION}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId>
      <version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""
PROGRAM = Path(__file__).parent / "java" / "WordCount.java"


def jars(*, fetch: bool = False) -> Path | None:
    """The folder with the jars, or None if they are not there."""
    return apache_kafka.jars_of(f"kafka-streams-{VERSION}", POM, fetch=fetch)


@contextmanager
def word_count(log: Path, address, source, target, application, directory, guarantee):
    """The program, until it is killed or the block ends; yields its process."""
    command = apache_kafka.java_command(VERSION, str(PROGRAM), level="WARN", more_jars=jars())
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [*command, address, source, target, application, str(directory), guarantee],
            stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.stdout.write(f"{jars(fetch=True)}\n")
