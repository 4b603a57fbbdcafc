"""ShardHost: one shard at work: loaded from its partition, written to it, woken when time comes.

Loading reads a bounded piece per turn of the loop, so that a big partition holds up nobody. It is
done when all that the log had when the shard was elected is committed, and read: what only this
leader has may go with it, and a shard that answers from it forgets what it has said. (Apache Kafka
2.7.2 answers from all it has.) Until then nothing may be asked of the shard.

Writes that are asked for in one turn of the loop go into one batch, as an append costs the same
for one record and for a hundred: under load many clients' commits are in one system call. Each
Write keeps its own fate: a batch ends before a Write that would make it too large for a part of
it to be blamed on another, and a transaction's Write has a batch of its own. Where nothing waits,
a lone record may be written at once instead (`write_now`).

Invariants: writes reach the log in the order in which they were asked for, and are replayed in the
order of the log; a Write's `on_settled` is called once, after its records were replayed; a closed
host neither replays nor settles: `unload` has answered those who wait, and the writers' replies
say NOT_COORDINATOR.

Kafka trunk: CoordinatorRuntime.CoordinatorContext; Kafka 2.7: GroupMetadataManager.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kctl.broker.coordinator.outcome import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CoordinatorRecord,
    Moment,
    Outcome,
    Write,
)
from kctl.broker.coordinator.timers import NEVER
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.records.builder import assemble
from kctl.records.compression import compress
from kctl.records.memory_records import Batch, batches
from kctl.records.record import encode_record
from kctl.records.record_batch import (
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
)
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

# A batch takes no further Write once it has this many bytes.
BATCH_BYTES_MAX = 64 * 1024
# Bytes of a record beside its key and value, at most.
RECORD_OVERHEAD_MAX = 32
# How often a shard that has been read looks whether that is committed.
COMMITTED_CHECK_MS = 5


class PartitionWriter(Protocol):
    """The coordinators' only door to their topics' logs."""

    def append(
        self,
        topic_partition: TopicPartition,
        records: bytearray,
        on_committed: Callable[[int, int], object],
    ) -> None:
        """Append one batch with acks=all; `on_committed(error code, base offset)` exactly once,
        in the order of the appends, when the high watermark has passed it or it failed (then
        the offset is -1). May be called before `append` returns."""
        ...

    def append_now(self, topic_partition: TopicPartition, records: bytearray) -> int:
        """Append one batch if that commits it: its base offset. -1: nothing was appended, as it
        would have to wait for replicas or for the disk, or would fail; `append` tells more."""
        ...

    def read(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> bytes | None:
        """Batches from the one that holds `offset` on, about `max_bytes` but at least one whole
        batch; None at the log's end. ApiError if this broker does not lead the partition."""
        ...

    def log_start_offset(self, topic_partition: TopicPartition) -> int:
        """The first offset there is; ApiError as `read`."""
        ...

    def log_end_offset(self, topic_partition: TopicPartition) -> int:
        """The offset that the next record gets; ApiError as `read`."""
        ...

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """Up to where (exclusive) all is committed; ApiError as `read`."""
        ...


class Shard(Protocol):
    """A pure coordinator of what is kept in one partition."""

    def load(self, batch: Batch) -> None: ...

    def loaded(self, moment: Moment) -> Outcome: ...

    def replay(self, record: Any, record_offset: int, producer_id: int) -> None: ...

    def unload(self, moment: Moment) -> Outcome: ...

    def next_deadline_ms(self) -> int: ...

    def fire_timers(self, moment: Moment) -> Outcome: ...


S = TypeVar("S", bound=Shard)


