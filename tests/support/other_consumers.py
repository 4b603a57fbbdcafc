"""Members of groups on ZooKeeper that are neither kctl's nor Apache Kafka's: npm's kafka-node, Go's
wvanbergen/kafka and, of Kafka 0.7, PyPI's samsa; see `node/high_level_consumer.js`,
`go/zookeeper_group` and `samsa_member.py`."""

import contextlib
import json
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support import apache_kafka
from tests.support.waiting import wait_for

HERE = Path(__file__).parent
INSTALL_LIMIT_S = 300
# The one that pyenv has, where it is not on the path by itself.
PYTHON2 = ("env", "PYENV_VERSION=2.7.18", "python2.7")
SAMSA = ("samsa==0.3.11", "kazoo==2.8.0")


def npm_packages(name, *packages):
    """The folder in which npm's packages are installed; skips the test if they cannot be."""
    if shutil.which("npm") is None:
        pytest.skip("needs Node.js and npm")
    folder = apache_kafka.cache_dir() / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--omit=optional", "--prefix", str(folder), *packages]
        done = _install(command, folder)
        if done.returncode:
            pytest.skip(f"npm cannot install {' '.join(packages)}: {done.stderr[-300:]}")
        (folder / "complete").touch()
    return folder


def go_program(sources, folder):
    """The program of a Go module, compiled in a new `folder`; skips the test without Go, or where
    the module's dependencies cannot be fetched."""
    if shutil.which("go") is None:
        pytest.skip("no Go to compile the client with")
    module = folder / sources.name
    shutil.copytree(sources, module)
    fetched = _install(["go", "mod", "download"], module)
    if fetched.returncode:
        pytest.skip(f"Go cannot fetch the modules of {sources.name}: {fetched.stderr[-300:]}")
    built = _install(["go", "build", "-o", "program", "."], module)
    assert built.returncode == 0, built.stderr
    return module / "program"


def _install(command, folder):
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False
    )


class OtherConsumer:
    """One member, in a process of its own; `events` grows as it prints.

    Its messages are those of KctlConsumer: the time is that at which they were read here.
    """

    def __init__(self, command, zookeeper, group, topic):
        self.events = []
        self.errors = []
        self.process = subprocess.Popen(
            [*command, zookeeper, group, topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)
        ]
        for it in self._readers:
            it.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if "message" in event:
                event["message"].insert(4, time.monotonic())
            self.events.append(event)

    def _read_errors(self):
        self.errors += self.process.stderr

    def said(self, kind):
        """The values of all events of a kind so far."""
        return [event[kind] for event in self.events if kind in event]

    def shut_down(self):
        """Leave the group."""
        self.process.stdin.write("shutdown\n")
        self.process.stdin.flush()
        wait_for(lambda: self.said("stopped"), lambda: f"{self.events[-3:]}")
        self.process.wait()

    def close(self):
        """Kill it."""
        self.process.kill()
        self.process.wait()
        for it in self._readers:
            it.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()


def kafka_node():
    """The command line of a member of kafka-node."""
    folder = npm_packages("npm-kafka-node-2.6.1", "kafka-node@2.6.1")
    script = folder / "high_level_consumer.js"
    shutil.copyfile(HERE / "node" / script.name, script)
    return ["node", str(script)]


def wvanbergen_kafka(folder):
    """The command line of a member of wvanbergen/kafka, compiled in `folder`."""
    return [str(go_program(HERE / "go" / "zookeeper_group", folder))]


def samsa():
    """The command line of a member of samsa; skips the test without Python 2.7."""
    folder = apache_kafka.cache_dir() / "samsa-0.3.11"
    if (
        shutil.which("python2.7") is None
        or _install([*PYTHON2, "-m", "pip", "-V"], None).returncode
    ):
        pytest.skip("needs Python 2.7 with pip")
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = _install([*PYTHON2, "-m", "pip", "install", "-q", "--target", ".", *SAMSA], folder)
        if done.returncode:
            pytest.skip(f"pip cannot install {' '.join(SAMSA)}: {done.stderr[-300:]}")
        (folder / "complete").touch()
    name, version, python = PYTHON2
    return [name, version, f"PYTHONPATH={folder}", python, str(HERE / "samsa_member.py")]
