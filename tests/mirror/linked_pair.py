"""Two clusters of one broker each, `east` and `west`, whose topics may follow each other."""

import json
import subprocess
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.measured_broker import MeasuredBroker
from tests.support.waiting import wait_for

PATIENCE_S = 120


class Side:
    """A broker, and what is done with its cluster."""

    def __init__(self, name, directory, sources, settings=()):
        self.name = name
        given = {"mirror.sources.dir": sources, **dict(settings)}
        words = [word for key, text in given.items() for word in ("-c", f"{key}={text}")]
        self.data = directory / name
        self.broker = MeasuredBroker(self.data, *words)
        self.broker.start()

    @property
    def address(self):
        return self.broker.address

    def kctl(self, *words, status=0):
        """What a command prints; it must end with this status."""
        return self.kctl_alone(*words, "-b", self.address, status=status)

    def kctl_alone(self, *words, status=0):
        """What a command without brokers prints."""
        done = subprocess.run(
            [sys.executable, "-m", "kctl", *map(str, words)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + (done.stderr if status else "")

    def produce(self, topic, values, partition=0, **settings):
        """Write values in one go; return the errors."""
        client = Producer({"bootstrap.servers": self.address, "linger.ms": 5, **settings})
        errors = []
        for value in values:
            client.produce(
                topic, value, key=value[:2], partition=partition,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )  # fmt: skip
        assert client.flush(PATIENCE_S) == 0
        return errors

    def transaction(self, topic, name, values, *, end):
        """Write values in a transaction, and commit, abort or leave it; return the client."""
        client = Producer({"bootstrap.servers": self.address, "transactional.id": name})
        client.init_transactions(PATIENCE_S)
        client.begin_transaction()
        for value in values:
            client.produce(topic, value, partition=0)
        client.flush(PATIENCE_S)
        if end is not None:
            getattr(client, f"{end}_transaction")(PATIENCE_S)
        return client

    def read(self, topic, partition=0, isolation="read_committed"):
        """All (offset, value) up to the readable end."""
        client = Consumer(
            {
                "bootstrap.servers": self.address, "group.id": "x",
                "isolation.level": isolation, "enable.partition.eof": True,
                "enable.auto.commit": False, "auto.offset.reset": "earliest",
            }
        )  # fmt: skip
        client.assign([TopicPartition(topic, partition, 0)])
        found = []
        while True:
            message = client.poll(PATIENCE_S)
            assert message is not None
            if message.error():
                client.close()
                return found
            found.append((message.offset(), message.value()))

    def log_bytes(self, topic, partition=0):
        """The bytes of all segments, and the epochs, as files of this partition hold them."""
        directory = self.broker.log_dir / f"{topic}-{partition}"
        return b"".join(it.read_bytes() for it in sorted(directory.glob("*.log")))

    def epochs(self, topic, partition=0):
        return (
            self.broker.log_dir / f"{topic}-{partition}" / "leader-epoch-checkpoint"
        ).read_text()


class LinkedPair:
    """Both clusters, each of which has the other among its sources."""

    def __init__(self, directory, settings=()):
        self.sources = directory / "sources"
        self.sources.mkdir()
        self.east = Side("east", directory, self.sources, settings)
        self.west = Side("west", directory, self.sources, settings)
        for side in (self.east, self.west):
            self.write_source(side.name, side.address)

    def write_source(self, name, address):
        (self.sources / f"{name}.properties").write_text(f"bootstrap.servers={address}\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for side in (self.east, self.west):
            side.broker.kill()

    def link(self, topic, *words, source, target):
        return target.kctl(
            "link", "create", topic, "--source", source.name, "--from", source.address, "--yes",
            *words,
        )  # fmt: skip


def partitions(side, topic):
    """The rows of kctl link describe, whatever its exit status."""
    done = subprocess.run(
        [sys.executable, "-m", "kctl", "link", "describe", topic, "-o", "json", "-b", side.address],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return json.loads(done.stdout) if done.stdout else []


def wait_until(side, topic, holds, what):
    """Wait until `holds(rows)` for the partitions of a link."""
    last = []

    def is_so():
        last[:] = partitions(side, topic)
        return holds(last)

    wait_for(is_so, lambda: f"waiting for {what}: {last}")
    return last


def wait_caught_up(side, topic, end=None):
    """Wait until nothing is left to copy."""
    return wait_until(
        side,
        topic,
        lambda rows: (
            rows
            and all(
                it["phase"] == "following" and it["lag"] == 0 and (end is None or it["end"] >= end)
                for it in rows
            )
        ),
        "the link to catch up",
    )
