"""Producers and consumers under faults, whose History the queue checker judges.

Each producer and each consumer has a thread and a client of its own. Transactions are committed and
aborted as the seed draws; a client that cannot know how its transaction ended records that, and
continues as a new producer.
"""

import random  # noqa: TID251 - seeded
import threading
import time
from contextlib import suppress
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kctl.simulation.queue_checker import History, Outcome, Reader, Seen, Write

TIMEOUT_S = 30
# How long writers may take to end.
DRAIN_S = 4 * TIMEOUT_S
WRITES_PER_TURN = 8
PAUSE_S = 0.02
# Between two looks whether the workload was closed.
FLUSH_S = 0.5
IDEMPOTENT = {"enable.idempotence": True}
CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    # A broker that has just started may know of no topic yet. librdkafka believes it, and produces
    # nothing until it asks again: by default after five minutes.
    "topic.metadata.refresh.interval.ms": 2000,
    # A client that is stopped drops what it holds, and logs it: not of interest here.
    "log_level": 2,
}


class QueueWorkload:
    """Runs until it is closed; `history` is whole after `finish`."""

    def __init__(
        self, address, topic, partitions, seed, *,
        plain=1, transactional=2, readers=2, plain_settings=IDEMPOTENT, is_partition_each=False,
    ):  # fmt: skip
        """`is_partition_each`: writer n outside transactions writes to partition n only."""
        self.history = History()
        # Seconds, by partition: when writes outside transactions were acknowledged.
        self.acknowledged = {number: [] for number in range(partitions)}
        # Of those, how many the client could not tell the offset of.
        self.without_offset = 0
        self.commits = 0
        self._plain_settings = plain_settings
        self._address, self._topic, self._partitions = address, topic, partitions
        self._stopping = threading.Event()
        self._is_closed = threading.Event()
        self.failures = []
        roles = [(self._write_plainly, f"plain-{n}") for n in range(plain)]
        # The only partition of a writer, by name.
        self._own_partition = {f"plain-{n}": n for n in range(plain)} if is_partition_each else {}
        roles += [(self._write_in_transactions, f"txn-{n}") for n in range(transactional)]
        self._writers = [self._thread(role, name, seed) for role, name in roles]
        self._readers_stopping = threading.Event()
        # Set by each reader that has read its last record.
        self._readers_done = [threading.Event() for _ in range(readers)]
        self._readers = []
        for number in range(readers):
            reader = Reader(f"reader-{number}", is_committed_only=number % 2 == 0)
            self.history.readers.append(reader)
            done = self._readers_done[number]
            self._readers.append(self._thread(partial(self._read, done=done), reader, seed))

    def start(self):
        for thread in (*self._writers, *self._readers):
            thread.start()
        return self

    def finish(self):
        """Let all end what they do, and read everything once more; the history."""
        self._stopping.set()
        for thread in self._writers:
            thread.join(DRAIN_S)
        self._readers_stopping.set()
        ended = [done.wait(TIMEOUT_S) for done in self._readers_done]
        stuck = [thread.name for thread in self._writers if thread.is_alive()]
        stuck += [it.name for it, is_done in zip(self._readers, ended, strict=True) if not is_done]
        assert not self.failures + stuck, self.failures + stuck
        self._read_all(self.history.last_of_all)
        self._read_all(self.history.last_committed)
        return self.history

    def close(self):
        """End every client at once; what was not delivered is dropped.

        A producer that kept trying would write to the next cluster at the same address.
        """
        self._is_closed.set()
        self._stopping.set()
        self._readers_stopping.set()
        for thread in self._writers:
            thread.join(TIMEOUT_S)
        for done in self._readers_done:
            done.wait(TIMEOUT_S)

    def _thread(self, role, who, seed):
        def run():
            try:
                role(who, random.Random(f"{seed}-{who}"))
            except Exception as error:  # noqa: BLE001 - reported by `finish`
                self.failures.append(f"{who}: {error!r}")

        return threading.Thread(target=run, daemon=True, name=f"thread of {who}")

    # --- writers -----------------------------------------------------------------------------

    def _new_write(self, name, number, chance, transaction=None):
        partition = self._own_partition.get(name)
        if partition is None:
            partition = chance.randrange(self._partitions)
        write = Write(f"{name}:{number}", name, number, partition, transaction=transaction)
        self.history.writes[write.value] = write
        return write

    def _write_plainly(self, name, chance):
        producer = Producer(
            {"bootstrap.servers": self._address, "linger.ms": 1,
             "message.timeout.ms": DRAIN_S * 1000, "error_cb": self._note_fatal,
             **CLIENT, **self._plain_settings}
        )  # fmt: skip
        number = 0
        while not self._stopping.is_set():
            for _ in range(WRITES_PER_TURN):
                self._produce_plainly(producer, self._new_write(name, number, chance))
                number += 1
            producer.poll(0)
            self._stopping.wait(PAUSE_S)
        deadline = time.monotonic() + DRAIN_S
        while len(producer) and not self._is_closed.is_set() and time.monotonic() < deadline:
            producer.flush(FLUSH_S)
        if self._is_closed.is_set():
            producer.purge()

    def _produce_plainly(self, producer, write):
        on_delivery = self._on_delivery(write)
        while True:
            try:
                return producer.produce(
                    self._topic, write.value, partition=write.partition, on_delivery=on_delivery
                )
            except KafkaException as error:
                # From a broker that has just started and has no metadata yet.
                if error.args[0].code() != KafkaError._UNKNOWN_TOPIC or self._stopping.is_set():
                    raise
            producer.poll(PAUSE_S)

    def _note_fatal(self, error):
        """Close a producer after a fatal error; `finish` reports failures."""
        if error.fatal():
            self.failures.append(str(error))

    def _on_delivery(self, write):
        """Record the outcome of a write outside transactions."""

        def on_delivery(error, message):
            if error is None:
                write.outcome = Outcome.OK
                self.without_offset += message.offset() is None
                self.acknowledged[write.partition].append(time.monotonic())

        return on_delivery

    def _write_in_transactions(self, name, chance):
        number = turn = 0
        producer = None
        while not self._stopping.is_set() or producer is None:
            turn += 1
            transaction = f"{name} transaction {turn}"
            writes = [
                self._new_write(name, number + each, chance, transaction)
                for each in range(chance.randrange(1, WRITES_PER_TURN))
            ]
            number += len(writes)
            try:
                producer = producer or self._new_producer(name)
                outcome = self._transact(producer, writes, chance)
            except KafkaException:
                outcome, producer = Outcome.UNKNOWN, None
            for write in writes:
                write.outcome = outcome
            self._stopping.wait(PAUSE_S)

    def _new_producer(self, name):
        """Whose first act is to end what the one before it left open."""
        producer = Producer(
            {"bootstrap.servers": self._address, "transactional.id": name, "linger.ms": 1, **CLIENT}
        )
        retried(producer.init_transactions)
        return producer

    def _transact(self, producer, writes, chance):
        producer.begin_transaction()
        for write in writes:
            producer.produce(self._topic, write.value, partition=write.partition)
        if chance.random() < 0.3:
            if chance.random() < 0.5:
                producer.flush(TIMEOUT_S)
            retried(producer.abort_transaction)
            return Outcome.ABORTED
        try:
            retried(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            retried(producer.abort_transaction)
            return Outcome.UNKNOWN
        self.commits += 1
        return Outcome.OK

    # --- readers -----------------------------------------------------------------------------

    def _consumer(self, reader):
        isolation = "read_committed" if reader.is_committed_only else "read_uncommitted"
        consumer = Consumer(
            {"bootstrap.servers": self._address, "group.id": reader.name, "fetch.wait.max.ms": 50,
             "enable.auto.commit": False, "isolation.level": isolation,
             "auto.offset.reset": "error", **CLIENT}
        )  # fmt: skip
        consumer.assign([TopicPartition(self._topic, n, 0) for n in range(self._partitions)])
        return consumer

    def _read(self, reader, _, *, done):
        consumer = self._consumer(reader)
        while not self._readers_stopping.is_set():
            self._poll(consumer, reader)
        done.set()
        # May never return: a thread of librdkafka 2.16 can lock itself out when a broker leaves the
        # metadata while it is asked for the end of an epoch. What was read until then counts.
        consumer.close()

    def _poll(self, consumer, reader):
        for message in consumer.consume(200, 0.1):
            if message.error() is None:
                value = message.value().decode()
                reader.seen.append(Seen(message.partition(), message.offset(), value))

    def _read_all(self, reader):
        """Up to where every partition ends now; open transactions must have ended."""
        consumer = self._consumer(reader)
        ends = {n: self._end(consumer, n) for n in range(self._partitions)}
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            self._poll(consumer, reader)
            positions = {it.partition: it.offset for it in consumer.position(consumer.assignment())}
            # Behind the last record there may be a marker, which moves the position too.
            if all(max(positions[n], 0) >= end for n, end in ends.items()):
                break
        else:
            raise AssertionError(f"{reader.name} came to {positions} of {ends}")
        consumer.close()

    def _end(self, consumer, number):
        """Asked again while the answer is that another broker leads."""
        place, deadline = TopicPartition(self._topic, number), time.monotonic() + TIMEOUT_S
        while True:
            try:
                return consumer.get_watermark_offsets(place, TIMEOUT_S)[1]
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)


def retried(call):
    """Again while librdkafka says that the same call may be made again."""
    deadline = time.monotonic() + DRAIN_S
    while True:
        try:
            return call(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        with suppress(InterruptedError):
            time.sleep(PAUSE_S)
