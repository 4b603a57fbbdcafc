"""StreamQueue: what one stream of a ConsumerConnector hands out, message by message.

The loop fills the queue with chunks: the records of one fetch of one partition. The stream's thread
takes a chunk, and iterates over it without asking the loop; before each message it looks whether
the partition is still this consumer's (`kctl.kafka.claims`). A chunk whose claim has been closed is
dropped. While ZooKeeper does not answer, the stream waits for the lease, or for the claim's end.

Kafka 1.1: kafka.consumer.{KafkaStream, ConsumerIterator}.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.kafka.claims import Claim, Consumption, OffsetMoves
from kctl.kafka.errors import ConsumerTimeoutError
from kctl.records.record import Header, Record
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.store.consumer_znodes import BrokerPartition

# How often a stream looks whether a lease that has run out is there again, ms.
LEASE_POLL_MS = 50


class ConsumedMessage(NamedTuple):
    """A message of a stream. `value` is None for a tombstone; `timestamp_ms` -1 if it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...]
    # The broker that has the partition, in Kafka 0.7, where each counts its partitions from 0.
    broker_id: int | None = None

    @property
    def message(self) -> bytes | None:
        """Return the value, by its name in Kafka 0.7 and 0.8."""
        return self.value


class Chunk(NamedTuple):
    """Records of one fetch of one partition, in order."""

    claim: Claim
    records: Sequence[Record]
    # The offset to fetch next after this chunk.
    next_offset: int
    size_bytes: int

    def offset_after(self, index: int) -> int:
        """Return the offset to commit once the record at `index` is consumed.

        In Kafka 0.7 an offset is a position: where the next message begins. Within a compressed
        set that is the set's own beginning, so that all of it is read again.
        """
        if index + 1 == len(self.records):
            return self.next_offset
        if isinstance(self.claim.partition.partition, BrokerPartition):
            return self.records[index + 1].offset
        return self.records[index].offset + 1


class StreamQueue:
    """The chunks of one stream; its methods run on the loop."""

    def __init__(self, runtime: Runtime, timeout_ms: int) -> None:
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._timeout_ms = timeout_ms
        self._chunks: deque[Chunk] = deque()
        # How many of them each claim has: a fetcher asks for every partition at every chunk taken.
        self._counts: Counter[Claim] = Counter()
        self._errors: deque[KctlError] = deque(maxlen=1)
        self._waiting: Future[None] | None = None
        self._is_over = False

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk; its partition's queue is bounded by who fetches."""
        self._chunks.append(chunk)
        self._counts[chunk.claim] += 1
        self._wake()

    def chunks_of(self, claim: Claim) -> int:
        """Return how many chunks of a claim wait."""
        return self._counts[claim]

    def fail(self, error: KctlError) -> None:
        """Raise `error` in the stream once; it can be read again afterwards."""
        self._errors.append(error)
        self._wake()

    def end(self) -> None:
        """End the stream: what is queued is not delivered."""
        self._is_over = True
        self._chunks.clear()
        self._counts.clear()
        self._errors.clear()
        self._wake()

    async def next_chunk(self) -> Chunk | None:
        """Return the next chunk of an open claim with a lease, or None at the stream's end.

        Raise the error that `fail` was given, ConsumerTimeoutError after `consumer.timeout.ms`.
        """
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        while not self._is_over:
            if self._errors:
                raise self._errors.popleft()
            chunk = self._ready()
            if chunk is not None:
                return chunk
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if self._timeout_ms >= 0 and left_ms <= 0:
                raise ConsumerTimeoutError(f"no message within {self._timeout_ms} ms")
            limit_ms = left_ms if self._timeout_ms >= 0 else None
            if self._chunks:
                limit_ms = LEASE_POLL_MS if limit_ms is None else min(limit_ms, LEASE_POLL_MS)
            await self._wait(limit_ms)
        return None

    def _ready(self) -> Chunk | None:
        """Take the first chunk that may be delivered; drop those of closed claims."""
        while self._chunks and not self._chunks[0].claim.is_open:
            self._pop()
        if self._chunks and self._chunks[0].claim.may_deliver(self._clock.monotonic_ms()):
            return self._pop()
        return None

    def put_back(self, chunk: Chunk) -> None:
        """Put the rest of a chunk back whose lease has expired."""
        self._chunks.appendleft(chunk)
        self._counts[chunk.claim] += 1

    def _pop(self) -> Chunk:
        chunk = self._chunks.popleft()
        self._counts[chunk.claim] -= 1
        if not self._counts[chunk.claim]:
            del self._counts[chunk.claim]
        return chunk

    async def _wait(self, timeout_ms: int | None) -> None:
        waiting = self._waiting = self._scheduler.future()
        timer = None
        if timeout_ms is not None:
            timer = self._scheduler.call_later(max(1, timeout_ms), self._wake)
        try:
            await waiting
        finally:
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done:
            waiting.set_result(None)


class ChunkReader:
    """Hands out the messages of chunks; used by the stream's thread only."""

    def __init__(self, runtime: Runtime, moves: OffsetMoves) -> None:
        self._clock = runtime.clock
        self._consumption = Consumption(moves)
        self._chunk: Chunk | None = None
        self._records: Iterator[Record] = iter(())
        self._at = 0

    def asked_for_next(self) -> None:
        """Note that the application is done with the last message."""
        self._consumption.asked_for_next()

    def begin(self, chunk: Chunk) -> None:
        """Begin to hand out a chunk."""
        self._chunk, self._at = chunk, 0

    def rest(self) -> Chunk | None:
        """Return what is left of the chunk, if its partition is still this consumer's but for the
        lease."""
        chunk, self._chunk = self._chunk, None
        if chunk is None or not chunk.claim.is_open or self._at >= len(chunk.records):
            return None
        return chunk._replace(records=chunk.records[self._at :])

    def next(self) -> ConsumedMessage | None:
        """Return the next message that may be handed out; None: a chunk is needed."""
        chunk = self._chunk
        if chunk is None or self._at >= len(chunk.records):
            return None
        record = chunk.records[self._at]
        next_offset = chunk.offset_after(self._at)
        claim = chunk.claim
        if not self._consumption.hand_out(claim, next_offset, self._clock.monotonic_ms()):
            return None
        self._at += 1
        topic, number = claim.partition
        broker_id = None
        if isinstance(number, BrokerPartition):
            broker_id, number = number
        return ConsumedMessage(
            topic, number, record.offset, record.key, record.value, record.timestamp,
            record.headers, broker_id,
        )  # fmt: skip
