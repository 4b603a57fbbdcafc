"""Consumers of Apache Kafka 1.1.1 that share partitions through ZooKeeper, and its assignors; see
`java/ZooKeeperConsumers.java`. Its tools run with `JavaTools(VERSION)`."""

import contextlib
import hashlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support import apache_kafka
from tests.support.waiting import wait_for

# The last release with these consumers.
VERSION = "1.1.1"
PROGRAM = Path(__file__).parent / "java" / "ZooKeeperConsumers.java"
TIMEOUT_S = 60
# Fast enough for tests; a session of ZooKeeper has at least two ticks.
SETTINGS = {
    "zookeeper.session.timeout.ms": 2000,
    "zookeeper.sync.time.ms": 300,
    "rebalance.backoff.ms": 300,
    # A member whose tries are all used up is registered, and reads nothing.
    "rebalance.max.retries": 50,
    "auto.commit.enable": "false",
    "auto.offset.reset": "smallest",
    "fetch.wait.max.ms": 20,
}


def skip_without_java() -> None:
    """Skip the test, or all tests of a module, where the jars are not there."""
    if apache_kafka.libs(VERSION) is None:
        pytest.skip(
            f"no jars of Apache Kafka {VERSION}: python tests/support/apache_kafka.py {VERSION}",
            allow_module_level=True,
        )


@cache
def _classes() -> Path:
    """The folder with the compiled program, which later runs use again."""
    digest = hashlib.sha256(PROGRAM.read_bytes()).hexdigest()[:16]
    folder = apache_kafka.cache_dir() / f"{PROGRAM.stem}-{digest}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=apache_kafka.cache_dir()) as new:
            jars = f"{apache_kafka.libs(VERSION)}/*"
            subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", new, PROGRAM], check=True)
            # Another process may have been faster.
            with contextlib.suppress(OSError):
                Path(new).rename(folder)
                Path(new).mkdir()
    return folder


def _command(*arguments: str) -> list[str]:
    *options, class_path, _ = apache_kafka.java_command(VERSION, "-", level="ERROR", heap="128M")
    return [*options, f"{class_path}:{_classes()}", PROGRAM.stem, *arguments]


def java_assignments(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, dict[str, str]]]:
    """What the assignors make of groups: for each {topic: {partition: thread id}}.

    A group is {"strategy": "range" or "roundrobin", "group": its id, "ids": {consumer id: data of
    its znode}, "topics": {topic: number of partitions}}.
    """
    lines = "".join(json.dumps(group) + "\n" for group in groups)
    run = subprocess.run(
        _command("assign"), input=lines, capture_output=True, encoding="utf-8", check=False
    )
    if run.returncode:
        raise RuntimeError(run.stderr)
    return [json.loads(line) for line in run.stdout.splitlines()]


class JavaConsumer:
    """One member of a group, in a process of its own. `events` grows as the member prints."""

    def __init__(
        self, zookeeper: str, group: str, streams: Mapping[str, int] | None = None, *,
        whitelist: str | None = None, blacklist: str | None = None, count: int = 1,
        **settings: object,
    ) -> None:  # fmt: skip
        given = {name.replace("_", "."): value for name, value in settings.items()}
        all_settings = {"zookeeper.connect": zookeeper, "group.id": group, **SETTINGS, **given}
        start: dict[str, Any] = {"settings": all_settings, "count": count}
        chosen = {"streams": streams, "whitelist": whitelist, "blacklist": blacklist}
        start |= {name: value for name, value in chosen.items() if value is not None}
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            _command("member"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, encoding="utf-8", start_new_session=True,
        )  # fmt: skip
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self._send(json.dumps(start))

    def _read(self) -> None:
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def _send(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def said(self, kind: str) -> list[Any]:
        """The values of all events of a kind so far."""
        return [event[kind] for event in self.events if kind in event]

    def wait_until_started(self) -> str:
        """Wait for the first rebalance; the consumer's id."""
        self._wait_for("started")
        return self.said("started")[0]

    def _wait_for(self, kind: str, count: int = 0) -> None:
        wait_for(
            lambda: len(self.said(kind)) > count or self.process.poll() is not None,
            lambda: f"no {kind}: {self.events[-3:]}",
        )
        # The reader may be a line behind a process that ended.
        if self.process.poll() is not None:
            self._reader.join()
        assert len(self.said(kind)) > count, self.events[-3:]

    @property
    def owned(self) -> dict[str, dict[str, str]]:
        """Topic -> partition -> thread, since the last rebalance."""
        return (self.said("owned") or [{}])[-1]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages so far: topic, partition, offset, value."""
        return self.said("message")

    def positions(self) -> dict[str, dict[str, int]]:
        """Topic -> partition -> the offset to deliver next, -1 before the first fetch."""
        return self._ask("positions", "positions")

    def commit(self, offsets: Mapping[str, Mapping[int, int]] | None = None) -> None:
        """Commit what was delivered, or offsets by topic and partition."""
        self._ask("committed", "commit" if offsets is None else json.dumps({"commit": offsets}))

    def _ask(self, kind: str, line: str) -> Any:
        before = len(self.said(kind))
        self._send(line)
        self._wait_for(kind, before)
        return self.said(kind)[before]

    def shut_down(self) -> None:
        """Leave the group, with a commit if the member commits by itself."""
        self._ask("stopped", "shutdown")
        self.process.wait(TIMEOUT_S)

    def send_signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT: a pause of the whole process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._reader.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> "JavaConsumer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
