"""FetchReader: reads the partitions of one fetch from their logs, within the limits of the request.

A read changes nothing, except that it may take a failing log directory offline. A follower that is
behind gets no records while its leader's quota is exceeded, and a consumer may be directed to a
follower in its own rack.

Kafka 2.7: kafka.server.ReplicaManager (readFromLocalLog, findPreferredReadReplica); KIP-74, KIP-73,
KIP-392, KIP-595.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kctl.broker.log.fetch_data import FetchDataInfo, FetchIsolation
from kctl.broker.log.local_log import LogOffsetMetadata
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.delayed import FetchParams, FetchResult, readable_end
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_selector import ReplicaSelector
from kctl.errors import CorruptDataError, StorageError
from kctl.protocol.constants import NO_EPOCH
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.runtime.clock import Clock
from kctl.work import Work

# Partitions of one fetch read per turn of the loop, about 5 ms.
READS_PER_TURN: Final = 1_000

# Looked up once: reading a member of an enum costs more than reading a global.
_LEADER: Final[Role] = Role.LEADER
_COMMITTED: Final[FetchIsolation] = FetchIsolation.TXN_COMMITTED
# Of readers that have all they may read: their position in the log is not looked up.
_NOWHERE: Final = LogOffsetMetadata(-1, -1, -1)
_NOTHING: Final = FetchDataInfo(-1, _NOWHERE, None)
_NOTHING_COMMITTED: Final = FetchDataInfo(-1, _NOWHERE, None, aborted_transactions=())


class FetchReader:
    """Reads from the partitions of one broker."""

    def __init__(
        self,
        clock: Clock,
        broker_id: int,
        partitions: Mapping[tuple[str, int], Partition],
        on_storage_failure: Callable[[Partition, StorageError], object],
        on_damage: Callable[[Partition, CorruptDataError], object],
        *,
        leader_quota: ReplicationQuota | None,
        select_replica: ReplicaSelector | None,
    ) -> None:
        """Take `partitions`, which may change; `on_storage_failure` takes one whose read failed,
        and `on_damage` one whose log is damaged where it was read."""
        self._clock = clock
        self._broker_id = broker_id
        self._partitions = partitions
        self._on_storage_failure = on_storage_failure
        self._on_damage = on_damage
        self._leader_quota = leader_quota
        self._select_replica = select_replica

    def read(
        self, params: FetchParams, partitions: Sequence[tuple[str, FetchPartition]]
    ) -> list[FetchResult]:
        """Read all partitions once: slices of files, within the limits of the request."""
        results: list[FetchResult] = []
        # KIP-74: the first batch found is returned whole, even beyond the limits.
        self._read_part(results, params, partitions, params.max_bytes, not params.is_hard_limit)
        return results

    def read_in_parts(
        self, params: FetchParams, partitions: Sequence[tuple[str, FetchPartition]]
    ) -> Work[list[FetchResult]]:
        """Read as `read` does, with turns of the loop for other work in between."""
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
        """Add the results of some partitions; return the limits for the next ones."""
        isolation = params.isolation
        may_be_nearer = bool(params.client_rack) and self._select_replica is not None
        for topic, request in partitions:
            nothing = None if may_be_nearer else self._nothing(isolation, topic, request)
            if nothing is not None:
                results.append(nothing)
                continue
            result = self._read_one(params, topic, request, bytes_left, min_one_message)
            data = result.data
            size = 0 if data is None or data.records is None else len(data.records)
            if size:
                min_one_message = False
                bytes_left = max(0, bytes_left - size)
            results.append(result)
        return bytes_left, min_one_message

    def _nothing(
        self, isolation: FetchIsolation, topic: str, request: FetchPartition
    ) -> FetchResult | None:
        """Return the result of a reader that has all it may read of a partition that is led here,
        as most that ask have; None for others, who may have an error. As `_read_one`, in a third
        of the time."""
        partition = self._partitions.get((topic, request.partition))
        if partition is None or partition.role is not _LEADER or request.last_fetched_epoch >= 0:
            return None
        log, fetch_offset = partition.log, request.fetch_offset
        if log is None or request.current_leader_epoch not in (NO_EPOCH, partition.leader_epoch):
            return None
        if not readable_end(log, isolation) <= fetch_offset <= log.log_end_offset:
            return None
        if fetch_offset < log.log_start_offset:
            return None
        return FetchResult(
            topic,
            request,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            data=_NOTHING_COMMITTED if isolation is _COMMITTED else _NOTHING,
        )

    def _read_one(
        self,
        params: FetchParams,
        topic: str,
        request: FetchPartition,
        bytes_left: int,
        min_one_message: bool,
    ) -> FetchResult:
        partition = self._partitions.get((topic, request.partition))
        if partition is None:
            return FetchResult(topic, request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        result = FetchResult(topic, request)
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
                    # KIP-74: such a client expects whole batches.
                    data.records = data.aborted_transactions = None
                result.data = data
        except ApiError as error:
            result.error_code = error.code
            return result
        except StorageError as failure:
            self._on_storage_failure(partition, failure)
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return result
        except CorruptDataError as damage:
            self._on_damage(partition, damage)
            result.error_code = ErrorCode.CORRUPT_MESSAGE
            return result
        log = partition.log
        if log is not None:
            result.high_watermark = log.high_watermark
            result.last_stable_offset = log.last_stable_offset
            result.log_start_offset = log.log_start_offset
        return result

    def _holds_back(self, params: FetchParams, partition: Partition) -> bool:
        """Return whether leader.replication.throttled.rate delays this follower."""
        quota = self._leader_quota
        return (
            quota is not None
            and quota.is_throttled(partition.topic_partition)
            and params.replica_id not in partition.isr
            and quota.is_exceeded(self._clock.monotonic_ms())
        )

    def _is_nearer_elsewhere(
        self, params: FetchParams, partition: Partition, result: FetchResult
    ) -> bool:
        """Return whether the result directs the consumer to a follower in its rack."""
        select, rack = self._select_replica, params.client_rack
        if select is None or not rack or params.is_from_follower:
            return False
        if partition.role is not Role.LEADER:
            return False
        request = result.request
        partition.check_epoch(request.current_leader_epoch)
        chosen = select(partition, rack, request.fetch_offset)
        if chosen == self._broker_id:
            return False
        result.preferred_read_replica = chosen
        return True
