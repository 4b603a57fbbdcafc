"""A broker of Jafka, a Kafka 0.7 in Java, as a process."""

import signal
import socket
import subprocess
from pathlib import Path

from tests.support import apache_kafka
from tests.support.waiting import wait_for

VERSION = "3.0.6"
POM = f"""<project>
<modelVersion>4.0.0</modelVersion><groupId>kctl</groupId><artifactId>jafka</artifactId>
<version>1</version>
<dependencies><dependency>
<groupId>io.jafka</groupId><artifactId>jafka</artifactId><version>{VERSION}</version>
</dependency></dependencies>
</project>"""
END_S = 60


def java_with_jafka() -> list[str] | None:
    """The command line before a class or a source file; None without Maven."""
    folder = apache_kafka.jars_of(f"jafka-{VERSION}", POM, fetch=True)
    return None if folder is None else ["java", "-Xmx256M", "-cp", f"{folder}/*"]


class JafkaBroker:
    """Each start listens on another port and keeps the data."""

    def __init__(self, java: list[str], directory: Path, **settings: object) -> None:
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._java = java
        self._directory = directory
        self._settings = {
            "brokerid": 0,
            "hostname": "127.0.0.1",
            "log.dir": directory / "logs",
            "enable.zookeeper": "false",
            "log.flush.interval": 1,
            **settings,
        }

    def start(self) -> "JafkaBroker":
        """Run it, and wait until it listens."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.port = apache_kafka.free_port()
        path, output = self._directory / "server.properties", self._directory / "output"
        settings = {**self._settings, "port": self.port}
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with output.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._java, "io.jafka.Jafka", path],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        wait_for(lambda: listens(self.port), lambda: output.read_text()[-2000:])
        return self

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(END_S)
            self.process = None


def listens(port: int) -> bool:
    """Whether a server accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
