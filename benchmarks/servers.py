"""The two brokers under test as processes: `kctl serve`, and Apache Kafka 2.7.2 with ZooKeeper.

Apache Kafka runs as its own start script runs it: server VM, G1, a heap of 1 GB. Both brokers have
their defaults but for what a lone broker needs, and for how soon the files of deleted topics go.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kctl.protocol.connection import ClientConnection
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.messages.offset_fetch import OffsetFetchRequest
from kctl.protocol.schema import Message
from tests.support.apache_kafka import free_port, has_controller, java_command

KAFKA_VERSION = "2.7.2"
# bin/kafka-run-class.sh of 2.7.2.
SERVER_FLAGS = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
REQUEST_TIMEOUT_S = 120
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Client:
    """One blocking connection that speaks kctl's own codec, the same to both brokers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), REQUEST_TIMEOUT_S)
        self._connection = ClientConnection("benchmark")

    def ask(self, request: Message, version: int) -> Any:
        """The answer."""
        _, parts = self._connection.send_request(request, version)
        self._socket.sendall(b"".join(parts))
        while (event := self._connection.next_event()) is None:
            count = self._socket.recv_into(self._connection.get_buffer())
            if not count:
                raise ConnectionError("the broker closed the connection")
            self._connection.buffer_updated(count)
        return event.body

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM; SIGKILL if that takes too long."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """A broker process; another one may follow in the same directory.

    `settings`, if any, include `listeners`, one of which is PLAINTEXT at `port`."""

    title = ""
    # Where it is started; None: here.
    working_directory: Path | None = None

    def __init__(
        self, directory: Path, *, port: int = 0, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.settings = settings or {}
        self.started_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """What starts it."""
        raise NotImplementedError

    def fresh(self, directory: Path) -> Self:
        """Another broker of the same kind without settings, on an empty directory, not started
        yet."""
        return type(self)(directory)

    @contextmanager
    def connections(self, _count: int) -> Iterator[Sequence[int]]:
        """File descriptors of connections that the load generator has to use; none: it opens its
        own."""
        yield ()

    def tool(self, name: str) -> list[str]:
        """The command line of `list` or `help` of topics."""
        raise NotImplementedError

    def start(self) -> None:
        """Run it until it answers Metadata with a controller; `started_s` is how long it took."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with (self.directory / "output").open("ab") as output:
            begin = time.perf_counter()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.working_directory,
            )  # fmt: skip
        while not self._answers():
            self.started_s = time.perf_counter() - begin
            if self._process.poll() is not None or self.started_s > START_TIMEOUT_S:
                words = (self.directory / "output").read_text()[-3000:]
                raise RuntimeError(f"{self.title} did not start:\n{words}")
            time.sleep(0.002)
        self.started_s = time.perf_counter() - begin

    def write_properties(self, properties: Mapping[str, str]) -> Path:
        """The file with settings."""
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _answers(self) -> bool:
        try:
            return has_controller("127.0.0.1", self.port)
        except (OSError, struct.error):
            return False

    def stop(self) -> None:
        """SIGTERM; SIGKILL if that takes too long."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        stop_process(process)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def open_files(self) -> int:
        """How many files and sockets it has open now."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor time used so far, user and system."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def resident_mb(self) -> float:
        """Resident memory now, in 10^6 bytes."""
        for line in self._proc("status").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError("no VmRSS")

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text()

    # Topics

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create it and wait until every partition is led."""
        with contextlib.closing(Client(self.port)) as client:
            create_topic(client, name, partitions)
            while leaders(client, name) < partitions:
                time.sleep(0.005)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and wait until no broker knows them; their files may remain for a while."""
        with contextlib.closing(Client(self.port)) as client:
            client.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=100_000), 3)
            while any(leaders(client, name) >= 0 for name in names):
                time.sleep(0.05)

    # Groups

    def wait_for_coordinators(self, groups: Sequence[str]) -> None:
        """Until commits of all `groups` are taken; their topic is created if need be."""
        with contextlib.closing(Client(self.port)) as client:
            for group in groups:
                while (
                    client.ask(FindCoordinatorRequest(key=group), 2).error_code
                    or client.ask(OffsetFetchRequest(group_id=group, topics=[]), 5).error_code
                ):
                    time.sleep(0.05)


