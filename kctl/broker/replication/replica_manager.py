"""ReplicaManager: owns the Partitions of this broker; appends to them and reads from them.

Handlers reach logs only through here. Appends are answered at once or, with acks=all, when the
high watermark has passed them; reads at once or when enough bytes have come. Both wait in a
purgatory under the partition's key, which is checked after every append and every move of a high
watermark. What the controller says about roles is carried out in `leadership`.

Kafka 2.7: kafka.server.ReplicaManager.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from kctl.broker.config import BrokerConfig
from kctl.broker.log.log_manager import LogManager
from kctl.broker.log.unified_log import (
    AppendOrigin,
    FetchDataInfo,
    FetchIsolation,
    LogAppendInfo,
    UnifiedLog,
)
from kctl.broker.log.validation_rules import RecordValidationError
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.delayed import (
    CONSUMER_REPLICA_ID,
    AppendResult,
    DelayedDeleteRecords,
    DelayedFetch,
    DelayedProduce,
    FetchParams,
    FetchResult,
    PendingAppend,
    readable_end,
)
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.purgatory_timer import PurgatoryTimer
from kctl.broker.replication.replica_selector import ReplicaSelector
from kctl.errors import CorruptDataError, KctlError, StorageError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import Work, in_turns

ACKS_ALL = -1
# Partitions of one fetch that are read between two turns for others, about 5 ms.
READS_PER_TURN = 1_000
# Topics that clients must not write to.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
# An Enum takes long to look its members up.
_CLIENT = AppendOrigin.CLIENT
# Errors of a produce request that say nothing about the log; any other tells where it begins.
_ERRORS_BEFORE_THE_LOG = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

Records = bytearray | memoryview
AppendEntry = tuple[str, int, Records]


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, broker_id: int, log_manager: LogManager
    ) -> None:
        self.config = config
        self.broker_id = broker_id
        self.log_manager = log_manager
        self.partitions: dict[tuple[str, int], Partition] = {}
        # The highest controller epoch heard of; older controllers are not obeyed.
        self.controller_epoch = 0
        # A follower fetched from a partition led here: perhaps it has caught up.
        self.on_follower_fetch: Callable[[Partition, int], object] = _nobody_asks
        # Partitions lost their log directory.
        self.on_offline: Callable[[Sequence[Partition]], object] = _nobody_minds
        # What followers that catch up may be sent; None: as much as they ask for.
        self.leader_quota: ReplicationQuota | None = None
        # replica.selector.class; None: this broker serves whoever asks it.
        self.select_replica: ReplicaSelector | None = None
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._produces = PurgatoryTimer(runtime)
        self._fetches = PurgatoryTimer(runtime)
        self._deletes = PurgatoryTimer(runtime)
        log_manager.failure_channel.on_failure(self._log_dir_failed)

    # --- partitions --------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Partition:
        """The partition; ApiError if this broker has no replica of it."""
        partition = self.partitions.get((topic, number))
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def leader_logs(self) -> Iterator[tuple[TopicPartition, UnifiedLog]]:
        """The logs that this broker leads."""
        for partition in self.partitions.values():
            if partition.role is Role.LEADER and partition.log is not None:
                yield partition.topic_partition, partition.log

    def wake(self, key: tuple[str, int]) -> None:
        """The partition's role or high watermark changed: ask all that waits for it."""
        self._produces.check(key)
        self._fetches.check(key)
        self._deletes.check(key)

    def wake_produces(self, key: tuple[str, int]) -> None:
        """The partition's ISR changed: acks=all may have waited for that."""
        self._produces.check(key)

    def wake_fetches(self, key: tuple[str, int]) -> None:
        """A follower got more to read: consumers near it may wait for that (KIP-392)."""
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
        """Append to each partition; `on_done` gets a result per entry, in order, once
        `required_acks` (-1, 0, 1) is met or `timeout_ms` is over."""
        now_ms = self._clock.wall_ms()
        results = [
            self._append(topic, number, records, required_acks, origin, now_ms)
            for topic, number, records in entries
        ]
        for result in results:
            if result.is_pending:
                self._park(results, required_acks, timeout_ms, on_done)
                break
        else:
            on_done(results)
        # The producer has its answer; now those who wait for its records.
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
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo | None:
        """`append_records` for an only partition if what comes of it is known at once and
        needs no words; follow it with `wake_readers`. None: nothing was appended."""
        partition = self.partitions.get(key)
        if partition is None or (key[0] in INTERNAL_TOPICS and origin is _CLIENT):
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
        except (ApiError, CorruptDataError):
            pass  # Whoever tries again, at length, gets the same error and finds the words.
        return None

    def wake_readers(self, key: tuple[str, int]) -> None:
        """What `append_plain` appended may be what somebody waits for."""
        if key in self._fetches.watched:
            self._fetches.check(key)
        if key in self._produces.watched:
            self._produces.check(key)

    def _append(
        self,
        topic: str,
        number: int,
        records: Records,
        required_acks: int,
        origin: AppendOrigin,
        now_ms: int,
    ) -> AppendResult:
        result = AppendResult(topic, number)
        partition = self.partitions.get((topic, number))
        if partition is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return result
        if topic in INTERNAL_TOPICS and origin is AppendOrigin.CLIENT:
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            result.error_message = f"Cannot append to internal topic {topic}"
            return result
        try:
            info = partition.append_as_leader(records, origin, required_acks, now_ms)
        except (ApiError, CorruptDataError, StorageError) as error:
            self._append_failed(partition, result, error)
            return result
        result.info = info
        log = partition.log
        assert log is not None
        if log.is_write_through:
            self.flush_soon(partition)
        if required_acks == ACKS_ALL:
            result.is_pending = log.high_watermark <= info.last_offset
        elif log.is_write_through and required_acks:
            result.is_pending = log.recovery_point <= info.last_offset
        return result

    def _append_failed(self, partition: Partition, result: AppendResult, error: KctlError) -> None:
        if isinstance(error, ApiError):
            result.error_code = error.code
            result.error_message = error.reason
            if isinstance(error, RecordValidationError):
                result.record_errors = error.record_errors
        elif isinstance(error, StorageError):
            self.handle_storage_failure(partition, error)
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            result.error_code = ErrorCode.CORRUPT_MESSAGE
            result.error_message = str(error)
        if result.error_code not in _ERRORS_BEFORE_THE_LOG and partition.log is not None:
            result.log_start_offset = partition.log.log_start_offset

    def flush_soon(self, partition: Partition) -> None:
        """flush.messages=1: have the disk take what the partition has; the same flush serves all
        who wait for one (group commit). What it makes durable may then be committed."""
        log = partition.log
        if log is None or log.recovery_point >= log.log_end_offset:
            return

        def flushed(_: Future[None]) -> None:
            partition.maybe_increment_high_watermark(self._clock.wall_ms())
            self.wake(partition.topic_partition)

        flush = self.log_manager.flush_soon(log)
        if flush is not partition.next_flush:
            # Once for all who share it: each call asks everybody who waits.
            partition.next_flush = flush
            flush.add_done_callback(flushed)

    def _park(
        self,
        results: list[AppendResult],
        required_acks: int,
        timeout_ms: int,
        on_done: Callable[[list[AppendResult]], object],
    ) -> None:
        """Have the request wait for replicas, or for the disk."""
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
    ) -> None:
        """Read from each partition; `on_done` gets a result per partition, in order, once
        there are `min_bytes`, something is wrong, or `max_wait_ms` is over."""
        if len(partitions) < READS_PER_TURN:
            self._fetched(params, partitions, on_done, self.read(params, partitions))
        else:
            done = partial(self._fetched, params, partitions, on_done)
            in_turns(self._scheduler, self._read_in_parts(params, partitions), done)

    def _fetched(
        self,
        params: FetchParams,
        partitions: Sequence[tuple[str, FetchPartition]],
        on_done: Callable[[list[FetchResult]], object],
        results: list[FetchResult],
    ) -> None:
        """Answer with the results of the first read, or wait for more."""
        if params.is_from_follower:
            self._note_follower(params.replica_id, results)
        if params.max_wait_ms <= 0 or not partitions or is_enough(params, results):
            on_done(results)
            return
        keys = [(topic, request.partition) for topic, request in partitions]
        requests = [request for _, request in partitions]
        watched = list(zip(map(self.partitions.get, keys), requests, strict=True))
        deadline_ms = self._clock.monotonic_ms() + params.max_wait_ms
        if len(partitions) < READS_PER_TURN:
            # Nothing has happened since the read: there is no need to try again.
            self._fetches.watch(
                DelayedFetch(
                    deadline_ms,
                    params,
                    watched,
                    lambda: on_done(self.read(params, partitions)),
                ),
                keys,
            )
        else:
            again = self._read_in_parts(params, partitions)
            self._fetches.try_complete_else_watch(
                DelayedFetch(
                    deadline_ms,
                    params,
                    watched,
                    lambda: in_turns(self._scheduler, again, on_done),
                ),
                keys,
            )

    def read(
        self, params: FetchParams, partitions: Sequence[tuple[str, FetchPartition]]
    ) -> list[FetchResult]:
        """One pass over the partitions: slices of files, within the limits of the request."""
        results: list[FetchResult] = []
        # KIP-74: the first batch found is given whole, even beyond the limits.
        self._read_part(results, params, partitions, params.max_bytes, not params.is_hard_limit)
        return results

    def _read_in_parts(
        self, params: FetchParams, partitions: Sequence[tuple[str, FetchPartition]]
    ) -> Work[list[FetchResult]]:
        """`read`, with turns of the loop for others."""
        results: list[FetchResult] = []
        limits = params.max_bytes, not params.is_hard_limit
        for start in range(0, len(partitions), READS_PER_TURN):
            if start:
                yield
            part = partitions[start : start + READS_PER_TURN]
            limits = self._read_part(results, params, part, *limits)
        return results

    def _read_part(
        self,
        results: list[FetchResult],
        params: FetchParams,
        partitions: Sequence[tuple[str, FetchPartition]],
        bytes_left: int,
        min_one_message: bool,
    ) -> tuple[int, bool]:
        """Add the results of some partitions; the limits for those that follow."""
        for topic, request in partitions:
            result = self._read_one(params, topic, request, bytes_left, min_one_message)
            size = len(result.data.records) if result.data and result.data.records else 0
            if size:
                min_one_message = False
                bytes_left = max(0, bytes_left - size)
            results.append(result)
        return bytes_left, min_one_message

    def _read_one(
        self,
        params: FetchParams,
        topic: str,
        request: FetchPartition,
        bytes_left: int,
        min_one_message: bool,
    ) -> FetchResult:
        result = FetchResult(topic, request)
        partition = self.partitions.get((topic, request.partition))
        if partition is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return result
        try:
            if params.client_rack and self._is_nearer_elsewhere(params, partition, result):
                pass
            elif request.last_fetched_epoch >= 0:
                result.diverging_epoch = partition.find_divergence(
                    request.fetch_offset,
                    request.last_fetched_epoch,
                    request.current_leader_epoch,
                    only_leader=params.only_leader,
                )
            if result.diverging_epoch is None and result.preferred_read_replica < 0:
                is_held_back = params.replica_id >= 0 and self._holds_back(params, partition)
                data = partition.read(
                    request.fetch_offset,
                    0 if is_held_back else min(request.partition_max_bytes, bytes_left),
                    params.isolation,
                    current_leader_epoch=request.current_leader_epoch,
                    only_leader=params.only_leader,
                    min_one_message=min_one_message and not is_held_back,
                )
                if data.first_entry_incomplete and not params.is_hard_limit:
                    # KIP-74: no use to a client that knows it gets whole batches.
                    data.records = data.aborted_transactions = None
                result.data = data
        except ApiError as error:
            result.error_code = error.code
            return result
        except StorageError as error:
            self.handle_storage_failure(partition, error)
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return result
        log = partition.log
        if log is not None:
            result.high_watermark = log.high_watermark
            result.last_stable_offset = log.last_stable_offset
            result.log_start_offset = log.log_start_offset
        return result

    def _holds_back(self, params: FetchParams, partition: Partition) -> bool:
        """Whether a follower that catches up has to wait for leader.replication.throttled.rate."""
        quota = self.leader_quota
        return (
            quota is not None
            and quota.is_throttled(partition.topic_partition)
            and params.replica_id not in partition.isr
            and quota.is_exceeded(self._clock.monotonic_ms())
        )

    def _is_nearer_elsewhere(
        self, params: FetchParams, partition: Partition, result: FetchResult
    ) -> bool:
        """Whether a follower in the consumer's rack serves it better; then the result says so."""
        select, rack = self.select_replica, params.client_rack
        if select is None or not rack or params.is_from_follower:
            return False
        if partition.role is not Role.LEADER:
            return False
        request = result.request
        partition.check_epoch(request.current_leader_epoch)
        chosen = select(partition, rack, request.fetch_offset)
        if chosen == self.broker_id:
            return False
        result.preferred_read_replica = chosen
        return True

    def _note_follower(self, broker_id: int, results: Sequence[FetchResult]) -> None:
        """A broker fetched: its progress may commit records, which frees who waits for them."""
        now_ms = self._clock.wall_ms()
        for result in results:
            # Whoever is told to cut its log has not what it asked to go on from.
            if result.error_code != 0 or result.diverging_epoch is not None:
                continue
            partition = self.partitions[result.topic, result.request.partition]
            request = result.request
            quota = self.leader_quota
            if quota is not None and result.data and quota.is_throttled(partition.topic_partition):
                quota.record(len(result.data.records or b""), self._clock.monotonic_ms())
            try:
                if partition.update_follower(
                    broker_id, request.fetch_offset, request.log_start_offset, now_ms
                ):
                    self.wake((result.topic, request.partition))
                elif len(self._deletes):
                    self._deletes.check((result.topic, request.partition))
                self.on_follower_fetch(partition, broker_id)
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
        """Raise log start offsets; `on_done` gets (topic, partition, low watermark, error code)
        for each once all replicas followed or `timeout_ms` is over."""
        waiting: list[tuple[Partition, int]] = []
        failed: dict[tuple[str, int], int] = {}
        for topic, number, offset in offsets:
            try:
                partition = self.partition(topic, number)
                waiting.append((partition, partition.delete_records(offset)))
            except ApiError as error:
                failed[topic, number] = error.code

        def answer() -> None:
            on_done([self._low_watermark(t, p, failed.get((t, p), 0)) for t, p, _ in offsets])

        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._deletes.try_complete_else_watch(
            DelayedDeleteRecords(deadline_ms, waiting, answer),
            [tuple(partition.topic_partition) for partition, _ in waiting],
        )

    def _low_watermark(self, topic: str, number: int, code: int) -> tuple[str, int, int, int]:
        if code == 0:
            try:
                return topic, number, self.partition(topic, number).low_watermark(), 0
            except ApiError as error:
                code = error.code
        return topic, number, -1, code

    # --- failures ----------------------------------------------------------------------------

    def handle_storage_failure(self, partition: Partition, error: StorageError) -> None:
        """A file operation failed: the partition's directory is offline from now on. A partition
        without a log (its files are damaged) is offline alone."""
        if partition.log is not None:
            self.log_manager.handle_log_dir_failure(partition.log.log_directory, str(error))
        else:
            self._trace.warning(f"{partition.topic_partition} is offline: {error}")
        if partition.role is not Role.OFFLINE:
            self._go_offline([partition])

    def _log_dir_failed(self, log_dir: str, _reason: str) -> None:
        """KIP-112: what lies in the directory is offline; the rest is served on."""
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
        # Not now: whoever is told may be in the middle of the very append that failed.
        self._scheduler.call_soon(self.on_offline, partitions)
        for partition in partitions:
            self.wake(partition.topic_partition)


def _nobody_asks(_partition: Partition, _broker_id: int) -> None:
    """A broker on its own has no ISR to care for."""


def _nobody_minds(_partitions: Sequence[Partition]) -> None:
    """Nothing goes on that would have to end."""


def is_enough(params: FetchParams, results: Sequence[FetchResult]) -> bool:
    """Whether a fetch is to be answered at once: enough bytes, or anything wrong."""
    total = 0
    for result in results:
        data = result.data
        if result.error_code != 0 or data is None:
            return True
        if data.records is not None:
            total += len(data.records)
    return total >= params.min_bytes


__all__ = [
    "ACKS_ALL",
    "CONSUMER_REPLICA_ID",
    "INTERNAL_TOPICS",
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
