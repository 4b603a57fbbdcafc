"""ReplicaManager: owns the Partitions of this broker; appends to them and reads from them.

Handlers access logs only through this class. Appends complete at once or, with acks=all, when the
high watermark has passed them; reads, at once or when enough bytes are available. Both wait in a
purgatory, checked after every append and move of a high watermark. `leadership` changes roles,
`fetch_reader` reads.

Kafka 2.7: kafka.server.ReplicaManager.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from kctl.broker.log.log_manager import LogManager
from kctl.broker.log.log_validator import CheckedRecords, ValidationInTurns
from kctl.broker.log.unified_log import (
    AppendOrigin,
    FetchDataInfo,
    FetchIsolation,
    LogAppendInfo,
)
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.append_turns import (
    Append,
    AppendTurns,
    Records,
    note_rejected,
    set_error,
)
from kctl.broker.replication.delayed import (
    AppendResult,
    DelayedFetch,
    DelayedProduce,
    FetchParams,
    FetchResult,
    PendingAppend,
    readable_end,
)
from kctl.broker.replication.fetch_reader import READS_PER_TURN, FetchReader
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.purgatory_timer import PurgatoryTimer
from kctl.broker.replication.record_deletions import RecordDeletions
from kctl.broker.replication.replica_selector import ReplicaSelector
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import CorruptDataError, KctlError, StorageError
from kctl.protocol.constants import ACKS_ALL, INTERNAL_TOPICS
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.runtime.complaints import Complaints
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import alone_in_turns, in_turns
from kctl.runtime.work_queue import WorkQueue
from kctl.work import Work, parts

# Looking up an Enum's member is slow.
_CLIENT: Final = AppendOrigin.CLIENT
# Partitions of a failed log directory that are announced in one turn, within 5 ms.
OFFLINE_PER_TURN: Final = 250
AppendEntry = tuple[str, int, Records]
Watched = dict[Hashable, tuple[Partition | None, FetchPartition]]


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        broker_id: int,
        log_manager: LogManager,
        *,
        leader_quota: ReplicationQuota | None = None,
        select_replica: ReplicaSelector | None = None,
        is_alive: Callable[[int], bool] = lambda _broker_id: True,
    ) -> None:
        """Create a manager; `leader_quota` limits what followers that catch up are sent, `is_alive`
        takes a broker id."""
        self.config = config
        self.broker_id = broker_id
        self.log_manager = log_manager
        self.partitions: dict[tuple[str, int], Partition] = {}
        # The highest controller epoch seen; requests of older controllers are rejected.
        self.controller_epoch = 0
        self._on_follower_fetch: Callable[[Partition, int], object] = _ignore_fetch
        self._on_offline: Callable[[Sequence[Partition]], object] = _ignore_offline
        self.leader_quota = leader_quota
        # Takes the topic and the size of records that a follower appends; None: they are not
        # counted.
        self.on_replicated: Callable[[str, int], object] | None = None
        self.reader = FetchReader(
            runtime.clock, broker_id, self.partitions, self.handle_storage_failure,
            self._log_is_damaged, leader_quota=leader_quota, select_replica=select_replica,
        )  # fmt: skip
        # Long work of requests, which iterates over records.
        self.work_queue = WorkQueue(runtime.scheduler)
        self._append_turns = AppendTurns(runtime.scheduler, self.work_queue)
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._failed_appends, self._damages = Complaints(), Complaints()
        self._produces = PurgatoryTimer(runtime)
        self._fetches = PurgatoryTimer(runtime)
        self._deletions = RecordDeletions(
            runtime, self.partitions, self.handle_storage_failure, is_alive
        )
        log_manager.failure_channel.on_failure(self._log_dir_failed)

    def on_follower_fetch(self, listener: Callable[[Partition, int], object]) -> None:
        """Call `listener` with the partition and the broker id after each fetch of a follower from
        a partition led here: the follower may have caught up."""
        self._on_follower_fetch = listener

    def on_offline(self, listener: Callable[[Sequence[Partition]], object]) -> None:
        """Call `listener` with the partitions that lost their log directory."""
        self._on_offline = listener

    def delayed_counts(self) -> dict[str, int]:
        """Return the number of waiting operations, by the names of Kafka's purgatories."""
        return {
            "Produce": len(self._produces),
            "Fetch": len(self._fetches),
            "DeleteRecords": len(self._deletions),
        }

    # --- partitions --------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Partition:
        """Return the partition; raise ApiError if this broker has no replica of it."""
        partition = self.partitions.get((topic, number))
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def wake(self, key: tuple[str, int]) -> None:
        """Check all operations that wait for the partition, whose role or high watermark
        changed."""
        self._produces.check(key)
        self._fetches.check(key)
        self._deletions.check(key)

    def wake_produces(self, key: tuple[str, int]) -> None:
        """Check produce requests that wait for the partition, whose ISR changed."""
        self._produces.check(key)

    def wake_fetches(self, key: tuple[str, int]) -> None:
        """Check fetches from consumers near this follower, which has more to read (KIP-392)."""
        self._fetches.check(key)

    # --- appends -----------------------------------------------------------------------------

    def append_records(
        self,
        entries: Sequence[AppendEntry],
        required_acks: int,
        timeout_ms: int,
        on_done: Callable[[list[AppendResult]], object],
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        """Append to each partition. `on_done` takes a result per entry, in order, once
        `required_acks` (-1, 0, 1) is met or after `timeout_ms`."""
        now_ms = self._clock.wall_ms()
        results = [AppendResult(topic, number) for topic, number, _ in entries]
        # One more than the entries, so that the request completes after all of them were started.
        left = len(entries) + 1

        def settled() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._appended(results, required_acks, timeout_ms, on_done)

        for result, (topic, number, records) in zip(results, entries, strict=True):
            append = partial(self._append, result, required_acks, origin, now_ms)
            self._append_turns.start(
                (topic, number), Append(records, append, settled), may_wait=origin is _CLIENT
            )
        settled()

    def _appended(
        self,
        results: list[AppendResult],
        required_acks: int,
        timeout_ms: int,
        on_done: Callable[[list[AppendResult]], object],
    ) -> None:
        for result in results:
            if result.is_pending:
                self._park(results, required_acks, timeout_ms, on_done)
                break
        else:
            on_done(results)
        # The producer has its response; now check the operations that wait for its records.
        for result in results:
            if result.info is not None:
                key = (result.topic, result.partition)
                self._fetches.check(key)
                if not result.is_pending:
                    self._produces.check(key)

    def append_plain(
        self,
        key: tuple[str, int],
        records: Records,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo | None:
        """Append to a single partition on the fast path, or return None if nothing was appended.
        The fast path covers appends that complete at once without an error; call `wake_readers`
        after it."""
        partition = self.partitions.get(key)
        if partition is None or (key[0] in INTERNAL_TOPICS and origin is _CLIENT):
            return None
        if key in self._append_turns.waiting:
            return None
        log = partition.log
        if (
            log is None
            or log.is_write_through
            or (required_acks == ACKS_ALL and partition.followers)
        ):
            return None
        try:
            return partition.append_as_leader(records, origin, required_acks, self._clock.wall_ms())
        except StorageError as error:
            self.handle_storage_failure(partition, error)
        except (ApiError, CorruptDataError, ValidationInTurns):
            pass  # the regular path gets the same error and reports it
        return None

    def wake_readers(self, key: tuple[str, int]) -> None:
        """Check the operations that may wait for the records of `append_plain`."""
        if key in self._fetches.watched:
            self._fetches.check(key)
        if key in self._produces.watched:
            self._produces.check(key)

    def _append(
        self,
        result: AppendResult,
        required_acks: int,
        origin: AppendOrigin,
        now_ms: int,
        records: Records | CheckedRecords | KctlError,
    ) -> None:
        topic = result.topic
        partition = self.partitions.get((topic, result.partition))
        if partition is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        if topic in INTERNAL_TOPICS and origin is AppendOrigin.CLIENT:
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            result.error_message = f"Cannot append to internal topic {topic}"
            return
        try:
            if isinstance(records, KctlError):
                raise records
            info = partition.append_as_leader(records, origin, required_acks, now_ms)
        except (ApiError, CorruptDataError, StorageError) as error:
            if isinstance(error, StorageError):
                self.handle_storage_failure(partition, error)
            if set_error(result, error, partition.log):
                self._log_failed_append(partition, result)
            note_rejected(records, error, partition.log)
            return
        result.info = info
        log = partition.log
        assert log is not None
        if log.is_write_through:
            self.flush_soon(partition)
        if required_acks == ACKS_ALL:
            result.is_pending = log.high_watermark <= info.last_offset
        elif log.is_write_through and required_acks:
            result.is_pending = log.recovery_point <= info.last_offset

    def _log_failed_append(self, partition: Partition, result: AppendResult) -> None:
        def message() -> str:
            code = ErrorCode(result.error_code)
            reason = f": {result.error_message}" if result.error_message else ""
            return f"Error processing append operation on partition {name}: {code.name}{reason}"

        name = str(partition.topic_partition)
        line = self._failed_appends.line(name, message, self._clock.monotonic_ms())
        if line is not None:
            self._trace.warning(line)

    def flush_soon(self, partition: Partition) -> None:
        """Flush the partition, with flush.messages=1; all who wait for a flush share it (group
        commit). Records that it makes durable may then be committed."""
        log = partition.log
        if log is None or log.recovery_point >= log.log_end_offset:
            return

        def flushed(_: Future[None]) -> None:
            partition.maybe_increment_high_watermark(self._clock.wall_ms())
            self.wake(partition.topic_partition)

        flush = self.log_manager.flush_soon(log)
        if flush is not partition.next_flush:
            # Only once per shared flush: each call checks all waiting operations.
            partition.next_flush = flush
            flush.add_done_callback(flushed)

    def _park(
        self,
        results: list[AppendResult],
        required_acks: int,
        timeout_ms: int,
        on_done: Callable[[list[AppendResult]], object],
    ) -> None:
        """Make the request wait for replicas, or for the disk."""
        pending = []
        keys = []
        for result in results:
            if result.is_pending and result.info is not None:
                key = (result.topic, result.partition)
                required = result.info.last_offset + 1
                only_flush = required_acks != ACKS_ALL
                pending.append(PendingAppend(result, self.partitions[key], required, only_flush))
                keys.append(key)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._produces.try_complete_else_watch(
            DelayedProduce(deadline_ms, pending, results, on_done), keys
        )

    # --- reads -------------------------------------------------------------------------------

    def fetch(
        self,
        params: FetchParams,
        partitions: Sequence[tuple[str, FetchPartition]],
        on_done: Callable[[list[FetchResult]], object],
        on_error: Callable[[Exception], object],
    ) -> None:
        """Read from each partition. `on_done` receives a result per partition, in order, once
        there are `min_bytes`, a partition has an error, or `max_wait_ms` expires; `on_error`
        receives an unexpected error of a later turn."""
        if len(partitions) < READS_PER_TURN:
            results = self.reader.read(params, partitions)
            self._fetched(params, partitions, on_done, on_error, results)
        else:
            done = partial(self._fetched, params, partitions, on_done, on_error)
            in_turns(self._scheduler, self.reader.read_in_parts(params, partitions), done, on_error)

    def _fetched(
        self,
        params: FetchParams,
        partitions: Sequence[tuple[str, FetchPartition]],
        on_done: Callable[[list[FetchResult]], object],
        on_error: Callable[[Exception], object],
        results: list[FetchResult],
    ) -> None:
        """Reply with the results of the first read, or wait for more."""
        if params.is_from_follower:
            recording = self._recording_follower_fetches(params.replica_id, results)
            recorded = partial(self._recorded, params, partitions, on_done, on_error, results)
            in_turns(self._scheduler, recording, recorded, on_error)
        else:
            self._recorded(params, partitions, on_done, on_error, results, None)

    def _recorded(
        self,
        params: FetchParams,
        partitions: Sequence[tuple[str, FetchPartition]],
        on_done: Callable[[list[FetchResult]], object],
        on_error: Callable[[Exception], object],
        results: list[FetchResult],
        _: None,
    ) -> None:
        if params.max_wait_ms <= 0 or not partitions or is_enough(params, results):
            self._complete(params, on_done, results)
            return
        deadline_ms = self._clock.monotonic_ms() + params.max_wait_ms
        watched: Watched = {}
        if len(partitions) < READS_PER_TURN:

            def read_again() -> None:
                self._complete(params, on_done, self.reader.read(params, partitions))

            readable = _sizes(results) if params.min_bytes > 1 else None
            watched.update(self._to_watch(partitions))
            # Nothing has changed since the read, so no second attempt is needed.
            delayed = DelayedFetch(deadline_ms, params, watched, read_again, readable)
            self._fetches.watch(delayed, watched)
        else:

            def read_again() -> None:
                again = self.reader.read_in_parts(params, partitions)
                done = partial(self._complete, params, on_done)
                in_turns(self._scheduler, again, done, on_error)

            delayed = DelayedFetch(deadline_ms, params, watched, read_again)
            self._fetches.watch(delayed, ())
            watching = self._watching(delayed, watched, partitions)
            in_turns(self._scheduler, watching, _nothing, on_error)

    def _complete(
        self,
        params: FetchParams,  # noqa: ARG002 - for those that count
        on_done: Callable[[list[FetchResult]], object],
        results: list[FetchResult],
    ) -> None:
        """Pass on what a fetch has read in the end."""
        on_done(results)

    def _to_watch(self, partitions: Sequence[tuple[str, FetchPartition]]) -> Watched:
        mine = self.partitions
        return {
            (key := (topic, request.partition)): (mine.get(key), request)
            for topic, request in partitions
        }

    def _watching(
        self,
        delayed: DelayedFetch,
        watched: Watched,
        partitions: Sequence[tuple[str, FetchPartition]],
    ) -> Work[None]:
        """Watch the partitions of a fetch, some in each turn. Each is examined in the turn in which
        it is watched, as it may have changed since it was read."""
        for number, part in enumerate(parts(partitions, READS_PER_TURN)):
            if number:
                yield
            more = self._to_watch(part)
            watched.update(more)
            if delayed.is_completed or self._fetches.watch_more(delayed, more):
                return

    def _recording_follower_fetches(
        self, broker_id: int, results: Sequence[FetchResult]
    ) -> Work[None]:
        """Record a broker's fetches, READS_PER_TURN in a turn."""
        for number, part in enumerate(parts(results, READS_PER_TURN)):
            if number:
                yield
            self._record_follower_fetches(broker_id, part)

    def _record_follower_fetches(self, broker_id: int, results: Sequence[FetchResult]) -> None:
        """Record a broker's fetches; its progress may commit records and complete waiting
        requests."""
        now_ms = self._clock.wall_ms()
        for result in results:
            # A follower that must truncate has diverged before its fetch offset.
            if result.error_code != 0 or result.diverging_epoch is not None:
                continue
            request = result.request
            partition = self.partitions.get((result.topic, request.partition))
            if partition is None:
                # It was removed after it was read.
                result.error_code, result.data = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
                continue
            quota = self.leader_quota
            if quota is not None and result.data and quota.is_throttled(partition.topic_partition):
                quota.record(len(result.data.records or b""), self._clock.monotonic_ms())
            try:
                if partition.update_follower(
                    broker_id, request.fetch_offset, request.log_start_offset, now_ms
                ):
                    self.wake((result.topic, request.partition))
                elif len(self._deletions):
                    self._deletions.check((result.topic, request.partition))
                self._on_follower_fetch(partition, broker_id)
            except ApiError as error:
                result.error_code = error.code
                result.data = None

    # --- deletion of records -----------------------------------------------------------------

    def delete_records(
        self,
        offsets: Sequence[tuple[str, int, int]],
        timeout_ms: int,
        on_done: Callable[[list[tuple[str, int, int, int]]], object],
    ) -> None:
        """Raise log start offsets. `on_done` takes (topic, partition, low watermark, error code)
        for each, once all live replicas followed or after `timeout_ms`."""
        self._deletions.delete(offsets, timeout_ms, on_done)

    # --- failures ----------------------------------------------------------------------------

    def handle_storage_failure(self, partition: Partition, error: StorageError) -> None:
        """Take the partition's directory offline after a failed file operation. A partition without
        a log (its files are damaged) goes offline alone."""
        if partition.log is not None:
            self.log_manager.handle_log_dir_failure(partition.log.log_directory, str(error))
        else:
            self._trace.warning(f"{partition.topic_partition} is offline: {error}")
        if partition.role is not Role.OFFLINE:
            self._go_offline([partition])

    def _log_is_damaged(self, partition: Partition, error: CorruptDataError) -> None:
        """Report a log that cannot be read where a fetch asks for it."""
        name, now_ms = str(partition.topic_partition), self._clock.monotonic_ms()
        line = self._damages.line(name, lambda: f"Cannot read from {name}: {error}", now_ms)
        if line is not None:
            self._trace.warning(line)

    def _log_dir_failed(self, log_dir: str, _reason: str) -> None:
        """Take the partitions in a failed directory offline; others are unaffected (KIP-112)."""
        self._go_offline(
            [
                partition
                for partition in self.partitions.values()
                if partition.log is not None and partition.log.log_directory == log_dir
            ]
        )

    def _go_offline(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            partition.mark_offline()
        # Later, because a listener's caller may be inside the append that failed.
        announcing = self._announcing_offline(partitions)
        self._scheduler.call_soon(alone_in_turns, self._scheduler, announcing)
        for partition in partitions:
            self.wake(partition.topic_partition)

    def _announcing_offline(self, partitions: Sequence[Partition]) -> Work[None]:
        """Call the listener for `partitions`, with a `yield` after every OFFLINE_PER_TURN."""
        for number, part in enumerate(parts(partitions, OFFLINE_PER_TURN)):
            if number:
                yield
            # A turn may have created a partition again, for a new topic of that name.
            self._on_offline([it for it in part if it.role is Role.OFFLINE])


def _nothing(_: None) -> None:
    """Do nothing when all partitions of a fetch are watched."""


def _sizes(results: Sequence[FetchResult]) -> dict[Hashable, int]:
    """Return the bytes that were read of each partition with any."""
    return {
        (result.topic, result.request.partition): len(result.data.records)
        for result in results
        if result.data is not None and result.data.records
    }


def _ignore_fetch(_partition: Partition, _broker_id: int) -> None:
    """Ignore a follower's fetch: a broker without a controller has no ISR."""


def _ignore_offline(_partitions: Sequence[Partition]) -> None:
    """Ignore partitions that went offline."""


def is_enough(params: FetchParams, results: Sequence[FetchResult]) -> bool:
    """Return whether a fetch completes at once: enough bytes, or an error."""
    total = 0
    for result in results:
        data = result.data
        if result.error_code != 0 or data is None:
            return True
        if data.records is not None:
            total += len(data.records)
    return total >= params.min_bytes


__all__ = [
    "AppendEntry",
    "AppendOrigin",
    "AppendResult",
    "FetchDataInfo",
    "FetchIsolation",
    "FetchParams",
    "FetchResult",
    "LogAppendInfo",
    "ReplicaManager",
    "readable_end",
]
