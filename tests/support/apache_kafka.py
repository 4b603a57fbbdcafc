"""Apache Kafka for tests: fetches its jars with Maven, runs its tools and starts its brokers.

`python tests/support/apache_kafka.py 2.7.2` fetches and prints the folder with the jars. Tests take
them from there too; without Java or Maven they are skipped with a reason.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kctl.tests</groupId><artifactId>kafka</artifactId><version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{version}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>{slf4j}</artifactId>
      <version>{slf4j_version}</version></dependency>
  </dependencies>
</project>
"""
LOG4J = """log4j.rootLogger={level}, A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.Target=System.err
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
START_TIMEOUT_S = 60
# Starts fast, runs slowly.
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def cache_dir() -> Path:
    """Where jars are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "kctl-tests"


def libs(version: str = "2.7.2", *, fetch: bool = False) -> Path | None:
    """The folder with the jars of Apache Kafka `version`, or None if they are not there."""
    given = os.environ.get("KAFKA_LIBS") if version == "2.7.2" else None
    if given:
        return Path(given)
    is_old = version.startswith("2.")
    pom = POM.format(
        version=version,
        slf4j="slf4j-log4j12" if is_old else "slf4j-reload4j",
        slf4j_version="1.7.30" if is_old else "1.7.36",
    )
    return jars_of(f"kafka-{version}", pom, fetch=fetch)


def jars_of(name: str, pom: str, *, fetch: bool) -> Path | None:
    """The folder with all jars that `pom` depends on, or None if they are not there."""
    home = cache_dir() / name
    if (home / "complete").exists():
        return home / "libs"
    if not fetch or not shutil.which("mvn"):
        return None
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(pom)
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={home / 'libs'}"],
        cwd=home,
        check=True,
        stdout=sys.stderr,
    )
    (home / "complete").touch()
    return home / "libs"


def java_command(
    version: str, main_class: str, *, level: str = "WARN", heap: str = "256M", flags=SMALL_JVM,
    more_jars: Path | None = None,
):  # fmt: skip
    """The command line that runs a class of Apache Kafka `version`."""
    folder = libs(version)
    if folder is None:
        raise RuntimeError(f"the jars of Apache Kafka {version} are not there")
    settings = cache_dir() / f"log4j-{level}.properties"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(LOG4J.format(level=level))
    return [
        "java", f"-Xmx{heap}", *flags,
        f"-Dlog4j.configuration=file:{settings}",
        "-cp", f"{folder}/*" if more_jars is None else f"{folder}/*:{more_jars}/*", main_class,
    ]  # fmt: skip


def run_tool(main_class, *arguments, version="2.7.2", stdin=None, timeout_s=60, check=True):
    """Run one of Apache Kafka's tools to its end; the CompletedProcess with text output."""
    return subprocess.run(
        [*java_command(version, main_class), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=check,
    )


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ApacheBroker:
    """One broker of Apache Kafka 2.7.2; `kill` and `start` keep the data and the port.

    `prefix`: what its command line begins with, where `host` is another network's."""

    def __init__(
        self, directory: Path, zookeeper: str, *, broker_id=0, port=None, settings=None,
        host="127.0.0.1", prefix=(),
    ) -> None:  # fmt: skip
        self.directory = directory
        self.host, self.port = host, port or free_port()
        self.process: subprocess.Popen | None = None
        self._prefix = prefix
        self._properties = {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": directory / "logs",
            "zookeeper.connect": zookeeper,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(settings or {}),
        }

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def launch(self):
        """Run it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={it}\n" for key, it in self._properties.items()))
        java = java_command("2.7.2", "kafka.Kafka", level="INFO", heap="512M")
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._prefix, *java, str(config)], stdout=log, stderr=log, start_new_session=True
            )
        return self

    def wait_until_ready(self):
        wait_for_metadata(self.host, self.port, self.process, self.directory / "server.log")
        return self

    def stop(self):
        stop(self.process)

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def apache_broker(directory: Path, zookeeper: str, **options):
    """A running broker of Apache Kafka 2.7.2; yields its address."""
    broker = ApacheBroker(directory, zookeeper, **options).launch()
    try:
        broker.wait_until_ready()
        yield broker.address
    finally:
        broker.stop()


def stop(process: subprocess.Popen, timeout_s: int = 30) -> None:
    """SIGTERM, and SIGKILL if that does not help."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_metadata(host: str, port: int, process, log: Path | None = None) -> None:
    """Until the broker answers Metadata with a controller."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if has_controller(host, port):
                return
        except (OSError, struct.error):
            pass
        time.sleep(0.05)
    words = log.read_text()[-3000:] if log and log.exists() else ""
    raise RuntimeError(f"no broker on {host}:{port}\n{words}")


def has_controller(host: str, port: int) -> bool:
    """Ask with Metadata v1 and no topics whether there is a controller."""
    body = struct.pack(">hhih", 3, 1, 7, 5) + b"probe" + struct.pack(">i", 0)
    with socket.create_connection((host, port), 5) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as stream:
            answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    position, count = 8, struct.unpack_from(">i", answer, 4)[0]
    for _ in range(count):
        position += 4
        position += 2 + struct.unpack_from(">h", answer, position)[0] + 4
        position += 2 + max(struct.unpack_from(">h", answer, position)[0], 0)
    # Then the cluster id is not in v1: the controller's id follows.
    return count > 0 and struct.unpack_from(">i", answer, position)[0] >= 0


if __name__ == "__main__":
    found = libs(sys.argv[1] if len(sys.argv) > 1 else "2.7.2", fetch=True)
    if found is None:
        sys.exit("Maven is needed to fetch Apache Kafka's jars")
    sys.stdout.write(f"{found}\n")
