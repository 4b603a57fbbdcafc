"""The lines of many batches and records, formatted in vectors: the lines that kafka_format and
text_format print one at a time, without an object per batch or record.

A window of the file is decoded into columns, each column becomes text at once, and one join makes
all lines: a batch's line is part of the prefix of its first record's line. Control records, and
windows where v2 meets older formats, are formatted one at a time by the functions of those modules.
Lines end where a window has damage: `log_dump` reports it, one batch at a time.

numpy and pyarrow are loaded with this module: only for files that are large enough.
"""

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.dump.batch_lines import (
    kafka_batch_lines,
    sequences,
    text_batch_lines,
    type_names,
)
from kctl.dump.control_records import decode_control_record
from kctl.dump.kafka_format import Contents, batch_line
from kctl.dump.kafka_format import record_line as kafka_record_line
from kctl.dump.legacy_messages import dumped_messages
from kctl.dump.text_columns import (
    Column,
    Line,
    bytes_of,
    chosen,
    constant,
    if_any,
    java,
    named,
    numbers,
    padded,
    shown_texts,
    sizes,
    text_of,
    times,
)
from kctl.dump.text_format import batch_line as text_batch_line
from kctl.dump.text_format import record_line as text_record_line
from kctl.dump.values import BulkStyle, DumpedBatch, DumpedRecord, DumpedText
from kctl.errors import CorruptDataError
from kctl.records.arrow_arrays import bytes_array, mask_array, numbers_array
from kctl.records.checksum import crc32
from kctl.records.columnar import RecordColumns, decode_chunks, everything
from kctl.records.columnar_batches import BatchColumns, ScannedBatches, scan_batches
from kctl.records.memory_records import CURRENT_MAGIC, Batch, batch_at, locate
from kctl.records.record_batch import (
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    NO_SEQUENCE,
    RecordBatch,
    increment_sequence,
)
from kctl.storage.file_records import FileRecords
from kctl.verify.resync import BATCH_BYTES_MAX

# Text of larger windows leaves the caches, and its pages are allocated each time.
WINDOW_BYTES = 4 * 1024 * 1024


