"""Applies batches to the producer state of a log: those just appended, and those found in it.

A batch may end a transaction. One that was aborted goes into the index of its segment, with the
last stable offset as it was before: readers of committed data that begin below it need the entry.

Kafka 2.7: kafka.log.ProducerStateManager, kafka.log.Log.loadProducersFromRecords; KIP-98
"""

from collections.abc import Callable

from kctl.broker.log.log_segments import LogSegments
from kctl.broker.log.producer_state import ProducerBatch, producer_batch_of
from kctl.broker.log.producer_state_manager import ProducerStateManager
from kctl.records.control import ControlRecordType, EndTransactionMarker, read_marker
from kctl.records.record_batch import RecordBatch
from kctl.storage.transaction_index import AbortedTransaction
from kctl.work import Work, at_once

# The work of a step of a replay: a header is a unit, about 1.5 microseconds.
UNITS_PER_STEP = 3_000
UNITS_PER_BATCH = 5
# A batch is read as a whole.
BYTES_PER_UNIT = 8 * 1024

OnAborted = Callable[[AbortedTransaction], object]


def apply_batch(
    producers: ProducerStateManager, batch: ProducerBatch, on_aborted: OnAborted | None
) -> bool:
    """Update the producer of a batch that is in the log, and call `on_aborted` if it aborts a
    transaction; return whether it ends one."""
    completed = producers.update(batch)
    if completed is None:
        return False
    last_stable_offset = producers.last_stable_offset(completed)
    if completed.is_aborted and on_aborted is not None:
        on_aborted(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                last_stable_offset,
            )
        )
    producers.complete(completed)
    return True


def replay_batch(
    producers: ProducerStateManager, batch: RecordBatch, on_aborted: OnAborted | None = None
) -> None:
    """Apply a batch that was found in the log, if it has a producer id."""
    if batch.has_producer_id:
        apply_batch(producers, producer_batch_of(batch, marker_of(batch)), on_aborted)


def replay_segments(
    segments: LogSegments, producers: ProducerStateManager, end_offset: int
) -> None:
    """Apply the batches below `end_offset` that are not yet in the producer state."""
    at_once(replay_in_steps(segments, producers, end_offset))


def replay_in_steps(
    segments: LogSegments, producers: ProducerStateManager, end_offset: int
) -> Work[None]:
    """Apply the batches below `end_offset` that are not yet in the producer state, in steps.

    Segments of `segments` may come and go between two steps.
    """
    start = producers.map_end_offset
    if start >= end_offset or not len(segments):
        return
    units = 0
    number = max(0, segments.floor_index(start))
    while number < len(segments.all):
        segment = segments.all[number]
        base_offset = segment.base_offset
        if base_offset >= end_offset:
            break
        position = segment.offset_index.lookup(start).position
        # An open file stays readable if it is closed or removed between two steps.
        records = segment.records
        for header in records.headers(position):
            if header.base_offset >= end_offset:
                break
            units += 1
            if header.producer_id >= 0 and header.base_offset >= start:
                units += UNITS_PER_BATCH + header.size // BYTES_PER_UNIT
                batch = records.batch(header)
                if isinstance(batch, RecordBatch):
                    replay_batch(producers, batch)
            if units >= UNITS_PER_STEP:
                units = 0
                yield
        number = segments.floor_index(base_offset) + 1
    producers.map_end_offset = end_offset


def marker_of(batch: RecordBatch) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None for data, an emptied batch, or another type."""
    if not batch.is_control:
        return None
    record = next(batch.records(), None)
    if record is None:
        return None
    marker = read_marker(record)
    is_end = marker.control_type in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
    return marker if is_end else None
