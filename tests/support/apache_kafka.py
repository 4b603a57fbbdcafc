"""Apache Kafka for tests: fetches its jars with Maven, runs its tools and starts its brokers.

`python tests/support/apache_kafka.py 2.7.2` fetches the jars of that version and prints their
directory; several versions may be named. Tests use the same directory, and are skipped with a
reason where Java or Maven is missing.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kctl.tests</groupId><artifactId>kafka</artifactId><version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
    {dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId>"
    "<version>{2}</version></dependency>"
)
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
    dependencies = [DEPENDENCY.format(*it) for it in _dependencies(version)]
    pom = POM.format(version=version, dependencies="\n    ".join(dependencies))
    return jars_of(f"kafka-{version}", pom, fetch=fetch)


def _dependencies(version: str) -> Iterator[tuple[str, str, str]]:
    """Group, artifact and version of what a broker and its tools need."""
    release = tuple(map(int, version.split(".")))
    scala = "2.13" if release >= (2, 4) else "2.11"
    yield "org.apache.kafka", f"kafka_{scala}", version
    if release >= (0, 9):
        yield "org.apache.kafka", "kafka-tools", version
    if (0, 9) <= release < (2,):
        # A part of Java until Java 11.
        yield "javax.xml.bind", "jaxb-api", "2.3.1"
    if release >= (3,):
        yield "org.slf4j", "slf4j-reload4j", "1.7.36"
    else:
        yield "org.slf4j", "slf4j-log4j12", "1.7.30"


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
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ApacheBroker:
    """One broker of Apache Kafka `version`; data and port outlive `kill`, `stop` and `launch`.

    `prefix` precedes the command line, for a broker in another network namespace at `host`."""

    def __init__(
        self, directory: Path, zookeeper: str, *, broker_id=0, port=None, settings=None,
        host="127.0.0.1", prefix=(), version="2.7.2",
    ) -> None:  # fmt: skip
        self.version = version
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
        """Start the process, without waiting until it serves."""
        config = self.write_config()
        java = java_command(self.version, "kafka.Kafka", level="INFO", heap="512M")
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._prefix, *java, str(config)], stdout=log, stderr=log, start_new_session=True
            )
        return self

    def write_config(self):
        """Write server.properties and return its path."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={it}\n" for key, it in self._properties.items()))
        return config

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
    for wanted in sys.argv[1:] or ["2.7.2"]:
        found = libs(wanted, fetch=True)
        if found is None:
            sys.exit("Maven is needed to fetch Apache Kafka's jars")
        sys.stdout.write(f"{found}\n")
