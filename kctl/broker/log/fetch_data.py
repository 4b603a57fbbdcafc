"""What a log answers to an append and to a read.

Kafka 2.7: kafka.server.FetchDataInfo, kafka.server.FetchIsolation, kafka.log.LogAppendInfo
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kctl.broker.log.local_log import LogOffsetMetadata
from kctl.broker.log.producer_state import BatchMetadata
from kctl.broker.log.validation_rules import RecordError
from kctl.records.record_batch import NO_TIMESTAMP
from kctl.runtime.disk import FileSlice
from kctl.storage.transaction_index import AbortedTransaction


class FetchIsolation(Enum):
    """How far a reader may read."""

    # All there is: followers.
    LOG_END = "log end"
    # What is replicated.
    HIGH_WATERMARK = "high watermark"
    # What is replicated and belongs to no open transaction.
    TXN_COMMITTED = "transactions committed"


@dataclass(slots=True)
class FetchDataInfo:
    """Records for a reader."""

    # The offset asked for, and where the batch that holds it begins.
    fetch_offset: int
    position: LogOffsetMetadata
    # None: there is nothing to read now.
    records: FileSlice | None
    # The slice ends inside its first batch.
    first_entry_incomplete: bool = False
    # None unless the reader wants committed data only.
    aborted_transactions: Sequence[AbortedTransaction] | None = None


@dataclass(slots=True)
class LogAppendInfo:
    """What became of an append."""

    # -1 if there was nothing to append.
    first_offset: int
    # Inclusive.
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    # The broker's time if the topic uses LogAppendTime, else -1.
    log_append_time_ms: int
    log_start_offset: int
    # The records were there already (idempotence); the offsets are those they got then.
    is_duplicate: bool = False
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None


def nothing_appended(log_start_offset: int) -> LogAppendInfo:
    """The answer to no records at all."""
    return LogAppendInfo(-1, -1, NO_TIMESTAMP, -1, NO_TIMESTAMP, log_start_offset)


def appended_before(batch: BatchMetadata, log_start_offset: int) -> LogAppendInfo:
    """The answer to a batch that is in the log already."""
    return LogAppendInfo(
        batch.first_offset,
        batch.last_offset,
        batch.timestamp,
        batch.last_offset,
        batch.timestamp,
        log_start_offset,
        is_duplicate=True,
    )