class KafkaLines:
    """The exact text of kafka-dump-log 2.7.2."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def batch(self, item: DumpedBatch) -> str:
        """Return the line of one batch."""
        return batch_line(item)

    def record(self, item: DumpedRecord) -> str:
        """Return the line of one record."""
        return kafka_record_line(item, self._contents)

    def batches(self, batches: BatchColumns, buffer: memoryview, position: int) -> Column:
        """Return the line of each batch."""
        return kafka_batch_lines(batches, buffer, position)

    def records(self, columns: RecordColumns) -> Line:
        """Return the lines of the records, without line ends."""
        batches, indexes = columns.batches, columns.batch_indexes
        line = Line(b"| offset: ", numbers(columns.offsets), b" ", type_names(batches, indexes))
        line.add(numbers(columns.timestamps), b" keysize: ", numbers(columns.key_lengths))
        line.add(b" valuesize: ", numbers(columns.value_lengths))
        if int(batches.magics[0]) == CURRENT_MAGIC:
            deltas = columns.offsets - batches.base_offsets[indexes]
            line.add(b" sequence: ", numbers(sequences(batches, deltas, indexes)))
            line.add(b" headerKeys: [", _header_names(columns), b"]")
        else:
            line.add(*_message_checks(columns))
        if self._contents is not Contents.NOTHING:
            data = columns.to_arrow(("key", "value"))
            line.add(*named(b" key: ", java(data.column(0))))
            line.add(*named(b" payload: ", java(data.column(1))))
        return line


class TextLines:
    """Aligned lines for people."""

    def __init__(self, *, with_data: bool) -> None:
        self._with_data = with_data

    def batch(self, item: DumpedBatch) -> str:
        """Return the line of one batch."""
        return text_batch_line(item)

    def record(self, item: DumpedRecord) -> str:
        """Return the line of one record."""
        return text_record_line(item, with_data=self._with_data)

    def batches(self, batches: BatchColumns, _buffer: memoryview, position: int) -> Column:
        """Return the line of each batch."""
        return text_batch_lines(batches, position)

    def records(self, columns: RecordColumns) -> Line:
        """Return the lines of the records, without line ends."""
        line = Line(b"    ", *padded(numbers(columns.offsets), 13), b" ", times(columns.timestamps))
        is_append = columns.batches.timestamp_types == LOG_APPEND_TIME
        if is_append.any():
            line.add(if_any(is_append[columns.batch_indexes], b" (append)"))
        line.add(b"  ")
        if self._with_data:
            data = columns.to_arrow(("key", "value"))
            line.add(*padded(shown_texts(data.column(0)), 16), b"  ", shown_texts(data.column(1)))
            line.add(_header_pairs(columns))
        else:
            line.add(b"key ", *sizes(columns.key_lengths))
            line.add(b"  value ", *sizes(columns.value_lengths))
        return line


Style = KafkaLines | TextLines
_STYLES: dict[BulkStyle, Style] = {
    BulkStyle.KAFKA: KafkaLines(Contents.NOTHING),
    BulkStyle.KAFKA_WITH_DATA: KafkaLines(Contents.AS_TEXT),
    BulkStyle.TEXT: TextLines(with_data=False),
    BulkStyle.TEXT_WITH_DATA: TextLines(with_data=True),
}


def dump_lines(
    records: FileRecords, position: int, next_offset: int, bulk: BulkStyle, *, with_records: bool
) -> Generator[DumpedText, None, tuple[int, int]]:
    """Yield lines from the batch at `position` up to the first window with damage; return the
    position of the batch after them, and the offset expected there."""
    style = _STYLES[bulk]
    buffer = memoryview(bytearray(min(WINDOW_BYTES, records.size - position)))
    while position < records.size:
        got = records.file.pread_into(buffer[: records.size - position], position)
        window = buffer[:got]
        used = 0
        for found in _decoded(window, next_offset, with_records=with_records):
            try:
                texts = [] if found.damages else list(_texts(style, found, window, position))
            except CorruptDataError:
                return position + used, next_offset
            if found.damages:
                return position + used, next_offset
            yield from map(DumpedText, texts)
            used = found.end
            if len(found.batches):
                next_offset = max(next_offset, int(found.batches.last_offsets.max()) + 1)
        if not used:
            size = _size_at_start(window)
            if not len(buffer) < size <= min(BATCH_BYTES_MAX, records.size - position):
                break
            # One batch is larger than the window.
            buffer = memoryview(bytearray(size))
        position += used
    return position, next_offset


def _decoded(
    window: memoryview, next_offset: int, *, with_records: bool
) -> Iterator[RecordColumns | ScannedBatches]:
    """Yield whole batches and damages; a batch that the window truncates is left out."""
    if not with_records:
        return scan_batches(window, is_complete=False, expected_offset=next_offset)
    return decode_chunks(
        window, keep=everything, is_complete=False, expected_offset=next_offset,
        chunk_bytes=WINDOW_BYTES,
    )  # fmt: skip


def _size_at_start(window: memoryview) -> int:
    """Return the size of the batch at the start; 0 if it is unknown."""
    try:
        found = locate(window, 0)
    except CorruptDataError:
        return 0
    return 0 if found is None else found.size


def _texts(
    style: Style, found: RecordColumns | ScannedBatches, window: memoryview, position: int
) -> Iterator[bytes | memoryview]:
    """Yield all lines of batches without damage."""
    batches = found.batches
    if not len(batches):
        return
    is_new = batches.magics == CURRENT_MAGIC
    if is_new.any() and not is_new.all():
        for at in batches.positions.tolist():
            batch = batch_at(window, at)
            line = style.batch(DumpedBatch(position + at, batch, is_valid=True))
            records = _one_by_one(style, batch) if isinstance(found, RecordColumns) else ""
            yield (line + records).encode()
    elif isinstance(found, RecordColumns):
        yield from _texts_of_records(style, found, window, position)
    else:
        yield text_of(style.batches(batches, window, position))


def _texts_of_records(
    style: Style, columns: RecordColumns, window: memoryview, position: int
) -> Iterator[bytes | memoryview]:
    heads, tail, columns = _heads(style, columns, window, position)
    if len(columns):
        firsts = np.flatnonzero(np.diff(columns.batch_indexes, prepend=-1))
        which = np.zeros(len(columns), np.int32)
        which[firsts] = np.arange(1, len(heads) + 1)
        choices = pa.concat_arrays([bytes_array([b""]), heads])
        line = style.records(columns)
        line.prepend(choices, numbers_array(which))
        line.add(b"\n")
        yield text_of(line.joined(len(columns)))
    yield tail


def _heads(
    style: Style, columns: RecordColumns, window: memoryview, position: int
) -> tuple[Column, bytes, RecordColumns]:
    """Return what precedes the first record of each batch that has any, what follows all, and the
    records that have their own lines."""
    batches = columns.batches
    lines = style.batches(batches, window, position)
    is_control = batches.is_control
    if is_control.any():
        columns = columns.take(~is_control[columns.batch_indexes])
    counts = np.bincount(columns.batch_indexes, minlength=len(batches))
    if counts.all():
        return lines, b"", columns
    heads: list[bytes] = []
    waiting: list[bytes] = []
    for i, (line, count) in enumerate(zip(lines.to_pylist(), counts.tolist(), strict=True)):
        waiting.append(line)
        if count:
            heads.append(b"".join(waiting))
            waiting = []
        elif is_control[i]:
            batch = batch_at(window, int(batches.positions[i]))
            waiting.append(_one_by_one(style, batch).encode())
    return bytes_array(heads), b"".join(waiting), columns


def _one_by_one(style: Style, batch: Batch) -> str:
    """Return the lines of a batch's records."""
    if not isinstance(batch, RecordBatch):
        return "".join(map(style.record, dumped_messages(batch)))
    found = []
    for record in batch.records():
        sequence = NO_SEQUENCE
        if batch.base_sequence >= 0:
            sequence = increment_sequence(batch.base_sequence, record.offset - batch.base_offset)
        decoded = decode_control_record(record) if batch.is_control else None
        found.append(style.record(DumpedRecord(batch, record, sequence, decoded=decoded)))
    return "".join(found)


