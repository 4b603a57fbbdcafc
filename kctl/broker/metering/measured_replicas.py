"""MeasuredReplicaManager: a ReplicaManager that counts records and bytes by topic.

As in Apache Kafka a partition of a request counts once, an error that sends the client to another
broker is no failure, and a batch that was appended before counts again.

Kafka 2.7: kafka.server.BrokerTopicStats and its callers in ReplicaManager.
"""

from collections.abc import Callable
from typing import Final

from kctl.broker.log.log_manager import LogManager
from kctl.broker.log.log_validator import CheckedRecords
from kctl.broker.log.unified_log import AppendOrigin, LogAppendInfo
from kctl.broker.metering.meter import BrokerMeter
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.append_turns import Records
from kctl.broker.replication.delayed import AppendResult, FetchParams, FetchResult
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.replication.replica_selector import ReplicaSelector
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import KctlError
from kctl.protocol.error_codes import ErrorCode
from kctl.runtime.runtime import Runtime

# Errors of clients, and of brokers that no longer lead: Kafka does not count them as failures.
_NO_FAILED_PRODUCE: Final = frozenset(
    map(
        int,
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.RECORD_LIST_TOO_LARGE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
    )
)
_TOO_LARGE: Final = (int(ErrorCode.MESSAGE_TOO_LARGE), int(ErrorCode.RECORD_LIST_TOO_LARGE))
_FAILED_FETCH: Final = (int(ErrorCode.UNKNOWN_SERVER_ERROR), int(ErrorCode.CORRUPT_MESSAGE))


class MeasuredReplicaManager(ReplicaManager):
    """Counts what passes through it."""

    def __init__(
        self,
        meter: BrokerMeter,
        runtime: Runtime,
        config: BrokerConfig,
        broker_id: int,
        log_manager: LogManager,
        *,
        leader_quota: ReplicationQuota | None = None,
        select_replica: ReplicaSelector | None = None,
        is_alive: Callable[[int], bool] = lambda _broker_id: True,
    ) -> None:
        """Take a meter, and the arguments of a ReplicaManager."""
        super().__init__(
            runtime, config, broker_id, log_manager,
            leader_quota=leader_quota, select_replica=select_replica, is_alive=is_alive,
        )  # fmt: skip
        self._meter = meter
        self._topics = meter.topics
        self.on_replicated = meter.replicated

    def append_plain(
        self,
        key: tuple[str, int],
        records: Records,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo | None:
        """Append, and count it if it was appended."""
        info = ReplicaManager.append_plain(self, key, records, required_acks, origin)
        if info is not None:
            try:
                counters = self._topics[key[0]]
            except KeyError:
                counters = self._meter.topic(key[0])
            counters.produce_requests += 1
            counters.bytes_in += len(records)
            first = info.first_offset
            if first >= 0:
                counters.messages_in += info.last_offset - first + 1
        return info

    def _append(
        self,
        result: AppendResult,
        required_acks: int,
        origin: AppendOrigin,
        now_ms: int,
        records: Records | CheckedRecords | KctlError,
    ) -> None:
        super()._append(result, required_acks, origin, now_ms, records)
        topic, code, info = result.topic, result.error_code, result.info
        if (topic, result.partition) not in self.partitions and topic not in self._topics:
            # A name that a client made up has no counters.
            return
        counters = self._meter.topic(topic)
        counters.produce_requests += 1
        if code:
            counters.failed_produce += code not in _NO_FAILED_PRODUCE
            if code in _TOO_LARGE:
                counters.bytes_rejected += _size(records)
        elif info is not None:
            counters.bytes_in += _size(records)
            if info.first_offset >= 0:
                counters.messages_in += info.last_offset - info.first_offset + 1

    def _complete(
        self,
        params: FetchParams,
        on_done: Callable[[list[FetchResult]], object],
        results: list[FetchResult],
    ) -> None:
        """Count what is read, and pass it on."""
        is_from_follower = params.replica_id >= 0
        topics = self._topics
        for result in results:
            counters = topics.get(result.topic)
            if counters is None:
                if (result.topic, result.request.partition) not in self.partitions:
                    continue
                counters = self._meter.topic(result.topic)
            counters.fetch_requests += 1
            data = result.data
            if data is not None and data.records is not None:
                size = len(data.records)
                if is_from_follower:
                    counters.replication_out += size
                else:
                    counters.bytes_out += size
            elif result.error_code in _FAILED_FETCH:
                counters.failed_fetch += 1
        on_done(results)


def _size(records: Records | CheckedRecords | KctlError) -> int:
    if isinstance(records, CheckedRecords):
        return len(records.found.records)
    return 0 if isinstance(records, KctlError) else len(records)
