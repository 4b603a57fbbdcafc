"""Three brokers with their metadata store, as processes: `kctl serve --brokers 3`, and Apache Kafka
2.7.2 on a ZooKeeper, whose brokers are started together as soon as it answers."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.servers import (
    KAFKA_VERSION,
    SERVER_FLAGS,
    START_TIMEOUT_S,
    Client,
    stop_process,
)
from kctl.protocol.messages.metadata import MetadataRequest
from tests.support.apache_kafka import free_port, java_command

# The ids and, in this order, the ports of a cluster's brokers.
BROKERS = (1, 2, 3)


class Cluster:
    """Three brokers that can be stopped, killed and started again, each on its own."""

    title = ""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = settings or {}
        self.ports: dict[int, int] = {}

    def start(self) -> float:
        """Start all; seconds until every broker names a controller and three brokers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        self._start()
        self.wait_until_ready()
        return time.perf_counter() - begin

    def wait_until_ready(self) -> None:
        """Until every broker names a controller and three brokers."""
        deadline = time.perf_counter() + START_TIMEOUT_S
        waiting = list(self.ports.values())
        while waiting := [port for port in waiting if not is_ready(port)]:
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{self.title}: no broker on {waiting}")
            time.sleep(0.005)

    def _start(self) -> None:
        raise NotImplementedError

    def pids(self) -> list[int]:
        """All its processes."""
        raise NotImplementedError

    def stop_broker(self, broker: int) -> None:
        """In good order; it stays down."""
        raise NotImplementedError

    def kill_broker(self, broker: int) -> None:
        """Kill -9; it stays down."""
        raise NotImplementedError

    def start_broker(self, broker: int) -> None:
        """Again, in its directory; does not wait for it."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop everything."""
        raise NotImplementedError

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class KctlCluster(Cluster):
    """`kctl serve --brokers 3`."""

    title = "kctl"
    _supervisor: "subprocess.Popen[bytes]"

    def _start(self) -> None:
        first = free_port()
        self.ports = {broker: first + index for index, broker in enumerate(BROKERS)}
        settings = [
            word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")
        ]
        self._supervisor = process(
            self.directory, *_kctl("serve"), "--brokers", str(len(BROKERS)), "--port", str(first),
            "--data-dir", str(self._data), *settings,
        )  # fmt: skip

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def pids(self) -> list[int]:
        pid = self._supervisor.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def stop_broker(self, broker: int) -> None:
        self._ask("stop", str(broker))

    def kill_broker(self, broker: int) -> None:
        self._ask("kill", str(broker))

    def start_broker(self, broker: int) -> None:
        self._ask("restart", str(broker))

    def _ask(self, *words: str) -> object:
        command = [*_kctl("broker", *words), "--data-dir", str(self._data), "-o", "json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    def close(self) -> None:
        stop_process(self._supervisor)


class ApacheCluster(Cluster):
    """ZooKeeper, and three brokers with the flags of their start scripts."""

    title = f"Apache Kafka {KAFKA_VERSION}"

    def _start(self) -> None:
        self._zookeeper_port = free_port()
        self.ports = {broker: free_port() for broker in BROKERS}
        config = self.directory / "zoo.cfg"
        config.write_text(
            f"dataDir={self.directory / 'zookeeper'}\nclientPort={self._zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
        )
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = java_command(KAFKA_VERSION, main_class, heap="512M", flags=SERVER_FLAGS)
        self._zookeeper = process(self.directory, *command, str(config))
        self._brokers: dict[int, subprocess.Popen[bytes]] = {}
        while not _answers(self._zookeeper_port):
            time.sleep(0.01)
        for broker in BROKERS:
            self.start_broker(broker)

    def pids(self) -> list[int]:
        return [self._zookeeper.pid, *(it.pid for it in self._brokers.values())]

    def stop_broker(self, broker: int) -> None:
        stop_process(self._brokers.pop(broker))

    def kill_broker(self, broker: int) -> None:
        found = self._brokers.pop(broker)
        found.send_signal(signal.SIGKILL)
        found.wait()

    def start_broker(self, broker: int) -> None:
        settings = {
            "broker.id": broker,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker]}",
            "log.dirs": self.directory / f"logs-{broker}",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            **self.settings,
        }
        path = self.directory / f"server-{broker}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        flags = ("-Xms1G", *SERVER_FLAGS)
        command = java_command(KAFKA_VERSION, "kafka.Kafka", level="INFO", heap="1G", flags=flags)
        self._brokers[broker] = process(self.directory, *command, str(path))

    def close(self) -> None:
        for broker in list(self._brokers):
            self.stop_broker(broker)
        stop_process(self._zookeeper)


def process(directory: Path, *command: str) -> "subprocess.Popen[bytes]":
    """Start it; what it says goes to a file."""
    with (directory / "output").open("ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def is_ready(port: int) -> bool:
    """Whether the broker there knows a controller and all brokers."""
    try:
        with contextlib.closing(Client(port)) as client:
            answer = client.ask(MetadataRequest(topics=[]), 8)
    except (OSError, ConnectionError):
        return False
    return answer.controller_id >= 0 and len(answer.brokers) == len(BROKERS)


def proportional_mb(pid: int) -> float:
    """A process's memory in 10^6 bytes; of pages shared by n processes an n-th."""
    for line in _lines(pid, "smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("no Pss")


def cpu_s(pid: int) -> float:
    """Processor time used so far."""
    fields = next(_lines(pid, "stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _lines(pid: int, name: str) -> Iterator[str]:
    yield from Path(f"/proc/{pid}/{name}").read_text().splitlines()


def _answers(port: int) -> bool:
    """Whether a ZooKeeper serves."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as peer:
        peer.sendall(b"srvr")
        return b"Mode" in peer.recv(1000)
    return False


def _kctl(*words: str) -> list[str]:
    return [sys.executable, "-m", "kctl", *words]
