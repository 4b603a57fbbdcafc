"""kctl's commands, run in this process, against kctl itself and against Apache Kafka 2.7.2."""

import json
import os
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from kctl.cli import app
from tests.support import apache_kafka
from tests.support.kctl_process import KEEPS_OLD_RECORDS, KEEPS_OLD_RECORDS_FLAGS, KctlBroker
from tests.support.terminal import Terminal
from tests.support.zookeeper import running_zookeeper


@dataclass
class Ran:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def documents(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return self.out.splitlines()

    @property
    def ndjson(self):
        return [json.loads(line) for line in self.lines]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    """Hide the profiles and variables of the machine."""
    for name in ("KCTL_BOOTSTRAP_SERVER", "KCTL_PROFILE", "KCTL_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


@pytest.fixture
def kctl(capfdbinary):
    """Run a command line: `kctl("topic", "list")`."""

    def run(*argv):
        capfdbinary.readouterr()
        status = app.run([str(argument) for argument in argv])
        captured = capfdbinary.readouterr()
        return Ran(status, captured.out.decode(), captured.err.decode())

    return run


@contextmanager
def closed(stream, monkeypatch):
    """Give the process a pipe without a reader in place of stdout or stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as file, monkeypatch.context() as patch:
        patch.setattr(sys, stream, file)
        yield
        # What Python does when it exits.
        file.flush()


@pytest.fixture
def without(kctl, monkeypatch):
    """Run a command whose stdout or stderr has no reader: `without("stdout", "topic", "list")`."""

    def run(stream, *words):
        with closed(stream, monkeypatch):
            return kctl(*words)

    return run


@pytest.fixture(scope="session")
def kctl_broker(tmp_path_factory):
    with KctlBroker(tmp_path_factory.mktemp("kctl"), *KEEPS_OLD_RECORDS_FLAGS) as broker:
        yield broker.address


@pytest.fixture(scope="session")
def apache_broker(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        apache_kafka.apache_broker(
            tmp_path_factory.mktemp("apache"), zookeeper.address,
            settings={"group.initial.rebalance.delay.ms": "0", **KEEPS_OLD_RECORDS},
        ) as address,
    ):  # fmt: skip
        yield address


@pytest.fixture(params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)], scope="session")
def address(request):
    """Return the address of a kctl broker, then of an Apache Kafka 2.7.2 broker."""
    return request.getfixturevalue(f"{request.param}_broker")


@pytest.fixture
def on(kctl, address):
    """Run a command line against the broker: `on("topic", "list")`."""

    def run(*argv):
        return kctl(*argv, "-b", address)

    return run


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"t-{uuid.uuid1().hex[:12]}"


@pytest.fixture
def topic(on, name):
    """A topic of three partitions."""
    assert on("topic", "create", name, "-p", 3, "-r", 1).status == 0
    return name


@pytest.fixture
def open_terminal():
    """Start kctl on a terminal; it does not outlive the test."""
    opened = []

    def start(*arguments, **options):
        opened.append(Terminal(*arguments, **options))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.process.kill()
        terminal.process.wait()
