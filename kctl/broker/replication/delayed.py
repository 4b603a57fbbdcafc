"""Operations that wait for a partition to change: DelayedProduce, DelayedFetch.

The letters in the code are those of Kafka's comments.

Kafka 2.7: kafka.server.DelayedProduce, DelayedFetch.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

from kctl.broker.log.unified_log import FetchDataInfo, FetchIsolation, LogAppendInfo, UnifiedLog
from kctl.broker.log.validation_rules import RecordError
from kctl.broker.purgatory import DelayedOperation
from kctl.broker.replication.partition import Partition
from kctl.errors import CorruptDataError, StorageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition


@dataclass(slots=True)
class AppendResult:
    """The result of appending one partition's records of a produce request."""

    topic: str
    partition: int
    error_code: int = 0
    error_message: str | None = None
    # The log start offset if the records reached the log, else -1.
    log_start_offset: int = -1
    # The invalid records of the batch (KIP-467).
    record_errors: Sequence[RecordError] = ()
    # None if nothing was appended.
    info: LogAppendInfo | None = None
    # The records have not yet reached the replicas that `acks` requires.
    is_pending: bool = False


# Not frozen, which would triple the cost of creation; one is created per request.
@dataclass(slots=True)
class FetchParams:
    """The parameters of a Fetch request that apply to all its partitions."""

    # CONSUMER_REPLICA_ID or a broker's id.
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: FetchIsolation
    # Versions 0-2: no batch beyond a partition's limit, even as the first one.
    is_hard_limit: bool = False
    # The consumer's rack, "" for none; None: too old to be directed to a follower (KIP-392).
    client_rack: str | None = None

    @property
    def is_from_follower(self) -> bool:
        """Return whether the request comes from a broker."""
        return self.replica_id >= 0

    @property
    def only_leader(self) -> bool:
        """Return whether only the leader may serve it: brokers and old consumers (KIP-392)."""
        return self.replica_id >= 0 or self.client_rack is None


@dataclass(slots=True)
class FetchResult:
    """The result of a fetch for one partition; `data` is None on an error."""

    topic: str
    request: FetchPartition
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    # (epoch, end offset) up to which the reader's log may agree with this one; then no data.
    diverging_epoch: tuple[int, int] | None = None
    data: FetchDataInfo | None = None
    # The replica that is nearer to the consumer than this broker; then no data (KIP-392).
    preferred_read_replica: int = -1


@dataclass(slots=True)
class PendingAppend:
    """A partition of a produce request that waits for its replicas."""

    result: AppendResult
    partition: Partition
    # The records are committed once the high watermark has reached this offset. Exclusive.
    required_offset: int
    # acks=1 with flush.messages=1: waits for this broker's disk only.
    only_flush: bool = False
    is_pending: bool = True

    def try_complete(self) -> None:
        """Settle the partition's result if possible."""
        partition = self.partition
        check = partition.has_flushed if self.only_flush else partition.has_enough_replicas_reached
        is_done, error_code = check(self.required_offset)
        if is_done:
            self.is_pending = False
            self.result.error_code = error_code


class DelayedProduce(DelayedOperation):
    """acks=all: waits until every partition's records are committed.

    After the deadline the others get REQUEST_TIMED_OUT.
    """

    __slots__ = ("_on_done", "_pending", "_results")

    def __init__(
        self,
        deadline_ms: int,
        pending: Sequence[PendingAppend],
        results: list[AppendResult],
        on_done: Callable[[list[AppendResult]], object],
    ) -> None:
        super().__init__(deadline_ms)
        self._pending = pending
        self._results = results
        self._on_done = on_done

    def try_complete(self) -> bool:
        """Return whether all are settled. A: no longer the leader. B: committed, or too few
        replicas."""
        for item in self._pending:
            if item.is_pending:
                item.try_complete()
        return not any(item.is_pending for item in self._pending)

    def on_complete(self) -> None:
        """Reply; partitions that still wait have timed out."""
        for item in self._pending:
            if item.is_pending:
                item.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._on_done(self._results)


class DelayedFetch(DelayedOperation):
    """Waits until `min_bytes` can be read or an error occurs, then reads again.

    After a change of one partition only that partition is examined: what can be read from the
    others is remembered.
    """

    __slots__ = ("_bytes_of", "_on_complete", "_params", "_total", "_watched")

    def __init__(
        self,
        deadline_ms: int,
        params: FetchParams,
        watched: Mapping[Hashable, tuple[Partition | None, FetchPartition]],
        on_complete: Callable[[], object],
        readable: Mapping[Hashable, int] | None = None,
    ) -> None:
        """Create a fetch of `watched`, of which `readable` bytes are known (no entry: none)."""
        super().__init__(deadline_ms)
        self._params = params
        self._watched = watched
        self._on_complete = on_complete
        self._bytes_of: dict[Hashable, int] = dict(readable) if readable else {}
        self._total = sum(self._bytes_of.values()) if readable else 0

    def try_complete(self) -> bool:
        """Return whether a read would complete the request now."""
        return any(map(self.try_complete_after, self._watched))

    def try_complete_after(self, key: Hashable) -> bool:
        """Return whether a read would complete the request, of which only `key` is examined."""
        partition, request = self._watched[key]
        if partition is None:
            return True  # it was removed while others were read
        params = self._params
        try:
            log = partition.readable_log(
                request.current_leader_epoch, only_leader=params.only_leader
            )
        except ApiError:
            return True  # A, B, C, G: not the leader, removed, offline, or fenced
        if request.fetch_offset > log.log_end_offset:
            return True  # E: the log was truncated below the fetch offset
        if request.fetch_offset < readable_end(log, params.isolation):
            if params.min_bytes <= 1:
                return True
            self._note(key, self._readable_bytes(log, request))
        elif key in self._bytes_of:
            self._note(key, 0)
        return self._total >= params.min_bytes  # D, F

    def _note(self, key: Hashable, size: int) -> None:
        self._total += size - self._bytes_of.get(key, 0)
        self._bytes_of[key] = size

    def _readable_bytes(self, log: UnifiedLog, request: FetchPartition) -> int:
        try:
            info = log.read(
                request.fetch_offset,
                request.partition_max_bytes,
                isolation=self._params.isolation,
                min_one_message=True,
            )
        except (ApiError, StorageError, CorruptDataError):
            # The read that answers the request reports it.
            return self._params.min_bytes
        return len(info.records) if info.records is not None else 0

    def on_complete(self) -> None:
        """Read again and reply with the result."""
        self._on_complete()


def readable_end(log: UnifiedLog, isolation: FetchIsolation) -> int:
    """Return the end (exclusive) for a reader of `isolation`."""
    if isolation is FetchIsolation.HIGH_WATERMARK:
        return log.high_watermark
    if isolation is FetchIsolation.TXN_COMMITTED:
        return log.last_stable_offset
    return log.log_end_offset
