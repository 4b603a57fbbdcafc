"""The results of appends to a log and of reads from it.

Kafka 2.7: kafka.server.FetchDataInfo, kafka.server.FetchIsolation, kafka.log.LogAppendInfo
"""

from collections.abc import Sequence
from enum import Enum

from kctl.broker.log.local_log import LogOffsetMetadata
from kctl.broker.log.producer_state import BatchMetadata
from kctl.broker.log.validation_rules import RecordError
from kctl.lazy_dataclass import dataclass
from kctl.records.record_batch import NO_TIMESTAMP
from kctl.runtime.disk import FileSlice
from kctl.storage.transaction_index import AbortedTransaction


class FetchIsolation(Enum):
    """How far a reader may read."""

    # Everything: followers.
    LOG_END = "log end"
    # Replicated records.
    HIGH_WATERMARK = "high watermark"
    # Replicated records that belong to no open transaction.
    TXN_COMMITTED = "transactions committed"


@dataclass(slots=True)
class FetchDataInfo:
    """Records for a reader."""

    # The fetch offset, and the position of the batch that holds it.
    fetch_offset: int
    position: LogOffsetMetadata
    # None if there is nothing to read now.
    records: FileSlice | None
    # Whether the slice ends inside its first batch.
    first_entry_incomplete: bool = False
    # None unless the reader wants committed data only.
    aborted_transactions: Sequence[AbortedTransaction] | None = None


@dataclass(slots=True)
class LogAppendInfo:
    """The result of an append."""

    # -1 if there was nothing to append.
    first_offset: int
    # Inclusive.
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    # The broker's time if the topic uses LogAppendTime, else -1.
    log_append_time_ms: int
    log_start_offset: int
    # The records had been appended before (idempotence); the offsets are those of the first append.
    is_duplicate: bool = False
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None


def nothing_appended(log_start_offset: int) -> LogAppendInfo:
    """Return the result of an append without records."""
    return LogAppendInfo(-1, -1, NO_TIMESTAMP, -1, NO_TIMESTAMP, log_start_offset)


def appended_before(batch: BatchMetadata, log_start_offset: int) -> LogAppendInfo:
    """Return the result for a batch that is already in the log."""
    return LogAppendInfo(
        batch.first_offset,
        batch.last_offset,
        batch.timestamp,
        batch.last_offset,
        batch.timestamp,
        log_start_offset,
        is_duplicate=True,
    )