def _message_checks(columns: RecordColumns) -> list[Column]:
    """Return checksums of v0 and v1 messages, and whether they are valid."""
    payload = memoryview(columns.payload)
    is_timed = columns.batches.magics[columns.batch_indexes] == 1
    starts = columns.key_starts - np.where(is_timed, 30, 22)
    cells: Any = np.ndarray((len(payload) - 3,), ">u4", buffer=payload, strides=(1,))
    stored = cells[starts + LOG_OVERHEAD].astype(np.int64)
    # Messages that are batches themselves have been checked.
    is_inner = (columns.batches.compression_types != 0)[columns.batch_indexes]
    begins = (starts + MAGIC_OFFSET)[is_inner].tolist()
    ends = (columns.value_starts + np.maximum(columns.value_lengths, 0))[is_inner].tolist()
    computed = [crc32(payload[at:end]) for at, end in zip(begins, ends, strict=True)]
    is_valid = np.ones(len(columns), np.int64)
    is_valid[is_inner] = stored[is_inner] == np.array(computed, np.int64)
    return [b" crc: ", numbers(stored), b" isvalid: ", chosen(is_valid, [b"false", b"true"])]


def _header_names(columns: RecordColumns) -> Column:
    """Return the header names of each record, separated by commas."""
    if not columns.header_counts.any():
        return b""
    headers = columns.to_arrow(("headers",)).column(0)
    names = headers.flatten().field(0).cast(pa.binary())
    return _joined_of_each(columns, names, b",")


def _header_pairs(columns: RecordColumns) -> Column:
    """Return the header names and values of each record."""
    if not columns.header_counts.any():
        return b""
    pairs = columns.to_arrow(("headers",)).column(0).flatten()
    names = pairs.field(0).cast(pa.binary())
    _, lengths = bytes_of(names)
    names = pc.if_else(mask_array(lengths == 0), constant(b""), shown_texts(names))
    texts = Line(b"  ", names, b"=", shown_texts(pairs.field(1))).joined(len(pairs))
    return _joined_of_each(columns, texts, b"")


def _joined_of_each(columns: RecordColumns, texts: Column, separator: bytes) -> Column:
    """Return the texts of each record's headers, joined."""
    offsets = np.zeros(len(columns) + 1, np.int32)
    np.cumsum(columns.header_counts, out=offsets[1:])
    lists = pa.ListArray.from_arrays(numbers_array(offsets), texts)
    return pc.binary_join(lists, constant(separator))
