"""RecordDeletions: raises log start offsets by request, and waits until the replicas have followed.

A replica on a broker that is gone is not waited for: it follows when it comes back. A partition
whose replicas have not followed at the deadline has its records deleted on the leader all the same,
and reports REQUEST_TIMED_OUT.

Kafka 2.7: kafka.server.ReplicaManager (deleteRecords), DelayedDeleteRecords,
kafka.cluster.Partition (lowWatermarkIfLeader); KIP-107
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

from kctl.broker.purgatory import DelayedOperation
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.purgatory_timer import PurgatoryTimer
from kctl.errors import StorageError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.runtime import Runtime

# Topic, partition, low watermark, error code.
Deleted = tuple[str, int, int, int]
UNKNOWN_LOW_WATERMARK = -1


class RecordDeletions:
    """The deletions of records that one broker carries out."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: Mapping[tuple[str, int], Partition],
        on_storage_failure: Callable[[Partition, StorageError], object],
        is_alive: Callable[[int], bool],
    ) -> None:
        """Take `partitions`, which may change; `is_alive` takes a broker id."""
        self._clock = runtime.clock
        self._partitions = partitions
        self._on_storage_failure = on_storage_failure
        self._is_alive = is_alive
        self._purgatory = PurgatoryTimer(runtime)

    def __len__(self) -> int:
        """Return the number of requests that wait for replicas."""
        return len(self._purgatory)

    def check(self, key: Hashable) -> None:
        """Check the requests that wait for the partition `key`, of which a replica may have
        followed."""
        self._purgatory.check(key)

    def delete(
        self,
        offsets: Sequence[tuple[str, int, int]],
        timeout_ms: int,
        on_done: Callable[[list[Deleted]], object],
    ) -> None:
        """Delete the records below (topic, partition, offset). `on_done` takes a result for each,
        once all live replicas have followed or after `timeout_ms`."""
        waiting: list[tuple[Partition, int]] = []
        wanted: list[tuple[str, int, int | ErrorCode]] = []
        for topic, number, offset in offsets:
            found = self._delete(topic, number, offset, waiting)
            wanted.append((topic, number, found))

        def answer() -> None:
            on_done([self._result(*it) for it in wanted])

        self._purgatory.try_complete_else_watch(
            _DelayedDeleteRecords(
                self._clock.monotonic_ms() + timeout_ms, waiting, self._is_alive, answer
            ),
            [tuple(partition.topic_partition) for partition, _ in waiting],
        )

    def _delete(
        self, topic: str, number: int, offset: int, waiting: list[tuple[Partition, int]]
    ) -> int | ErrorCode:
        """Return the new log start offset, which is waited for, or an error."""
        partition = self._partitions.get((topic, number))
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            start = partition.delete_records(offset)
        except ApiError as error:
            return error.code
        except StorageError as error:
            self._on_storage_failure(partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        waiting.append((partition, start))
        return start

    def _result(self, topic: str, number: int, wanted: int | ErrorCode) -> Deleted:
        if isinstance(wanted, ErrorCode):
            return topic, number, UNKNOWN_LOW_WATERMARK, wanted
        partition = self._partitions.get((topic, number))
        if partition is None:
            return topic, number, UNKNOWN_LOW_WATERMARK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            low_watermark = partition.low_watermark(self._is_alive)
        except ApiError as error:
            return topic, number, UNKNOWN_LOW_WATERMARK, error.code
        is_reached = low_watermark >= wanted
        code = ErrorCode.NONE if is_reached else ErrorCode.REQUEST_TIMED_OUT
        return topic, number, low_watermark, code


class _DelayedDeleteRecords(DelayedOperation):
    """Waits until the log of every live replica starts at the requested offset."""

    __slots__ = ("_is_alive", "_on_done", "_waiting")

    def __init__(
        self,
        deadline_ms: int,
        waiting: Sequence[tuple[Partition, int]],
        is_alive: Callable[[int], bool],
        on_done: Callable[[], object],
    ) -> None:
        super().__init__(deadline_ms)
        self._waiting = waiting
        self._is_alive = is_alive
        self._on_done = on_done

    def try_complete(self) -> bool:
        """Return whether all low watermarks are reached or their partitions are no longer led
        here."""
        return all(
            partition.role is not Role.LEADER or partition.low_watermark(self._is_alive) >= wanted
            for partition, wanted in self._waiting
        )

    def on_complete(self) -> None:
        """Reply with the current low watermarks."""
        self._on_done()
