"""Processes that copy a topic in transactions, and readers of what they make of it."""

import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

ROOT = Path(__file__).parent.parent.parent
STALLED_S = 60


class Copiers:
    """The processes, each with a transactional id of its own; `place.address` is asked each time
    that one is started."""

    def __init__(self, place, source, target, directory, *, count=2):
        self._place = place
        self._topics = (source, target)
        self._log = (directory / "copiers.log").open("ab")
        self.processes = [self._start(number) for number in range(count)]

    def _start(self, number):
        words = ["-m", "tests.support.copier", self._place.address, *self._topics, "copy"]
        return subprocess.Popen(
            [sys.executable, *words, f"copier-{number}"],
            cwd=ROOT, stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def kill(self, number):
        """kill -9, and another one with the same id."""
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start(number)

    def revive(self):
        """Restart the copiers that have died."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                self.processes[number] = self._start(number)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self._log.close()


class Output:
    """Readers of committed data, one partition each, from the beginning."""

    def __init__(self, address, topic, partitions):
        self.values = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "checker",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 300,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def read(self, seconds):
        """Read for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self.values.append(message.value())

    def read_until(self, count, step_s, copiers):
        """Read until there are `count` values or no further ones arrive; at least for `step_s`."""
        self.read(step_s)
        seen, deadline = len(self.values), time.monotonic() + STALLED_S
        while len(self.values) < count and time.monotonic() < deadline:
            self.read(step_s)
            copiers.revive()
            if len(self.values) > seen:
                seen, deadline = len(self.values), time.monotonic() + STALLED_S

    def close(self):
        self._consumer.close()
