"""Nothing is lost, doubled or reordered while a mirror and both brokers are killed, with
transactions at the source of which a fifth are aborted; every position is translated exactly.

`KCTL_MIRROR_KILLS=50 KCTL_TEST_SEED=7` for more.
"""

import os
import random  # noqa: TID251 - the seed enters here
import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kctl.admin.admin_client import AdminClient
from kctl.mirror.translation import read_translator
from kctl.model import TopicPartition as Partition
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support.kctl_process import KctlBroker

KILLS = int(os.environ.get("KCTL_MIRROR_KILLS", "6"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
PARTITIONS = 3
TIMEOUT_S = 120
RECORDS_EACH = 20

pytestmark = pytest.mark.slow


class Workload(threading.Thread):
    """Writes transactions, aborts a fifth of them, and remembers which values are committed."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address = address
        self.is_over = False
        self.transactions = 0
        self._client = None

    def run(self):
        number = 0
        while not self.is_over:
            try:
                self._write(number)
                self.transactions += 1
            except KafkaException:
                # Whether it is committed is unknown: the source's log says it.
                self._client = None
                time.sleep(0.2)
            number += 1

    def _write(self, number):
        if self._client is None:
            settings = {
                "bootstrap.servers": self.address, "transactional.id": "w", "log_level": 0,
            }  # fmt: skip
            self._client = Producer(settings)
            self._client.init_transactions(20)
        client = self._client
        client.begin_transaction()
        for at in range(RECORDS_EACH):
            client.produce("orders", b"%d-%d" % (number, at), partition=number % PARTITIONS)
        if number % 5 == 4:
            client.flush(20)
            client.abort_transaction(20)
        else:
            client.commit_transaction(20)


def kctl(*words):
    return [sys.executable, "-m", "kctl", *map(str, words)]


def mirror_command(source, target, *more):
    return kctl(
        "mirror", "run", "--source", source.address, "--target", target.address,
        "--topics", "orders", *more,
    )  # fmt: skip


def start_mirror(source, target):
    silent = subprocess.DEVNULL
    return subprocess.Popen(mirror_command(source, target), stdout=silent, stderr=silent)


def read(broker):
    """Return the committed values of each partition with their offsets, as librdkafka reads."""
    client = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    client.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
    found = {number: [] for number in range(PARTITIONS)}
    at_end = set()
    while len(at_end) < PARTITIONS:
        message = client.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            at_end.add(message.partition())
        else:
            found[message.partition()].append((message.value(), message.offset()))
    client.close()
    return found


def committed(broker):
    """Return the committed values of each partition."""
    return {number: [value for value, _ in items] for number, items in read(broker).items()}


def offsets_of(broker):
    """Return the offset of each committed value by partition, as librdkafka reads them."""
    return {number: dict(items) for number, items in read(broker).items()}


def wrong_translations(source, target):
    """Return how many positions of the source were translated, and those that are not exact: each
    offset up to the last committed record's, between records and at aborted ones too."""
    there = offsets_of(target)
    runtime = make_runtime(NullTrace())
    admin = AdminClient.connect(runtime, [(target.host, target.port)], TIMEOUT_S * 1000)
    try:
        translator = runtime.scheduler.run_until(
            runtime.scheduler.spawn(read_translator(admin, "default"))
        )
    finally:
        admin.close()
        runtime.scheduler.close()
    count, wrong = 0, []
    for number, offsets in offsets_of(source).items():
        begin = 0
        for value, offset in offsets.items():
            for position in range(begin, offset + 1):
                to = translator.to_target(Partition("orders", number), position).to_offset
                count += 1
                if to != there[number][value]:
                    wrong.append((number, position, to, there[number][value]))
            begin = offset + 1
    return count, wrong


def test_each_record_is_copied_once_and_in_order_under_kill_9(tmp_path):
    chance = random.Random(SEED)
    source, target = (KctlBroker(tmp_path / side).start() for side in ("source", "target"))
    mirror = None
    try:
        subprocess.run(
            kctl("topic", "create", "orders", "-p", PARTITIONS, "-b", source.address), check=True
        )
        workload = Workload(source.address)
        workload.start()
        mirror = start_mirror(source, target)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 2.0))
            victim = chance.choice(["mirror", "mirror", "source", "target"])
            if victim == "mirror":
                mirror.kill()
                mirror.wait()
            else:
                broker = source if victim == "source" else target
                broker.kill()
                broker.start()
            if mirror.poll() is not None:
                mirror = start_mirror(source, target)
        workload.is_over = True
        workload.join(TIMEOUT_S)
        mirror.kill()
        mirror.wait()
        done = subprocess.run(
            mirror_command(source, target, "--once"), timeout=TIMEOUT_S, capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = committed(source)
        assert sum(map(len, found.values())) > KILLS * RECORDS_EACH
        assert committed(target) == found
        proof = subprocess.run(
            kctl(
                "mirror", "verify", "--source", source.address, "--target", target.address,
                "--topics", "orders",
            ),
            timeout=TIMEOUT_S, capture_output=True, check=False,
        )  # fmt: skip
        assert proof.returncode == 0, proof.stdout + proof.stderr
        count, wrong = wrong_translations(source, target)
        assert count > sum(map(len, found.values()))
        assert wrong == []
    finally:
        if mirror is not None and mirror.poll() is None:
            mirror.kill()
            mirror.wait()
        for broker in (source, target):
            broker.kill()
