"""The clients of a cell, one mode each, and what each may see when brokers fail.

A: acks=1, B: acks=all, C: idempotent, D: transactions, and copiers that consume and produce in
transactions, G: a group of static members, I: idempotent with a producer for each partition.
"""

import signal
import threading
from collections import Counter
from contextlib import suppress
from itertools import pairwise

from confluent_kafka import Consumer, KafkaException, TopicPartition

from kctl.simulation.queue_checker import Anomaly, Kind, Outcome, check
from tests.support.copiers import Copiers, Output
from tests.support.queue_workload import CLIENT, IDEMPOTENT, TIMEOUT_S, QueueWorkload
from tests.torture.systems import PARTITIONS, until

ONE_BY_ONE = {"max.in.flight.requests.per.connection": 1}
PLAIN = {
    "A": {"acks": "1", **ONE_BY_ONE},
    "B": {"acks": "all", **ONE_BY_ONE},
    "C": dict(IDEMPOTENT),
    "I": dict(IDEMPOTENT),
}
IDEMPOTENT_MODES = "CI"
# What a producer without idempotence, or with acks=1, has not been promised.
NOT_PROMISED = {"A": {Kind.LOST_WRITE, Kind.DUPLICATE}, "B": {Kind.DUPLICATE}}
# And where leaders change: librdkafka continues with the new leader while a request to the old one,
# cut off or paused, is under way, and repeats that request later.
NOT_PROMISED_OF_MANY = {"A": {Kind.REORDERED}, "B": {Kind.REORDERED}}
MEMBERS = 2
POLLS_MAX = 60


def topic_of(mode):
    """Where the mode writes."""
    return f"queue-{mode.lower()}"


def topics_of(modes):
    """All topics that they need."""
    return [topic_of(mode) for mode in modes] + (["copies"] if "D" in modes else [])


class Clients:
    """One mode at work: `start`, `heal` after faults, `finish`, and the anomalies it saw."""

    def __init__(self, mode, system, seed, directory):
        self.mode = mode
        self._promised = set(Kind) - NOT_PROMISED.get(mode, set())
        if len(system.machines) > 1:
            self._promised -= NOT_PROMISED_OF_MANY.get(mode, set())
        self._queue = QueueWorkload(
            system.address, topic_of(mode), PARTITIONS, f"{seed}-{mode}", **self._roles()
        )

    def _roles(self):
        roles = {"transactional": 0, "readers": 1, "plain_settings": PLAIN[self.mode]}
        if self.mode == "C":
            roles["readers"] = 2
        elif self.mode == "I":
            roles |= {"plain": PARTITIONS, "is_partition_each": True}
        return roles

    def start(self):
        self._queue.start()
        return self

    @property
    def progress(self):
        """Grows with what is acknowledged."""
        return sum(map(len, self._queue.acknowledged.values())) + self.commits

    @property
    def commits(self):
        return self._queue.commits

    @property
    def written(self):
        """Return the writes that were acknowledged."""
        outcomes = [write.outcome for write in self._queue.history.writes.values()]
        return outcomes.count(Outcome.OK)

    @property
    def without_offset(self):
        """Return the writes that were acknowledged without an offset."""
        return self._queue.without_offset

    def wait_for(self, goal):
        """Until so much is acknowledged."""

        def is_there():
            assert not self._queue.failures, self._queue.failures
            return self.progress >= goal

        until(is_there, f"mode {self.mode} continues")

    def longest_gap_s(self, begin, end):
        """Between acknowledgements in one partition, from `begin` to `end`."""
        gaps = [0.0]
        for moments in self._queue.acknowledged.values():
            inside = [begin, *(it for it in list(moments) if begin < it < end)]
            gaps += [after - before for before, after in pairwise(inside)]
        return max(gaps)

    def heal(self):
        """After the cluster is whole."""

    def finish(self):
        """Let all end; what they saw that they may not see."""
        return [it for it in check(self._queue.finish()) if it.kind in self._promised]

    def close(self):
        self._queue.close()


