"""A mirror and its two brokers under `kill -9`, while transactions are written to the source."""

import random  # noqa: TID251 - the seed enters here
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kctl.admin.admin_client import AdminClient
from kctl.mirror.translation import read_translator
from kctl.model import TopicPartition as Partition
from kctl.protocol.constants import READ_COMMITTED
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

TOPIC = "orders"
PARTITIONS = 3
TIMEOUT_S = 120
RECORDS_EACH = 20
# Kills after which the mirror must have copied something again.
KILLS_BETWEEN_PROGRESS = 3
# So that a key is written again soon.
KEYS = 12
ID_HEADER = "id"


class Item(NamedTuple):
    """A record as librdkafka reads it; `id` is unique."""

    id: bytes
    offset: int
    key: bytes
    value: bytes | None


class Workload(threading.Thread):
    """Writes transactions, aborts a fifth of them, and remembers where each record was written.

    Every ninth record is a tombstone. `between` is held while a transaction is under way.
    """

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address = address
        self.is_over = False
        self.between = threading.Lock()
        self.transactions = 0
        # The offsets of acknowledged records of committed transactions, by partition.
        self.offsets = {number: {} for number in range(PARTITIONS)}
        self._client = None
        self._number = 0

    def run(self):
        while not self.is_over:
            with self.between:
                self.write_one()
            # A thread that waits for the lock gets it.
            time.sleep(0.001)

    def write_one(self):
        """Write a transaction; whether one that fails is committed is unknown."""
        number, self._number = self._number, self._number + 1
        try:
            self._write(number)
            self.transactions += 1
        except KafkaException:
            self._client = None
            time.sleep(0.2)

    def _write(self, number):
        if self._client is None:
            settings = {
                "bootstrap.servers": self.address, "transactional.id": "w", "log_level": 0,
            }  # fmt: skip
            self._client = Producer(settings)
            self._client.init_transactions(20)
        client = self._client
        written = {}
        client.begin_transaction()
        partition = number % PARTITIONS
        for at in range(RECORDS_EACH):
            name = b"%d-%d" % (number, at)
            client.produce(
                TOPIC, None if at % 9 == 8 else name, b"k%d" % ((number + at) % KEYS),
                partition=partition, headers={ID_HEADER: name}, on_delivery=_note(written, name),
            )  # fmt: skip
        if number % 5 == 4:
            client.flush(20)
            client.abort_transaction(20)
        else:
            client.commit_transaction(20)
            self.offsets[partition] |= written


def _note(written, name):
    """Return a callback that notes the offset of a record."""

    def note(error, message):
        if error is None:
            written[name] = message.offset()

    return note


def kctl(*words):
    return [sys.executable, "-m", "kctl", *map(str, words)]


def on_cluster(broker, work):
    """Return the result of `work(admin)`."""
    runtime = make_runtime(NullTrace())
    admin = AdminClient.connect(runtime, [(broker.host, broker.port)], TIMEOUT_S * 1000)
    try:
        return runtime.scheduler.run_until(runtime.scheduler.spawn(work(admin)))
    finally:
        admin.close()
        runtime.scheduler.close()


class KilledMirror:
    """Two brokers, a workload at the source and a mirror with `options`; a context manager."""

    def __init__(self, directory, options=(), topic_options=(), source_options=()):
        self.source = KctlBroker(directory / "source", *source_options).start()
        self.target = KctlBroker(directory / "target").start()
        self._options = options
        self._mirror = None
        self.mirror_kills = 0
        create = ("topic", "create", TOPIC, "-p", PARTITIONS, "-b", self.source.address)
        subprocess.run(kctl(*create, *topic_options), check=True, stdout=subprocess.DEVNULL)
        self.workload = Workload(self.source.address)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.workload.is_over = True
        self._stop_mirror()
        for broker in (self.source, self.target):
            broker.kill()

    def _command(self, *more):
        return kctl(
            "mirror", "run", "--source", self.source.address, "--target", self.target.address,
            "--topics", TOPIC, *self._options, *more,
        )  # fmt: skip

    def _start_mirror(self):
        silent = subprocess.DEVNULL
        self._mirror = subprocess.Popen(self._command(), stdout=silent, stderr=silent)

    def _stop_mirror(self):
        if self._mirror is not None and self._mirror.poll() is None:
            self._mirror.kill()
            self._mirror.wait()

    def _copied(self):
        """Return the sum of the committed ends of the target."""
        partitions = [Partition(TOPIC, number) for number in range(PARTITIONS)]

        async def ends(admin):
            topics = [it.name for it in await admin.topics.list_topics()]
            if TOPIC not in topics:
                return 0
            found = await admin.offsets.latest(partitions, isolation_level=READ_COMMITTED)
            return sum(max(it.offset, 0) for it in found.values())

        return on_cluster(self.target, ends)

    def begin(self):
        """Let the workload and the mirror run."""
        self.workload.start()
        self._start_mirror()

    def wait_for_progress(self):
        """Wait until the mirror has copied something more."""
        copied = self._copied()
        wait_for(lambda: self._copied() > copied, lambda: "nothing is copied")

    def run_in_peace(self, transactions):
        """Write transactions and copy them to the end, without a kill."""
        for _ in range(transactions):
            self.workload.write_one()
        self.finish()

    def kill(self, kills, seed, *, between_transactions=False):
        """Let the workload and the mirror run, and kill the mirror or a broker `kills` times.

        With `between_transactions` the source is killed only there, so that the workload knows
        the offset of every record.
        """
        chance = random.Random(seed)
        self.begin()
        for number in range(kills):
            if number % KILLS_BETWEEN_PROGRESS == 0:
                # A group waits ten seconds for a member that was killed.
                self.wait_for_progress()
            time.sleep(chance.uniform(0.3, 2.0))
            victim = chance.choice(["mirror", "mirror", "source", "target"])
            if victim == "mirror":
                self._stop_mirror()
                self.mirror_kills += 1
            elif victim == "target":
                _restart(self.target)
            elif between_transactions:
                with self.workload.between:
                    _restart(self.source)
            else:
                _restart(self.source)
            if self._mirror.poll() is not None:
                self._start_mirror()
        done = self.workload.transactions
        wait_for(lambda: self.workload.transactions > done, lambda: "nothing more was written")
        self.workload.is_over = True
        self.workload.join(TIMEOUT_S)
        self._stop_mirror()

    def finish(self):
        """Run the mirror to the end of the source."""
        done = subprocess.run(
            self._command("--once"), timeout=TIMEOUT_S, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def verify(self, *more):
        """Return what `kctl mirror verify` says."""
        return subprocess.run(
            kctl(
                "mirror", "verify", "--source", self.source.address, "--target",
                self.target.address, "--topics", TOPIC, *more,
            ),
            timeout=TIMEOUT_S, capture_output=True, check=False,
        )  # fmt: skip

    def translator(self):
        """Return the mirror's translator."""
        return on_cluster(self.target, lambda admin: read_translator(admin, "default"))


def _restart(broker):
    broker.kill()
    broker.start()


def read(broker):
    """Return the committed records of each partition, as librdkafka reads them."""
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
    client.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found = {number: [] for number in range(PARTITIONS)}
    at_end = set()
    while len(at_end) < PARTITIONS:
        message = client.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            at_end.add(message.partition())
        else:
            name = dict(message.headers())[ID_HEADER]
            item = Item(name, message.offset(), message.key(), message.value())
            found[message.partition()].append(item)
    client.close()
    return found
