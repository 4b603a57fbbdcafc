"""`kctl serve --brokers N` as processes, for tests that talk to the cluster and kill its parts."""

import json
import os
import random  # noqa: TID251 - seeded by who calls
import signal
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

PATIENCE_S = 120


class LocalCluster:
    """One `kctl serve --brokers N`."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.data = directory / "data"
        self.ready = directory / "ready"
        self.log = directory / "stderr.log"
        self.output = directory / "stdout.log"
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "LocalCluster":
        self.ready.unlink(missing_ok=True)
        with self.log.open("ab") as log, self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "kctl", "serve", "--data-dir", str(self.data)),
                    *("--port", "0", "--ready-file", str(self.ready), *self.arguments),
                ],
                stdout=output,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        until(lambda: self.ready.exists() or self.process.poll() is not None)
        assert self.ready.exists(), self.log.read_text()
        return self

    @property
    def bootstrap(self) -> str:
        return self.ready.read_text().strip()

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "kctl", "broker", *words, "--data-dir", str(self.data)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def kctl(self, *words: object) -> str:
        """What a command against its brokers prints; it must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "kctl", *map(str, words), "-b", self.bootstrap],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def brokers(self, *words: str) -> "dict[int, dict[str, object]]":
        """What a command answers, by broker."""
        done = self.command(*(words or ("list",)), "-o", "json")
        assert done.returncode == 0, done.stderr
        return {row["broker"]: row for row in json.loads(done.stdout)["brokers"]}

    def isr(self, topic: str) -> "dict[int, set[int]]":
        metadata = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic, 10)
        return {number: set(it.isrs) for number, it in metadata.topics[topic].partitions.items()}

    def kill_any(self, chance: random.Random, topics: "tuple[str, ...]") -> None:
        """Kill -9 one of its brokers, once all of them run and no replica of `topics` lags."""
        everybody = self.brokers().keys()

        def in_sync() -> bool:
            isrs = (isr for topic in topics for isr in self.isr(topic).values())
            return all(isr == everybody for isr in isrs)

        until(in_sync)
        # A broker that was just killed is in the ISR yet, but has no process.
        until(lambda: all(row["pid"] for row in self.brokers().values()))
        os.kill(self.brokers()[chance.choice(sorted(everybody))]["pid"], signal.SIGKILL)

    def pids(self) -> list[int]:
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [self.process.pid, *map(int, Path(children).read_text().split())]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> "LocalCluster":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
