"""A producer that never stops, with acks=all, on a broker that comes and goes; and a reader that
says what became of its records."""

import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 60
PAUSE_AFTER = 50


class SteadyProducer:
    """Sends numbered values to every partition in turn from a thread of its own.

    `rate_max`: how many a second at most.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        *,
        value_bytes=100,
        idempotent=True,
        rate_max=None,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        # (partition, offset) -> number, as the broker acknowledged it.
        self.acked = {}
        self.errors = []
        self.sent = 0
        self._pause_s = PAUSE_AFTER / rate_max if rate_max else 0
        self._padding = b"." * value_bytes
        self._producer = Producer({
            "bootstrap.servers": address,
            "enable.idempotence": idempotent,
            "acks": "all",
            "message.timeout.ms": 120_000,
            "linger.ms": 2,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "queue.buffering.max.messages": 2_000,
            "logger": _SILENT,
        })  # fmt: skip
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            self._send_on_and_on()
        except KafkaException as error:
            # Fatal: its sequence numbers are not the broker's.
            self.errors.append((self.sent, str(error)))

    def _send_on_and_on(self):
        while not self._stopping.is_set():
            number = self.sent
            try:
                self._producer.produce(
                    self.topic,
                    b"%d" % number + self._padding,
                    partition=number % self.partitions,
                    on_delivery=lambda error, message, number=number: self._delivered(
                        error, message, number
                    ),
                )
            except BufferError:
                self._producer.poll(0.01)
                continue
            self.sent += 1
            self._producer.poll(0)
            if self._pause_s and self.sent % PAUSE_AFTER == 0:
                time.sleep(self._pause_s)

    def _delivered(self, error, message, number):
        if error is not None:
            self.errors.append((number, str(error)))
            return
        where = message.partition(), message.offset()
        if where in self.acked:
            self.errors.append((number, f"{where} was {self.acked[where]} before"))
        self.acked[where] = number

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stopping.set()
        self._thread.join()

    def wait_for_more(self, count):
        """Until `count` more records are acknowledged."""
        goal, deadline = len(self.acked) + count, time.monotonic() + TIMEOUT_S
        while len(self.acked) < goal:
            assert time.monotonic() < deadline, "the producer makes no progress"
            assert not self.errors, self.errors[:3]
            time.sleep(0.01)

    def finish(self):
        """Stop sending, and wait until every record sent is acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0
        assert self.errors == []

    def check(self, address):
        """As `check_acked`, and all that was sent is there once and in order: of an idempotent
        producer."""
        numbers = self.check_acked(address)
        for partition in range(self.partitions):
            order = [n for (p, _), n in sorted(numbers.items()) if p == partition]
            assert order == list(range(partition, self.sent, self.partitions)), partition

    def check_acked(self, address):
        """Every acknowledged record is where it was acknowledged; (partition, offset) -> number of
        all that are there."""
        found = read_all(address, self.topic, self.partitions)
        numbers = {where: int(value.rstrip(b".")) for where, value in found.items()}
        missing = {w: n for w, n in self.acked.items() if numbers.get(w) != n}
        assert not missing, sorted(missing.items())[:5]
        return numbers


def read_all(address, topic, partitions):
    """(partition, offset) -> value of everything there is."""
    consumer = Consumer({
        "bootstrap.servers": address,
        "group.id": "check",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "logger": _SILENT,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended, deadline = {}, set(), time.monotonic() + TIMEOUT_S
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, "the consumer received no record in time"
            for message in consumer.consume(1000, 0.2):
                if message.error() is not None:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    ended.add(message.partition())
                else:
                    found[message.partition(), message.offset()] = message.value()
    finally:
        consumer.close()
    return found


class _Silent:
    """Brokers that are gone are no news here."""

    def log(self, *_):
        pass


_SILENT = _Silent()
