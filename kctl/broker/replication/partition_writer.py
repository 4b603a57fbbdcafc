"""The coordinators' access to the log: appends that report when they are committed, and reads.

Implements `kctl.broker.coordinator.runtime.PartitionWriter` without importing it, as replication
and coordinators are siblings.
"""

from collections.abc import Callable, Sequence

from kctl.broker.log.unified_log import AppendOrigin, FetchIsolation
from kctl.broker.replication.delayed import AppendResult
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.model import TopicPartition
from kctl.protocol.constants import ACKS_ALL


class ReplicatedPartitionWriter:
    """Writes to partitions that this broker leads and waits for their in-sync replicas."""

    def __init__(self, replica_manager: ReplicaManager, timeout_ms: int) -> None:
        self._replicas = replica_manager
        self._timeout_ms = timeout_ms

    def append(
        self,
        topic_partition: TopicPartition,
        records: bytearray,
        on_committed: Callable[[int, int], object],
    ) -> None:
        """Append with acks=all; call `on_committed(error code, base offset)` once it is settled."""

        def settle(results: Sequence[AppendResult]) -> None:
            info = results[0].info
            on_committed(results[0].error_code, info.first_offset if info else -1)

        topic, partition = topic_partition
        self._replicas.append_records(
            [(topic, partition, records)],
            ACKS_ALL,
            self._timeout_ms,
            settle,
            origin=AppendOrigin.COORDINATOR,
        )

    def append_now(self, topic_partition: TopicPartition, records: bytearray) -> int:
        """Append if this commits the records at once; return the base offset, or -1 if nothing was
        done."""
        replicas = self._replicas
        info = replicas.append_plain(
            topic_partition, records, ACKS_ALL, origin=AppendOrigin.COORDINATOR
        )
        if info is None:
            return -1
        replicas.wake_readers(topic_partition)
        return info.first_offset

    def read(self, topic_partition: TopicPartition, offset: int, max_bytes: int) -> bytes | None:
        """Return whole batches from `offset` on, at least one if there is any; None at the log's
        end."""
        log = self._replicas.partition(*topic_partition).leader_log()
        if offset >= log.log_end_offset:
            return None
        info = log.read(offset, max_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True)
        records = info.records
        if records is None or not len(records):
            return None
        return records.file.pread(records.length, records.position)

    def log_start_offset(self, topic_partition: TopicPartition) -> int:
        """Return the log start offset."""
        return self._replicas.partition(*topic_partition).leader_log().log_start_offset

    def log_end_offset(self, topic_partition: TopicPartition) -> int:
        """Return the offset that the next record gets."""
        return self._replicas.partition(*topic_partition).leader_log().log_end_offset

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """Return the end (exclusive) of the committed records."""
        return self._replicas.partition(*topic_partition).leader_log().high_watermark