class HostState(Enum):
    """LOADING, then ACTIVE or FAILED, then CLOSED."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class ShardHost(Generic[S]):
    """One shard and its partition."""

    def __init__(
        self,
        runtime: Runtime,
        writer: PartitionWriter,
        topic_partition: TopicPartition,
        shard: S,
        *,
        load_bytes_max: int,
        compression_type: int,
        on_message: "Callable[[ShardHost[S], Any], object] | None" = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.shard = shard
        self.state = HostState.LOADING
        self._runtime = runtime
        self._clock = runtime.clock
        self._writer = writer
        self._load_bytes_max = load_bytes_max
        self._load_offset = 0
        # Where the log ended when loading began.
        self._elected_end_offset = 0
        self._load_began_ms = 0
        self._compression_type = compression_type
        self._on_message = on_message
        # Writes for the batch that ends with this turn of the loop, and about their bytes.
        self._gathered: list[Write] = []
        self._gathered_bytes = 0
        self._is_flush_due = False
        # In the log but not settled, in order.
        self._in_flight: dict[int, list[Write]] = {}
        self._batch_number = 0
        # Batches that failed, as far as the shard was told: what timed out may yet be committed.
        self.failed_batches = 0
        self._timer: Timer | None = None
        self._timer_ms = NEVER

    def moment(self) -> Moment:
        """Now."""
        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())

    @property
    def is_idle(self) -> bool:
        """Whether no write is under way."""
        return not self._gathered and not self._in_flight

    # Loading

    def load(self) -> None:
        """Begin to read the partition; its shard is ACTIVE when all is read."""
        self._load_began_ms = self._clock.monotonic_ms()
        try:
            self._load_offset = self._writer.log_start_offset(self.topic_partition)
            self._elected_end_offset = self._writer.log_end_offset(self.topic_partition)
        except KctlError as error:
            self._fail(error)
        else:
            self._runtime.scheduler.call_later(0, self._load_some)

    def _load_some(self) -> None:
        if self.state is not HostState.LOADING:
            return
        try:
            is_more = self._read_some()
            committed_end = self._writer.high_watermark(self.topic_partition)
        except KctlError as error:
            self._fail(error)
            return
        if is_more:
            # A timer, not call_soon: between two pieces the loop serves its sockets.
            self._runtime.scheduler.call_later(0, self._load_some)
        elif committed_end < self._elected_end_offset:
            self._runtime.scheduler.call_later(COMMITTED_CHECK_MS, self._load_some)
        else:
            self._finish_loading()

    def _read_some(self) -> bool:
        writer, topic_partition = self._writer, self.topic_partition
        if self._load_offset >= writer.log_end_offset(topic_partition):
            return False
        data = writer.read(topic_partition, self._load_offset, self._load_bytes_max)
        if not data:
            return False
        offset = self._load_offset
        for batch in batches(data):
            self.shard.load(batch)
            offset = batch.next_offset
        is_progress = offset > self._load_offset
        self._load_offset = offset
        return is_progress

    def _finish_loading(self) -> None:
        moment = self.moment()
        self.state = HostState.ACTIVE
        self._runtime.trace.event(
            "coordinator_loaded",
            partition=self.topic_partition,
            end_offset=self._load_offset,
            took_ms=moment.monotonic_ms - self._load_began_ms,
        )
        self.run(self.shard.loaded(moment))

    def _fail(self, error: KctlError) -> None:
        self.state = HostState.FAILED
        self._runtime.trace.warning(f"Cannot load coordinator of {self.topic_partition}: {error}")

    def close(self) -> None:
        """Let the shard go. Whoever waits for it or for its writes is told so."""
        was_active = self.state is HostState.ACTIVE
        self.state = HostState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        if not was_active:
            return
        moment = self.moment()
        not_leader = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        waiting = [*self._in_flight.values(), self._gathered]
        self._in_flight = {}
        self._gathered = []
        self._release(self.shard.unload(moment))
        for writes in waiting:
            for write in writes:
                if write.on_settled is not None:
                    self._release(write.on_settled(not_leader, moment))

    # Outcomes

    def run(self, outcome: Outcome | None) -> None:
        """Carry out what the shard decided."""
        if outcome is None:
            return
        # Writes first: a reply may bring the next request before it returns.
        for write in outcome.writes:
            self._gather(write)
        self._release(outcome)
        if self.shard.next_deadline_ms() < self._timer_ms:
            self._set_timer()

    def _release(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        for name, fields in outcome.events:
            self._runtime.trace.event(name, partition=self.topic_partition.partition, **fields)
        for reply, response in outcome.replies:
            reply(response)
        if self._on_message is not None:
            for message in outcome.messages:
                self._on_message(self, message)

    # Writing

    def _gather(self, write: Write) -> None:
        if not write.records:
            self._runtime.scheduler.call_soon(self._settle, [write], 0)
            return
        size = 0
        for record in write.records:
            size += len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_MAX
        if write.producer_id != NO_PRODUCER_ID:
            self._flush()
            self._append([write])
            return
        if self._gathered_bytes + size > BATCH_BYTES_MAX:
            self._flush()
        self._gathered.append(write)
        self._gathered_bytes += size
        if not self._is_flush_due:
            self._is_flush_due = True
            self._runtime.scheduler.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        writes = self._gathered
        if writes:
            self._gathered = []
            self._gathered_bytes = 0
            self._append(writes)

    def _append(self, writes: list[Write]) -> None:
        batch = self._batch(
            [record for write in writes for record in write.records],
            writes[0].producer_id,
            writes[0].producer_epoch,
        )
        self._batch_number += 1
        number = self._batch_number
        self._in_flight[number] = writes
        self._writer.append(self.topic_partition, batch, partial(self._committed, number))

    def _batch(
        self, records: Sequence[CoordinatorRecord], producer_id: int, producer_epoch: int
    ) -> bytearray:
        """The records as one batch of now; a producer's is transactional."""
        body = bytearray()
        for number, record in enumerate(records):
            encode_record(body, number, 0, record.key, record.value)
        codec, now_ms = self._compression_type, self._clock.wall_ms()
        is_transactional = producer_id != NO_PRODUCER_ID
        return assemble(
            compress(codec, body) if codec else body,
            0,
            NO_PARTITION_LEADER_EPOCH,
            codec | TRANSACTIONAL_MASK if is_transactional else codec,
            len(records) - 1,
            now_ms,
            now_ms,
            producer_id,
            producer_epoch,
            0 if is_transactional else NO_SEQUENCE,
            len(records),
        )

    def write_now(self, record: CoordinatorRecord) -> bool:
        """Write and replay a record that nothing follows from; False, and nothing was done, if
        others wait or it would have to."""
        if self._gathered or self._in_flight:
            return False
        batch = self._batch((record,), NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        base_offset = self._writer.append_now(self.topic_partition, batch)
        if base_offset < 0:
            return False
        self.shard.replay(record, base_offset, NO_PRODUCER_ID)
        return True

    def _committed(self, number: int, code: int, base_offset: int) -> None:
        writes = self._in_flight.pop(number, None)
        if writes is None:
            return  # closed meanwhile
        if code != 0:
            self.failed_batches += 1
        else:
            record_offset = base_offset
            replay = self.shard.replay
            for write in writes:
                for record in write.records:
                    replay(record, record_offset, write.producer_id)
                    record_offset += 1
        self._settle(writes, code)

    def _settle(self, writes: list[Write], code: int) -> None:
        moment = self.moment()
        if self.state is not HostState.ACTIVE:
            code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for write in writes:
            if write.on_settled is not None:
                self.run(write.on_settled(code, moment))

    # Time

    def _set_timer(self) -> None:
        if self.state is not HostState.ACTIVE:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = self.shard.next_deadline_ms()
        self._timer = None
        if self._timer_ms != NEVER:
            self._timer = self._runtime.scheduler.call_at(self._timer_ms, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self._timer_ms = NEVER
        if self.state is HostState.ACTIVE:
            self.run(self.shard.fire_timers(self.moment()))
            self._set_timer()
