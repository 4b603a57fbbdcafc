"""ShardHost: loads a shard from its partition, writes its records and fires its timers.

Loading reads a bounded part per turn of the loop, so that a large partition delays no other client.
It ends when everything that was in the log at election is committed and read: records that only
this leader has may be lost with it, and a shard that serves from them would later forget what it
reported. (Apache Kafka 2.7.2 serves from everything in its log.) Then the shard is built, also in
turns. Until that is done it serves no requests. What others append to the log meanwhile
(transaction markers) is not read: they report it (`has_read`).

Writes requested in one turn of the loop go into one batch, because an append costs the same for one
record as for a hundred: under load the commits of many clients share one system call. Each Write
keeps its own result: a batch ends before a Write that would make it so large that another could
fail for it, and a Write of a transaction has its own batch. If nothing is pending, a single record
may be written at once instead (`write_now`).

Invariants: writes reach the log in the order of the requests, and are replayed in the order of the
log; a Write's `on_settled` is called once, after its records were replayed; a closed host neither
replays nor settles: `unload` has answered the waiting requests, and the writers' replies are
NOT_COORDINATOR.

Kafka trunk: CoordinatorRuntime.CoordinatorContext; Kafka 2.7: GroupMetadataManager.
"""

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kctl.broker.coordinator.outcome import (
    CoordinatorRecord,
    Later,
    Moment,
    Outcome,
    ReplyStream,
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
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
)
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import fail_loudly, in_turns
from kctl.work import Work

# A batch accepts no further Write once it has this many bytes.
BATCH_BYTES_MAX = 64 * 1024
# Maximum bytes of a record in addition to its key and value.
RECORD_OVERHEAD_MAX = 32
# How often a shard that has been read checks whether everything is committed.
COMMITTED_CHECK_MS = 5
# Replies of one Outcome sent per turn of the loop: each is encoded and costs a system call, about
# 20 microseconds.
REPLIES_PER_TURN = 200


