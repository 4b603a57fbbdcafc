"""LatencyProbe: writes a small record to each partition of a topic again and again, reads it back,
and measures how long both take, as clients see it.

A record that is sent is acknowledged or has failed to be written; one that is acknowledged is read
back within READ_MS_MAX or has failed to be read. Each is counted once. Writing and reading have
connections of their own, as a broker answers the requests of a connection in order: behind a fetch
that waits, a record would seem slow.

Only a topic that is empty, or that has records of probes, is written to. Records have the sequence
number and the random id of their probe, so that several processes may probe one topic.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.topics import NewTopic
from kctl.client.consumer import PartitionReader
from kctl.client.offsets import OffsetsClient
from kctl.client.producer import NewRecord, Producer
from kctl.client.results import is_unknown_topic
from kctl.errors import ImpossibleError, KctlError, NotFoundError
from kctl.lazy_dataclass import dataclass
from kctl.metrics import cluster_families as c
from kctl.metrics.family import Sample, Samples
from kctl.metrics.histogram import Histogram
from kctl.model import TopicPartition
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.runtime.future import Task

INTERVAL_MS = 1_000
INTERVAL_MS_MIN = 100
# Partitions beyond these are not probed; one for each broker is enough.
PARTITIONS_MAX = 100
REPLICAS_MAX = 3
# How long a record may take to be acknowledged, and to be read back, both from its sending.
WRITE_MS_MAX = 5_000
READ_MS_MAX = 10_000
RETENTION_MS = 600_000
KEY_PREFIX = b"kctl-probe/"
_ID_BYTES = 8
_READY_ROUNDS_MAX = 100
_READY_WAIT_MS = 100
_RETRY_MS = 1_000
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
# The directions in which a record fails.
PRODUCE, CONSUME = "produce", "consume"


@dataclass(slots=True)
class ProbedPartition:
    """What is known of one partition."""

    partition: TopicPartition
    sent: int = 0
    written: Histogram = field(default_factory=Histogram)
    read: Histogram = field(default_factory=Histogram)
    failed_writes: int = 0
    failed_reads: int = 0
    # Sequence number -> when it was sent (monotonic ns); at most as many as fit READ_MS_MAX.
    pending: dict[int, int] = field(default_factory=dict)


class LatencyProbe:
    """Probes one topic; `samples` is what it has measured."""

    def __init__(
        self,
        admin: "AdminClient",
        topic: str,
        *,
        interval_ms: int = INTERVAL_MS,
        on_failure: Callable[[str], object] = lambda _why: None,
    ) -> None:
        """Take an AdminClient; `on_failure` takes a line when the topic can no longer be read."""
        self.topic = topic
        self.partitions: list[ProbedPartition] = []
        self._admin = admin
        self._writing, self._reading = admin.router.another(), admin.router.another()
        runtime = admin.router.runtime
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._interval_ms = max(interval_ms, INTERVAL_MS_MIN)
        self._on_failure = on_failure
        self._key = KEY_PREFIX + runtime.entropy.random_bytes(_ID_BYTES).hex().encode()
        self._positions: dict[TopicPartition, int] = {}
        self._tasks: list[Task[None]] = []

    # --- the topic ---------------------------------------------------------------------------

    async def plan(self) -> NewTopic | None:
        """Return the topic to create, or None if it exists: a partition for each broker."""
        [found] = await self._admin.topics.describe([self.topic])
        if found.error is None:
            return None
        if not is_unknown_topic(found.error):
            raise found.error
        brokers = len((await self._admin.cluster.describe()).brokers)
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(RETENTION_MS),
            "segment.ms": str(RETENTION_MS),
        }
        partitions = min(brokers, PARTITIONS_MAX)
        return NewTopic(self.topic, partitions, min(brokers, REPLICAS_MAX), configs)

    async def open(self, *, creates: bool, say: Callable[[str], object]) -> None:
        """Find the topic, or create it if it `creates`, and `say` so. Raise NotFoundError if it
        does not exist, ImpossibleError if it has other records, and KctlError."""
        new = await self.plan()
        if new is not None:
            text = described(new)
            if not creates:
                raise NotFoundError(
                    f"Topic {self.topic} does not exist",
                    hint=f"--create-probe-topic creates it with {text}",
                )
            say(f"creating topic {self.topic} with {text}")
            [result] = await self._admin.topics.create([new])
            if result.error is not None:
                raise result.error
        numbers = await self._numbers()
        self.partitions = [
            ProbedPartition(TopicPartition(self.topic, number))
            for number in numbers[:PARTITIONS_MAX]
        ]
        await self._check_is_ours()

    async def _numbers(self) -> list[int]:
        """Return the partitions once all have leaders, or those that there are after a while."""
        numbers: list[int] = []
        for _ in range(_READY_ROUNDS_MAX):
            [found] = await self._admin.topics.describe([self.topic])
            numbers = sorted(it.partition for it in found.partitions)
            if numbers and not any(it.is_offline for it in found.partitions):
                break
            await sleep(self._scheduler, _READY_WAIT_MS)
        return numbers

    async def _check_is_ours(self) -> None:
        """Find the ends of the partitions; raise ImpossibleError if a last record is no probe's."""
        offsets = OffsetsClient(self._reading)
        wanted = [it.partition for it in self.partitions]
        ends, starts = await offsets.latest(wanted), await offsets.earliest(wanted)
        for found in (*ends.values(), *starts.values()):
            if found.error is not None:
                raise found.error
        self._positions = {partition: end.offset for partition, end in ends.items()}
        lasts = {
            partition: end - 1
            for partition, end in self._positions.items()
            if end > starts[partition].offset
        }
        if not lasts:
            return
        reader = PartitionReader(self._reading, lasts, {it: lasts[it] + 1 for it in lasts})
        try:
            while not reader.is_done:
                for it in await reader.poll():
                    if not (it.record.key or b"").startswith(KEY_PREFIX):
                        raise ImpossibleError(
                            f"Topic {self.topic} has records that are not those of a probe",
                            hint="name a topic of its own, or one that does not exist yet",
                        )
        finally:
            reader.close()

    # --- probing -----------------------------------------------------------------------------

    def start(self) -> None:
        """Probe until `close`."""
        spawn = self._scheduler.spawn
        self._tasks = [spawn(self._write_on(it), "probe-write") for it in self.partitions]
        self._tasks.append(spawn(self._read_on(), "probe-read"))

    def close(self) -> None:
        """Stop probing and close the connections."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._writing.close()
        self._reading.close()

    async def _write_on(self, probed: ProbedPartition) -> None:
        producer = Producer(self._writing, self.topic, timeout_ms=WRITE_MS_MAX, is_idempotent=False)
        while True:
            began_ns = self._clock.monotonic_ns()
            await self._write(producer, probed)
            self._expire(probed)
            took_ms = (self._clock.monotonic_ns() - began_ns) // _NS_PER_MS
            await sleep(self._scheduler, max(self._interval_ms - took_ms, 1))

    async def _write(self, producer: Producer, probed: ProbedPartition) -> None:
        sequence = probed.sent
        probed.sent += 1
        sent_ns = probed.pending[sequence] = self._clock.monotonic_ns()
        number = probed.partition.partition
        record = NewRecord(self._key, str(sequence).encode(), partition=number)
        try:
            [result] = await producer.send([record])
            is_written = result.error is None
        except KctlError:
            is_written = False
        if is_written:
            probed.written.observe(self._seconds_since(sent_ns))
        else:
            probed.failed_writes += 1
            probed.pending.pop(sequence, None)

    def _expire(self, probed: ProbedPartition) -> None:
        """Give up records that were written, and not read back in time."""
        oldest_ns = self._clock.monotonic_ns() - READ_MS_MAX * _NS_PER_MS
        for sequence in [it for it, sent_ns in probed.pending.items() if sent_ns < oldest_ns]:
            del probed.pending[sequence]
            probed.failed_reads += 1

    async def _read_on(self) -> None:
        by_partition = {it.partition: it for it in self.partitions}
        reader = PartitionReader(self._reading, self._positions)
        try:
            while True:
                try:
                    for it in await reader.poll():
                        found = by_partition[TopicPartition(it.topic, it.partition)]
                        self._take(found, it.record.key, it.record.value)
                except KctlError as error:
                    # What is not read back meanwhile is counted with its partition.
                    self._on_failure(f"cannot read the probes in {self.topic}: {error}")
                    reader.close()
                    await sleep(self._scheduler, _RETRY_MS)
                    reader = PartitionReader(self._reading, reader.positions)
        finally:
            reader.close()

    def _take(self, probed: ProbedPartition, key: bytes | None, value: bytes | None) -> None:
        if key != self._key or value is None or not value.isdigit():
            return
        sent_ns = probed.pending.pop(int(value), None)
        if sent_ns is not None:
            probed.read.observe(self._seconds_since(sent_ns))

    def _seconds_since(self, moment_ns: int) -> float:
        return (self._clock.monotonic_ns() - moment_ns) / _NS_PER_S

    # --- metrics -----------------------------------------------------------------------------

    def samples(self) -> Samples:
        """Yield what was measured."""
        named = [(str(it.partition.partition), it) for it in self.partitions]
        for name, it in named:
            yield Sample(c.PROBE_SENT, (name,), it.sent)
        for name, it in named:
            yield Sample(c.PROBE_FAILURES, (name, PRODUCE), it.failed_writes)
            yield Sample(c.PROBE_FAILURES, (name, CONSUME), it.failed_reads)
        for name, it in named:
            yield Sample(c.PROBE_PRODUCE, (name,), it.written.value())
        for name, it in named:
            yield Sample(c.PROBE_END_TO_END, (name,), it.read.value())


def described(topic: NewTopic) -> str:
    """Return a topic to create in one line."""
    configs: Mapping[str, str] = topic.configs
    settings = ", ".join(f"{name}={value}" for name, value in sorted(configs.items()))
    return (
        f"partitions={topic.partitions}, replication factor={topic.replication_factor}, {settings}"
    )
