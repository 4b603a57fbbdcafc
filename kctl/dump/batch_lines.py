"""The lines of many batches at once: what `batch_line` of kafka_format and text_format print for
each.

Columns are those of `BatchColumns`, all of v2 or all of v0 and v1.
"""

from typing import Any

import numpy as np

from kctl.dump.kafka_format import CODECS, TIMESTAMP_TYPES
from kctl.dump.text_columns import (
    Column,
    Line,
    chosen,
    if_any,
    numbers,
    padded,
    padded_left,
    times,
    trimmed,
)
from kctl.records.columnar_batches import BatchColumns, Int64s
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import (
    CRC_OFFSET,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_SEQUENCE,
    SEQUENCE_MAX,
)

_TYPE_NAMES = [f"{TIMESTAMP_TYPES[kind]}: ".encode() for kind in (-1, 0, 1)]
_BOOLS = [b"false", b"true"]
_CODEC_NAMES = [name.encode() for name in CODECS]
_CODEC_WORDS = [f"{name.lower():<6} ".encode() for name in CODECS]


def type_names(batches: BatchColumns, indexes: Int64s | None = None) -> Column:
    """Return the types of timestamps, with a colon; of the batches' records, if these have
    `indexes`."""
    kinds = batches.timestamp_types + 1
    if indexes is None or (kinds == kinds[0]).all():
        return chosen(kinds, _TYPE_NAMES)
    return chosen(kinds[indexes], _TYPE_NAMES)


def kafka_batch_lines(batches: BatchColumns, buffer: memoryview, position: int) -> Column:
    """Return kafka-dump-log's line of each batch; `position` is the buffer's in the file."""
    is_new = int(batches.magics[0]) == CURRENT_MAGIC
    line = _kafka_head(batches) if is_new else Line(b"offset: ", numbers(batches.last_offsets))
    line.add(b" position: ", numbers(batches.positions + position), b" ", type_names(batches))
    line.add(numbers(batches.max_timestamps), b" size: ", numbers(batches.sizes))
    line.add(b" magic: ", numbers(batches.magics), b" compresscodec: ")
    line.add(chosen(batches.compression_types, _CODEC_NAMES), b" crc: ")
    line.add(numbers(_checksums(batches, buffer, is_new=is_new)), b" isvalid: true\n")
    return line.joined(len(batches))


def _kafka_head(batches: BatchColumns) -> Line:
    line = Line(b"baseOffset: ", numbers(batches.base_offsets))
    line.add(b" lastOffset: ", numbers(batches.last_offsets))
    line.add(b" count: ", numbers(batches.record_counts))
    line.add(b" baseSequence: ", numbers(batches.base_sequences))
    line.add(b" lastSequence: ", numbers(_last_sequences(batches)))
    line.add(b" producerId: ", numbers(batches.producer_ids))
    line.add(b" producerEpoch: ", numbers(batches.producer_epochs))
    line.add(b" partitionLeaderEpoch: ", numbers(batches.leader_epochs))
    line.add(b" isTransactional: ", chosen(batches.is_transactional.astype(np.int64), _BOOLS))
    line.add(b" isControl: ", chosen(batches.is_control.astype(np.int64), _BOOLS))
    return line


def text_batch_lines(batches: BatchColumns, position: int) -> Column:
    """Return the line of each batch, aligned for people."""
    count = len(batches)
    is_new = int(batches.magics[0]) == CURRENT_MAGIC
    is_compressed = batches.compression_types != 0
    if is_new:
        offsets = Line(numbers(batches.base_offsets), b"..", numbers(batches.last_offsets))
        is_one = (batches.record_counts == 1).astype(np.int64)
        counts = Line(numbers(batches.record_counts), chosen(is_one, [b" records", b" record"]))
    else:
        offsets = Line(if_any(is_compressed, b".."), numbers(batches.last_offsets))
        counts = Line(chosen(is_compressed.astype(np.int64), [b"message", b"wrapper"]))
    line = Line(b"  ", *padded(offsets.joined(count), 15), b" ", *padded(counts.joined(count), 12))
    line.add(b" at ", *padded(numbers(batches.positions + position), 9), b" ")
    line.add(padded_left(numbers(batches.sizes), 7), b" B  v", numbers(batches.magics), b" ")
    line.add(chosen(batches.compression_types, _CODEC_WORDS), times(batches.max_timestamps))
    line.add(if_any(batches.timestamp_types == LOG_APPEND_TIME, b" (append)"))
    if is_new:
        line.add(*_marks(batches))
    return Line(trimmed(line.joined(count)), b"\n").joined(count)


def _marks(batches: BatchColumns) -> list[Column]:
    """Return the properties that not every batch has, separated by spaces."""
    has_epoch = batches.leader_epochs >= 0
    has_producer = batches.producer_ids >= 0
    has_sequence = batches.base_sequences >= 0
    is_marked = has_epoch | has_producer | has_sequence
    is_marked |= batches.is_transactional | batches.is_control
    numbered = (numbers(batches.base_sequences), b"..", numbers(_last_sequences(batches)))
    producers = (numbers(batches.producer_ids), b"/", numbers(batches.producer_epochs))
    return [
        if_any(is_marked, b" "),
        if_any(has_epoch, b" epoch ", numbers(batches.leader_epochs)),
        if_any(has_producer, b" producer ", *producers),
        if_any(has_sequence, b" sequence ", *numbered),
        if_any(batches.is_transactional, b" transactional"),
        if_any(batches.is_control, b" control"),
    ]


def _last_sequences(batches: BatchColumns) -> Int64s:
    return sequences(batches, batches.last_offsets - batches.base_offsets)


def sequences(batches: BatchColumns, deltas: Int64s, indexes: Int64s | None = None) -> Int64s:
    """Return sequences at these distances from those of their batches; they wrap to 0."""
    first = batches.base_sequences
    if (first == NO_SEQUENCE).all():
        return first
    first = first if indexes is None else first[indexes]
    found = first + deltas
    found[found > SEQUENCE_MAX] -= SEQUENCE_MAX + 1
    found[first == NO_SEQUENCE] = NO_SEQUENCE
    return found


def _checksums(batches: BatchColumns, buffer: memoryview, *, is_new: bool) -> Any:
    cells = np.ndarray((len(buffer) - 3,), ">u4", buffer=buffer, strides=(1,))
    return cells[batches.positions + (CRC_OFFSET if is_new else LOG_OVERHEAD)].astype(np.int64)