class Transactions(Clients):
    """Writers that commit and abort; copiers of what they committed."""

    def __init__(self, mode, system, seed, directory):
        super().__init__(mode, system, seed, directory)
        self._system = system
        self.copiers = Copiers(system, topic_of(mode), "copies", directory)

    def _roles(self):
        return {"plain": 0, "transactional": 2, "readers": 2}

    def heal(self):
        for process in self.copiers.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.copiers.revive()

    def finish(self):
        anomalies = super().finish()
        values = [it.value for it in self._queue.history.last_committed.seen]
        expected = Counter(f"copy of {value}".encode() for value in values)
        first = self._output()
        first.read_until(len(values), 0.3, self.copiers)
        self.copiers.close()
        first.close()
        last = self._output()
        # Behind the last there may be too much: a copier's last transaction that was open.
        last.read_until(len(first.values), 1.0, self.copiers)
        last.close()
        found = Counter(last.values)
        return anomalies + [
            Anomaly(kind, repr(value))
            for kind, values in (
                (Kind.LOST_WRITE, expected - found),
                (Kind.DUPLICATE, found - expected),
            )
            for value in values
        ]

    def _output(self):
        return Output(self._system.address, "copies", PARTITIONS)

    def close(self):
        self.copiers.close()
        super().close()


class StaticGroup(Clients):
    """Members that keep their names while they come and go; what they committed is not read again
    by the next, and what they did not is."""

    def __init__(self, mode, system, seed, directory):
        super().__init__(mode, system, seed, directory)
        self._system = system
        self._stopping = threading.Event()
        self._seen = [set() for _ in range(MEMBERS)]
        self._failures = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(MEMBERS)
        ]

    def _roles(self):
        return {"transactional": 0, "readers": 0}

    def start(self):
        for thread in self._threads:
            thread.start()
        return super().start()

    def _consumer(self, **settings):
        return Consumer(
            {"bootstrap.servers": self._system.address, "group.id": "static",
             "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "session.timeout.ms": 4000, "heartbeat.interval.ms": 400, **CLIENT, **settings}
        )  # fmt: skip

    def _run(self, number):
        while not self._stopping.is_set():
            consumer = self._consumer(**{"group.instance.id": f"member-{number}"})
            consumer.subscribe([topic_of(self.mode)])
            try:
                self._live(consumer, self._seen[number], POLLS_MAX // (number + 1))
            except KafkaException as error:
                self._failures.append(str(error))
            # It leaves without a word, and is expected back.
            consumer.close()

    def _live(self, consumer, seen, polls):
        for _ in range(polls):
            if self._stopping.is_set():
                return
            messages = [it for it in consumer.consume(500, 0.1) if it.error() is None]
            seen.update(it.value().decode() for it in messages)
            if messages:
                # Rejected during a rebalance: another member reads the records again.
                with suppress(KafkaException):
                    consumer.commit(asynchronous=False)

    def finish(self):
        anomalies = super().finish()
        probe = self._consumer()
        places = [TopicPartition(topic_of(self.mode), number) for number in range(PARTITIONS)]
        ends = [probe.get_watermark_offsets(place, TIMEOUT_S)[1] for place in places]
        until(
            lambda: [it.offset for it in probe.committed(places, TIMEOUT_S)] == ends,
            f"the group commits {ends}",
        )
        probe.close()
        self._end()
        writes = self._queue.history.writes
        seen = set().union(*self._seen)
        there = {it.value for it in self._queue.history.last_committed.seen}
        return [
            *anomalies,
            *(Anomaly(Kind.SKIPPED, f"{it} by the group") for it in sorted(there - seen)),
            *(Anomaly(Kind.PHANTOM, f"{it} in the group") for it in sorted(seen - writes.keys())),
        ]

    def _end(self):
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def close(self):
        self._end()
        super().close()


MODES = {
    "A": Clients,
    "B": Clients,
    "C": Clients,
    "D": Transactions,
    "G": StaticGroup,
    "I": Clients,
}


def debug_idempotent(contexts):
    """Have librdkafka log to stderr what idempotent producers do, e.g. "eos,msg"."""
    for mode in IDEMPOTENT_MODES:
        PLAIN[mode] |= {"debug": contexts, "log_level": 7}


def wait_for_progress(clients, count):
    """Wait until each client has `count` further acknowledged writes."""
    for each, goal in [(it, it.progress + count) for it in clients]:
        each.wait_for(goal)
