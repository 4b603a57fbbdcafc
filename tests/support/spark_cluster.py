"""A standalone Spark cluster on this machine, from pip's pyspark: a master and its workers, each a
process, whose executors are processes too; and a Python for them that knows all but kctl.

All of them, and drivers, bear with a machine that has more to do than it can: what Spark takes for
lost after seconds or a minute of silence may take ten minutes here.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.apache_kafka import free_port

_START_SECONDS = 300
_LAST_CHARACTERS = 3000
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


_PATIENCE = {
    "spark.network.timeout": "600s", "spark.worker.timeout": "600",
    "spark.python.authenticate.socketTimeout": "600s",
}  # fmt: skip
_DAEMON_OPTIONS = " ".join(f"-D{name}={value}" for name, value in _PATIENCE.items())


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """One that runs."""

    url: str
    directory: Path

    def run(self, *words: object, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run Python as a driver's process."""
        return subprocess.run(
            [sys.executable, *map(str, words)], capture_output=True, text=True, check=False,
            env=driver_environment(self.directory) | environment, cwd=self.directory,
        )  # fmt: skip

    def why(self, ran: "subprocess.CompletedProcess[str]") -> str:
        """All that a run left behind: what it said, and the ends of the cluster's logs."""
        logs = [*self.directory.glob("*.log"), *self.directory.glob("work-*/app-*/*/std*")]
        ends = [
            f"--- {path}\n{path.read_text(errors='replace')[-_LAST_CHARACTERS:]}"
            for path in sorted(logs, key=lambda path: path.stat().st_mtime)
        ]
        return "\n".join([f"status {ran.returncode}", ran.stdout, ran.stderr, *ends])


def driver_environment(directory: Path) -> dict[str, str]:
    """That of this process without what Spark has put there, and with patience."""
    (directory / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in _PATIENCE.items())
    )
    ours = {it: text for it, text in os.environ.items() if not it.startswith(("PYSPARK", "SPARK"))}
    return ours | {"SPARK_CONF_DIR": str(directory), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[StandaloneCluster]:
    """Each worker has a core, and its executors' logs are in `directory`."""
    port, web = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
        stack.enter_context(_running([_MASTER, *words], directory / "master.log", "I have been"))
        for number in range(workers):
            words = ["-c", "1", "-m", "1g", "--host", "127.0.0.1", "--webui-port", "0",
                     "-d", str(directory / f"work-{number}"), url]  # fmt: skip
            log = directory / f"worker-{number}.log"
            stack.enter_context(_running([_WORKER, *words], log, "Successfully registered"))
        yield StandaloneCluster(url, directory)


@contextmanager
def _running(words: list[str], log: Path, ready: str) -> Iterator[None]:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    environment = driver_environment(log.parent) | {
        "SPARK_HOME": str(home), "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
    }  # fmt: skip
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["bash", str(home / "bin" / "spark-class"), *words], stdin=subprocess.DEVNULL,
            stdout=stream, stderr=stream, env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + _START_SECONDS
        while ready not in (said := log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{words[0]} did not start: {said[-2000:]}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def python_without_kctl(directory: Path) -> Path:
    """An environment in `directory`, to be used or packed, whose bin/python cannot import kctl."""
    packages = directory / "packages"
    packages.mkdir(parents=True)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "kctl" not in path.name and not path.name.startswith("pyspark"):
            (packages / path.name).symlink_to(path)
    python = directory / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        '#!/bin/sh\nhome=$(dirname "$0")/..\n'
        'export PYTHONPATH="$(realpath "$home")/packages${PYTHONPATH:+:$PYTHONPATH}"\n'
        f'exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return python


def pack(environment: Path) -> Path:
    """The environment as `spark.archives` takes it."""
    return Path(shutil.make_archive(str(environment), "gztar", environment))


def kill_an_executor(url: str) -> bool:
    """Kill -9 the JVM of one that works for the cluster at `url`; whether there was one."""
    for number, words, parent in _processes():
        is_executor = any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words)
        if is_executor and _address(url) in b" ".join(_words_of(parent)):
            return _kill(number)
    return False


def kill_a_worker(url: str) -> bool:
    """Kill -9 the JVM of a worker of the cluster at `url`, whose executors end with it; whether
    there was one."""
    for number, words, _parent in _processes():
        if _WORKER.encode() in words and url.encode() in words:
            return _kill(number)
    return False


def _address(url: str) -> bytes:
    return f":{url.rsplit(':', 1)[1]}".encode()


def _kill(number: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)
        return True
    return False


def _processes() -> Iterator[tuple[int, list[bytes], int]]:
    """Number, command line and parent of each process."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        yield int(path.name), _words_of(int(path.name)), parent


def _words_of(number: int) -> list[bytes]:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
