"""Reads and writes the records of a broker in this process, without a client.

Everything here runs on the broker's loop. With Isolation.READ_COMMITTED, reads return what a
consumer with isolation.level=read_committed receives (KIP-98).
"""

from collections.abc import Iterable, Iterator, Sequence

from kctl.broker.log.unified_log import FetchIsolation, UnifiedLog
from kctl.broker.replication.delayed import AppendResult
from kctl.broker.services import Services
from kctl.client.consumer import AbortedFilter
from kctl.client.partitioner import partition_for_key
from kctl.errors import UsageError
from kctl.export.options import Isolation
from kctl.lazy_dataclass import dataclass
from kctl.protocol.constants import ACKS_ALL
from kctl.protocol.error_codes import ApiError
from kctl.records.builder import RecordBatchBuilder
from kctl.records.memory_records import batches
from kctl.records.record import Header
from kctl.records.record import Record as StoredRecord
from kctl.runtime.future import Future

__all__ = ["Record"]

_READ_BYTES = 1 << 20
_APPEND_TIMEOUT_MS = 10_000
_FETCH_ISOLATION = {
    Isolation.READ_UNCOMMITTED: FetchIsolation.HIGH_WATERMARK,
    Isolation.READ_COMMITTED: FetchIsolation.TXN_COMMITTED,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic; `timestamp` is in milliseconds, -1 if there is none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


def records_of(
    services: Services, topic: str, first_offsets: dict[int, int], isolation: Isolation
) -> list[Record]:
    """Return the records of `topic` that `isolation` shows, ordered by partition and offset.

    Records before `first_offsets` (partition -> offset) are omitted. UsageError if the topic does
    not exist.
    """
    found: list[Record] = []
    for partition in _partitions(services, topic):
        log = services.replica_manager.partition(topic, partition).leader_log()
        found += _log_records(log, partition, first_offsets.get(partition, 0), isolation)
    return found


def end_offsets(
    services: Services, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[int, int]:
    """Return partition -> the end offset; empty for an unknown topic.

    With READ_COMMITTED it is the last stable offset: where the first open transaction begins.
    """
    ends = {}
    for partition in services.metadata_cache.partitions_of(topic):
        try:
            log = services.replica_manager.partition(topic, partition).leader_log()
        except ApiError:
            # The partition is being created or deleted.
            continue
        is_committed = isolation is Isolation.READ_COMMITTED
        ends[partition] = log.last_stable_offset if is_committed else log.high_watermark
    return ends


def append(
    services: Services,
    topic: str,
    partition: int | None,
    record: tuple[bytes | None, bytes | None, Sequence[Header], int],
) -> Future[Record]:
    """Append (key, value, headers, timestamp); the result is the committed record, or an ApiError.

    Without a partition, the key's hash selects one as in Kafka's clients; without a key it is 0.
    UsageError if the topic or partition does not exist.
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
        [(topic, partition, builder.build())], ACKS_ALL, _APPEND_TIMEOUT_MS, settle
    )
    return done


def _partitions(services: Services, topic: str) -> Sequence[int]:
    partitions = services.metadata_cache.partitions_of(topic)
    if not partitions:
        raise UsageError(
            f"topic {topic} does not exist", hint=f"create_topic({topic!r}), or kafka_topics"
        )
    return partitions


def _log_records(
    log: UnifiedLog, partition: int, first_offset: int, isolation: Isolation
) -> Iterable[Record]:
    offset = first_offset = max(first_offset, log.log_start_offset)
    while offset < log.log_end_offset:
        info = log.read(offset, _READ_BYTES, isolation=_FETCH_ISOLATION[isolation])
        if info.records is None or not len(info.records):
            return
        data = info.records.file.pread(info.records.length, info.records.position)
        is_hidden = AbortedFilter(info)
        before = offset
        for batch in batches(data):
            offset = batch.last_offset + 1
            if not is_hidden(batch):
                yield from _batch_records(batch.records(), partition, first_offset)
        if offset == before:
            return


def _batch_records(
    records: Iterable[StoredRecord], partition: int, first_offset: int
) -> Iterator[Record]:
    for it in records:
        if it.offset >= first_offset:
            yield Record(partition, it.offset, it.key, it.value, tuple(it.headers), it.timestamp)
