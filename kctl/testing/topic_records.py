"""Reads and writes the records of a broker in this process, without a client in between.

Everything here runs on the broker's loop.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kctl.admin.partitioner import partition_for_key
from kctl.broker.log.unified_log import FetchIsolation, UnifiedLog
from kctl.broker.replication.delayed import AppendResult
from kctl.broker.replication.replica_manager import ACKS_ALL
from kctl.broker.services import Services
from kctl.errors import UsageError
from kctl.protocol.error_codes import ApiError
from kctl.records.builder import RecordBatchBuilder
from kctl.records.memory_records import batches
from kctl.records.record import Header
from kctl.records.record import Record as StoredRecord
from kctl.runtime.future import Future

READ_BYTES = 1 << 20
APPEND_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it lies in a topic; `timestamp` in milliseconds, -1 if it has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


def records_of(services: Services, topic: str, first_offsets: dict[int, int]) -> list[Record]:
    """The committed records of `topic` in the order of partitions, then of offsets; those before
    `first_offsets` (partition -> offset) are left out. UsageError if there is no such topic."""
    found: list[Record] = []
    for partition in _partitions(services, topic):
        log = services.replica_manager.partition(topic, partition).leader_log()
        found += _log_records(log, partition, first_offsets.get(partition, 0))
    return found


def end_offsets(services: Services, topic: str) -> dict[int, int]:
    """Partition -> the offset behind its last committed record; empty for an unknown topic."""
    ends = {}
    for partition in services.metadata_cache.partitions_of(topic):
        try:
            log = services.replica_manager.partition(topic, partition).leader_log()
        except ApiError:
            # Being created, or deleted.
            continue
        ends[partition] = log.high_watermark
    return ends


def append(
    services: Services,
    topic: str,
    partition: int | None,
    record: tuple[bytes | None, bytes | None, Sequence[Header], int],
) -> Future[Record]:
    """Append (key, value, headers, timestamp); the record once it is committed, or an ApiError.

    Without a partition the key's hash decides as in Kafka's clients; without a key it is 0.
    UsageError if there is no such topic or partition.
    """
    key, value, headers, timestamp = record
    partitions = _partitions(services, topic)
    if partition is None:
        partition = 0 if key is None else partition_for_key(key, len(partitions))
    if partition not in partitions:
        raise UsageError(f"topic {topic} has no partition {partition}: it has {len(partitions)}")
    builder = RecordBatchBuilder()
    builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
    done: Future[Record] = services.runtime.scheduler.future()

    def settle(results: list[AppendResult]) -> None:
        result = results[0]
        if result.error_code or result.info is None:
            done.set_error(ApiError(result.error_code, result.error_message))
        else:
            offset = result.info.first_offset
            done.set_result(Record(result.partition, offset, key, value, tuple(headers), timestamp))

    services.replica_manager.append_records(
        [(topic, partition, builder.build())], ACKS_ALL, APPEND_TIMEOUT_MS, settle
    )
    return done


def _partitions(services: Services, topic: str) -> Sequence[int]:
    partitions = services.metadata_cache.partitions_of(topic)
    if not partitions:
        raise UsageError(
            f"there is no topic {topic}", hint=f"create_topic({topic!r}), or kafka_topics"
        )
    return partitions


def _log_records(log: UnifiedLog, partition: int, first_offset: int) -> Iterable[Record]:
    offset = first_offset = max(first_offset, log.log_start_offset)
    while offset < log.high_watermark:
        info = log.read(offset, READ_BYTES, isolation=FetchIsolation.HIGH_WATERMARK)
        if info.records is None or not len(info.records):
            return
        data = info.records.file.pread(info.records.length, info.records.position)
        before = offset
        for batch in batches(data):
            offset = batch.last_offset + 1
            if not batch.is_control:
                yield from _batch_records(batch.records(), partition, first_offset)
        if offset == before:
            return


def _batch_records(
    records: Iterable[StoredRecord], partition: int, first_offset: int
) -> Iterator[Record]:
    for it in records:
        if it.offset >= first_offset:
            yield Record(partition, it.offset, it.key, it.value, tuple(it.headers), it.timestamp)