class PartitionWriter(Protocol):
    """The coordinators' access to the logs of their topics."""

    def append(
        self,
        topic_partition: TopicPartition,
        records: bytearray,
        on_committed: Callable[[int, int], object],
    ) -> None:
        """Append one batch with acks=all.

        `on_committed(error code, base offset)` is called exactly once, in the order of the appends,
        when the high watermark has passed the batch or it failed (then the offset is -1). The call
        may come before `append` returns.
        """
        ...

    def append_now(self, topic_partition: TopicPartition, records: bytearray) -> int:
        """Append one batch if this commits it at once, and return its base offset.

        Return -1 if nothing was appended because it would wait for replicas or for the disk, or
        would fail; `append` then reports the error.
        """
        ...

    def read(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> bytes | None:
        """Return batches from the one that holds `offset` on, or None at the end of the log.

        They have about `max_bytes`, but at least one whole batch. Raise ApiError if this broker
        does not lead the partition.
        """
        ...

    def log_start_offset(self, topic_partition: TopicPartition) -> int:
        """Return the log start offset; raise ApiError as `read` does."""
        ...

    def log_end_offset(self, topic_partition: TopicPartition) -> int:
        """Return the offset that the next record gets; raise ApiError as `read` does."""
        ...

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """Return the end (exclusive) of the committed records; raise ApiError as `read` does."""
        ...


class Shard(Protocol):
    """A pure coordinator of the data stored in one partition."""

    def load(self, batch: Batch) -> Work[None]: ...

    def loaded(self, moment: Moment) -> Work[Outcome]: ...

    def replay(self, record: Any, record_offset: int, producer_id: int) -> None: ...

    def unload(self, moment: Moment) -> Work[Outcome]: ...

    def next_deadline_ms(self) -> int: ...

    def fire_timers(self, moment: Moment) -> Outcome: ...


S = TypeVar("S", bound=Shard)


class HostState(Enum):
    """The state of a shard: LOADING, then ACTIVE or FAILED, then CLOSED."""

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
        # Whether the log was read to its end. It is not read again: what is appended from then on,
        # also while the shard is built, must be reported to the shard.
        self.has_read = False
        self._load_bytes_max = load_bytes_max
        self._load_offset = 0
        # The end of the log when loading began.
        self._elected_end_offset = 0
        self._load_began_ms = 0
        self._compression_type = compression_type
        self._on_message = on_message
        # Writes for the batch that ends with this turn of the loop, and their approximate size.
        self._gathered: list[Write] = []
        self._gathered_bytes = 0
        self._is_flush_due = False
        # Written but not settled, in order.
        self._in_flight: dict[int, list[Write]] = {}
        self._batch_number = 0
        # Batches that the shard was informed had failed; one that timed out may still be committed.
        self.failed_batches = 0
        self._timer: Timer | None = None
        self._timer_ms = NEVER

    def moment(self) -> Moment:
        """Return the current time on both clocks."""
        return Moment(self._clock.monotonic_ms(), self._clock.wall_ms())

    @property
    def is_idle(self) -> bool:
        """Return whether no write is pending."""
        return not self._gathered and not self._in_flight

    # Loading

    def load(self) -> None:
        """Begin to read the partition; its shard is ACTIVE when everything is read."""
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
            in_turns(
                self._runtime.scheduler, self._read_some(), self._have_read, self._fail_reading
            )
        except Exception as error:  # noqa: BLE001 - in whichever turn, it ends the loading
            self._fail_reading(error)

    def _fail_reading(self, error: Exception) -> None:
        if not isinstance(error, KctlError):
            self._fail_loading(error)
        elif self.state is HostState.LOADING:
            self._fail(error)

    def _have_read(self, is_more: bool) -> None:
        if self.state is not HostState.LOADING:
            return
        try:
            committed_end = self._writer.high_watermark(self.topic_partition)
        except KctlError as error:
            self._fail(error)
            return
        if is_more:
            # A timer, not call_soon: between two parts the loop serves its sockets.
            self._runtime.scheduler.call_later(0, self._load_some)
        elif committed_end < self._elected_end_offset:
            self._runtime.scheduler.call_later(COMMITTED_CHECK_MS, self._load_some)
        else:
            self.has_read = True
            in_turns(
                self._runtime.scheduler,
                self.shard.loaded(self.moment()),
                self._finish_loading,
                self._fail_loading,
            )

    def _read_some(self) -> Work[bool]:
        """Load the next batches; return whether there were any.

        Invariant: between two turns the shard has a part of a batch, and nothing but this reads or
        changes it. A host that was closed meanwhile loads nothing more.
        """
        writer, topic_partition = self._writer, self.topic_partition
        if self._load_offset >= writer.log_end_offset(topic_partition):
            return False
        data = writer.read(topic_partition, self._load_offset, self._load_bytes_max)
        if not data:
            return False
        offset = self._load_offset
        for batch in batches(data):
            for _ in self.shard.load(batch):
                yield
                if self.state is not HostState.LOADING:
                    return False
            offset = batch.next_offset
        is_progress = offset > self._load_offset
        self._load_offset = offset
        return is_progress

    def _finish_loading(self, outcome: Outcome) -> None:
        if self.state is not HostState.LOADING:
            self._unload(self._release)
            return
        moment = self.moment()
        self.state = HostState.ACTIVE
        self._runtime.trace.event(
            "coordinator_loaded",
            partition=self.topic_partition,
            end_offset=self._load_offset,
            took_ms=moment.monotonic_ms - self._load_began_ms,
        )
        self.run(outcome)

    def _fail_loading(self, error: Exception) -> None:
        self.state = HostState.FAILED
        raise error

    def _fail(self, error: KctlError) -> None:
        self.state = HostState.FAILED
        self._runtime.trace.warning(
            f"Cannot load the coordinator shard of {self.topic_partition}: {error}"
        )

    def close(self) -> None:
        """Release the shard and answer, in turns, requests that wait for it or for its writes."""
        was_active = self.state is HostState.ACTIVE
        self.state = HostState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        if not was_active:
            return
        waiting = [*self._in_flight.values(), self._gathered]
        self._in_flight = {}
        self._gathered = []

        def unloaded(outcome: Outcome) -> None:
            self._release(outcome)
            for writes in waiting:
                not_leader = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._settle_each(writes, not_leader, self._release)

        self._unload(unloaded)

    def _unload(self, on_done: Callable[[Outcome], object]) -> None:
        in_turns(self._runtime.scheduler, self.shard.unload(self.moment()), on_done, fail_loudly)

    # Outcomes

    def run(self, outcome: Outcome | None) -> None:
        """Execute what the shard decided."""
        if outcome is None:
            return
        for error in outcome.errors:
            self._log(error)
        # Writes first: a reply may trigger the next request before it returns.
        for write in outcome.writes:
            self._gather(write)
        for later in outcome.later:
            self._decide(later)
        self._release(outcome)
        self._replied()

    def _replied(self, _: None = None) -> None:
        """Set the timer again if a deadline has become earlier."""
        if self.shard.next_deadline_ms() < self._timer_ms:
            self._set_timer()

    def _log(self, error: Exception) -> None:
        """Have the loop log `error`, which must not end what the caller does."""
        self._runtime.scheduler.call_soon(fail_loudly, error)

    def _run_while_active(self, outcome: Outcome | None) -> None:
        if self.state is HostState.ACTIVE:
            self.run(outcome)

    def _decide(self, later: Later) -> None:
        failed = partial(self._decision_failed, later)
        scheduler = self._runtime.scheduler
        try:
            in_turns(scheduler, later.work, self._run_while_active, failed)
        except Exception as error:  # noqa: BLE001 - in whichever turn, `failed` answers and logs it
            scheduler.call_soon(failed, error)

    def _decision_failed(self, later: Later, error: Exception) -> None:
        self._run_while_active(later.on_error(self.moment()))
        raise error

    def steps(self, steps: Generator[Outcome, None, Outcome]) -> Work[bool]:
        """Execute each Outcome of `steps`, with a `yield` after each but the last.

        Return True when all are done, or False if the shard was closed before.
        """
        is_last = False
        while self.state is HostState.ACTIVE:
            try:
                outcome = next(steps)
            except StopIteration as stop:
                outcome, is_last = stop.value, True
            self.run(outcome)
            if is_last:
                return True
            yield
        return False

    def _release(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        for name, fields in outcome.events:
            self._runtime.trace.event(name, partition=self.topic_partition.partition, **fields)
        for replies in (outcome.replies, *outcome.streams):
            if replies:
                in_turns(self._runtime.scheduler, _replying(replies), self._replied, fail_loudly)
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
        try:
            batch = self._batch(
                [record for write in writes for record in write.records],
                writes[0].producer_id,
                writes[0].producer_epoch,
            )
        except Exception as error:  # noqa: BLE001 - what waits for the writes must learn of it
            self._log(error)
            unknown = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._runtime.scheduler.call_soon(self._settle, writes, unknown)
            return
        self._batch_number += 1
        number = self._batch_number
        self._in_flight[number] = writes
        self._writer.append(self.topic_partition, batch, partial(self._committed, number))

    def _batch(
        self, records: Sequence[CoordinatorRecord], producer_id: int, producer_epoch: int
    ) -> bytearray:
        """Return the records as one batch with the current time; with a producer it is
        transactional."""
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
        """Write and replay a record without further steps; return False, with nothing done, if
        other writes are pending or it would have to wait."""
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
        if self.state is not HostState.ACTIVE:
            code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._settle_each(writes, code, self.run)

    def _settle_each(
        self, writes: list[Write], code: int, execute: Callable[[Outcome | None], object]
    ) -> None:
        moment = self.moment()
        for write in writes:
            if write.on_settled is None:
                continue
            try:
                execute(write.on_settled(code, moment))
            except Exception as error:  # noqa: BLE001 - the other writes must settle
                self._log(error)

    # Time

    def _set_timer(self) -> None:
        if self.state is not HostState.ACTIVE:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = self.shard.next_deadline_ms()
        self._timer = None
        if self._timer_ms != NEVER:
            self._timer = self._runtime.scheduler.call_at(self._timer_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_ms = NEVER
        if self.state is HostState.ACTIVE:
            try:
                self.run(self.shard.fire_timers(self.moment()))
            finally:
                self._set_timer()


def _replying(replies: ReplyStream) -> Work[None]:
    """Send `replies`, with a `yield` where they ask for one and after every REPLIES_PER_TURN."""
    left = REPLIES_PER_TURN
    for each in replies:
        if each is not None:
            left -= 1
            reply, response = each
            reply(response)
        if each is None or not left:
            left = REPLIES_PER_TURN
            yield