def create_topic(client: Client, name: str, partitions: int = 1) -> None:
    """Ask for a topic; RuntimeError with the error code if there will be none."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=100_000), 4)
    if answer.topics[0].error_code:
        raise RuntimeError(f"creating {name}: error {answer.topics[0].error_code}")


def leaders(client: Client, name: str) -> int:
    """How many partitions of a topic are led; -1: there is no such topic."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    topic = client.ask(request, 8).topics[0]
    if topic.error_code not in (0, 5):
        return -1
    return sum(partition.leader_id >= 0 for partition in topic.partitions)


class Kctl(Server):
    """`kctl serve` with its embedded store."""

    title = "kctl"

    def __init__(
        self,
        directory: Path,
        checkout: Path | None = None,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        tree: Path | None = None,
    ) -> None:
        """`checkout`: another one with an environment in `.venv`. `tree`: other sources, for
        instance compiled ones, that run in this environment."""
        super().__init__(directory, port=port, settings=settings)
        self._checkout = checkout
        # Python finds the modules of its working directory first.
        self.working_directory = tree or checkout

    def command(self) -> list[str]:
        settings = [argument for item in SETTINGS.items() for argument in ("-c", "=".join(item))]
        where = ["--port", str(self.port)]
        if self.settings:
            where = ["--config", str(self.write_properties(self.settings))]
        data = str(self.directory / "data")
        return [*self._kctl(), "serve", "--data-dir", data, *where, *settings]

    def fresh(self, directory: Path) -> Self:
        made = type(self)(directory, self._checkout)
        made.working_directory = self.working_directory
        return made

    def _kctl(self) -> list[str]:
        if self._checkout is None:
            return _KCTL
        return [str(self._checkout / ".venv" / "bin" / "python"), "-m", "kctl"]

    def tool(self, name: str) -> list[str]:
        return (
            [*_KCTL, "--help"] if name == "help" else [*_KCTL, "topic", "list", "-b", self.address]
        )


_KCTL = [sys.executable, "-m", "kctl"]


class ApacheKafka(Server):
    """kafka.Kafka on a ZooKeeper that is up already."""

    title = f"Apache Kafka {KAFKA_VERSION}"

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port=port, settings=settings)
        self._zookeeper = zookeeper

    def command(self) -> list[str]:
        properties = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.directory / "logs"),
            # Each broker is a cluster of its own.
            "zookeeper.connect": f"{self._zookeeper}/{self.directory.name}",
            **SETTINGS,
            **self.settings,
        }
        path = self.write_properties(properties)
        flags = ("-Xms1G", *SERVER_FLAGS)
        command = java_command(KAFKA_VERSION, "kafka.Kafka", level="INFO", heap="1G", flags=flags)
        return [*command, str(path)]

    def fresh(self, directory: Path) -> Self:
        return type(self)(directory, self._zookeeper)

    def tool(self, name: str) -> list[str]:
        command = java_tool("kafka.admin.TopicCommand")
        return [*command, "--help"] if name == "help" else [
            *command, "--bootstrap-server", self.address, "--list",
        ]  # fmt: skip


def java_tool(main_class: str) -> list[str]:
    """The command line of one of Apache Kafka's tools, with the flags of its scripts."""
    return java_command(KAFKA_VERSION, main_class, heap="512M", flags=SERVER_FLAGS)


@contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    """A ZooKeeper server of the version that Apache Kafka brings along; yields its address."""
    directory.mkdir(parents=True)
    port = free_port()
    (directory / "zoo.cfg").write_text(
        f"dataDir={directory / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n"
    )
    main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = java_command(KAFKA_VERSION, main_class, heap="512M", flags=SERVER_FLAGS)
    with (directory / "output").open("ab") as output:
        process = subprocess.Popen(
            [*command, str(directory / "zoo.cfg")],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
