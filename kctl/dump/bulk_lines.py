"""The lines of many records laid out in vectors: what kafka_format and text_format print of a
record at a time, without an object per record.

A window of valid batches is decoded into columns; each column becomes text at once; one join makes
all lines, in one buffer, from which each batch's share is cut. Rows that need care (text that is
not UTF-8 or not printable, headers, control records, formats v0 and v1) are done one at a time by
the very functions of those modules, so there is one truth about what a line says.

numpy and pyarrow are loaded with this module: only for files that are worth it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.dump.control_records import decode_control_record
from kctl.dump.kafka_format import TIMESTAMP_TYPES, Contents, batch_line, java_text
from kctl.dump.kafka_format import record_line as kafka_record_line
from kctl.dump.text_format import batch_line as text_batch_line
from kctl.dump.text_format import iso, shown
from kctl.dump.text_format import record_line as text_record_line
from kctl.dump.values import DumpedBatch, DumpedRecord
from kctl.records.columnar import RecordColumns, decode_chunks, everything
from kctl.records.memory_records import batch_at
from kctl.records.record_batch import NO_SEQUENCE, SEQUENCE_MAX, RecordBatch, increment_sequence

# A window smaller than this is not worth the columns.
_RECORDS_MIN = 200
_MS = 1000

Column = Any
Lines = tuple[memoryview, list[int]]


class KafkaLines:
    """The very text of kafka-dump-log 2.7.2."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def batch(self, item: DumpedBatch) -> str:
        return batch_line(item)

    def record(self, item: DumpedRecord) -> str:
        return kafka_record_line(item, self._contents)

    def join(self, columns: RecordColumns) -> Column:
        """An element a record."""
        batches, indexes = columns.batches, columns.batch_indexes
        sequences = batches.base_sequences[indexes]
        bases = batches.base_offsets[indexes]
        numbered = (sequences + (columns.offsets - bases)) & SEQUENCE_MAX
        line = _Line()
        line.add(b"| offset: ", _numbers(columns.offsets), b" ", _of_types(columns), b": ")
        line.add(_numbers(columns.timestamps), b" keysize: ", _numbers(columns.key_lengths))
        line.add(b" valuesize: ", _numbers(columns.value_lengths), b" sequence: ")
        line.add(_numbers(np.where(sequences < 0, NO_SEQUENCE, numbered)), b" headerKeys: ")
        line.add(_header_names(columns))
        if self._contents is not Contents.NOTHING:
            data = columns.to_arrow(("key", "value"))
            line.add(*_named(b" key: ", _java(data.column(0))))
            line.add(*_named(b" payload: ", _java(data.column(1))))
        line.add(b"\n")
        return line.joined(len(columns))


class TextLines:
    """Aligned lines for people."""

    def __init__(self, *, with_data: bool) -> None:
        self._with_data = with_data

    def batch(self, item: DumpedBatch) -> str:
        return text_batch_line(item)

    def record(self, item: DumpedRecord) -> str:
        return text_record_line(item, with_data=self._with_data)

    def join(self, columns: RecordColumns) -> Column:
        """An element a record."""
        line = _Line()
        line.add(b"    ", *_padded(_numbers(columns.offsets), 13), b" ", _times(columns.timestamps))
        line.add(_append_marks(columns), b"  ")
        if self._with_data:
            data = columns.to_arrow(("key", "value"))
            line.add(*_padded(_shown(data.column(0)), 16), b"  ", _shown(data.column(1)))
            line.add(_header_pairs(columns))
        else:
            line.add(b"key ", *_sizes(columns.key_lengths))
            line.add(b"  value ", *_sizes(columns.value_lengths))
        line.add(b"\n")
        return line.joined(len(columns))


class _Line:
    """Parts of a line: columns, and bytes that all lines have; neighbours of these are merged, as
    each part costs every line."""

    def __init__(self) -> None:
        self._parts: list[Column] = []

    def add(self, *parts: Column) -> None:
        for part in parts:
            if isinstance(part, bytes) and self._parts and isinstance(self._parts[-1], bytes):
                self._parts[-1] += part
            else:
                self._parts.append(part)

    def joined(self, count: int) -> Column:
        """The lines; `count` of them, if all are the same."""
        if all(isinstance(part, bytes) for part in self._parts):
            return pa.array(self._parts * count, pa.binary())
        parts = [_constant(it) if isinstance(it, bytes) else it for it in self._parts]
        return pc.binary_join_element_wise(*parts, _constant(b""))


def window_lines(
    style: KafkaLines | TextLines, buffer: memoryview, position: int
) -> Iterator[bytes | memoryview | str]:
    """The lines of a window of valid batches that begins at `position` in the file."""
    for columns in decode_chunks(buffer, keep=everything, check_crc=False):
        if columns.damages:
            # A batch that nobody can read: told by the caller's slow way.
            raise UnreadableBatchError
        batches = columns.batches
        is_plain = (batches.magics == 2) & ~batches.is_control
        lines: Lines | None = None
        if len(columns) >= _RECORDS_MIN:
            lines = _cut(style.join(columns))
        starts = np.searchsorted(columns.batch_indexes, np.arange(len(batches) + 1)).tolist()
        for i, at in enumerate(batches.positions.tolist()):
            batch = batch_at(buffer, at)
            yield style.batch(DumpedBatch(position + at, batch, is_valid=True))
            if lines is not None and is_plain[i]:
                text, offsets = lines
                yield text[offsets[starts[i]] : offsets[starts[i + 1]]]
            else:
                yield from _one_by_one(style, batch)


class UnreadableBatchError(Exception):
    """A checksum is right and the records are not."""


def _one_by_one(style: KafkaLines | TextLines, batch: Any) -> Iterator[str]:
    if isinstance(batch, RecordBatch):
        for record in batch.records():
            sequence = NO_SEQUENCE
            if batch.base_sequence >= 0:
                delta = record.offset - batch.base_offset
                sequence = increment_sequence(batch.base_sequence, delta)
            decoded = decode_control_record(record) if batch.is_control else None
            yield style.record(DumpedRecord(batch, record, sequence, decoded=decoded))
        return
    from kctl.dump.log_dump import dumped_messages

    for item in dumped_messages(batch):
        yield style.record(item)


def _cut(joined: Column) -> Lines:
    """The text of all, and where each element begins."""
    offsets = np.frombuffer(joined.buffers()[1], np.int32, len(joined) + 1, joined.offset * 4)
    return memoryview(joined.buffers()[2]), offsets.tolist()


def _constant(text: bytes) -> Column:
    return pa.scalar(text, pa.binary())


def _is_constant(values: Any) -> bool:
    return bool((values == values[0]).all())


def _numbers(values: Any) -> Column:
    """Bytes if all are the same."""
    if _is_constant(values):
        return b"%d" % int(values[0])
    return pc.cast(pa.array(values), pa.string()).cast(pa.binary())


def _of_types(columns: RecordColumns) -> Column:
    kinds = columns.batches.timestamp_types[columns.batch_indexes]
    if _is_constant(kinds):
        return TIMESTAMP_TYPES[int(kinds[0])].encode()
    names = pa.array([TIMESTAMP_TYPES[kind].encode() for kind in (-1, 0, 1)], pa.binary())
    return names.take(pa.array(kinds + 1))


def _append_marks(columns: RecordColumns) -> Column:
    marks = (columns.batches.timestamp_types == 1)[columns.batch_indexes]
    if not marks.any():
        return b""
    return pa.array([b"", b" (append)"], pa.binary()).take(pa.array(marks.astype(np.int8)))


def _named(name: bytes, data: Column) -> tuple[Column, ...]:
    """Nothing for a null."""
    if not data.null_count:
        return name, data
    text = pc.binary_join_element_wise(_constant(name), data, _constant(b""))
    return (pc.fill_null(text, b""),)


def _bytes_of(data: Column) -> tuple[Any, Any]:
    """All bytes of a column, and the length of each element."""
    _, offset_buffer, byte_buffer = data.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(data) + 1, data.offset * 4)
    every = np.frombuffer(byte_buffer or b"", np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return every, np.diff(offsets)


def _is_ascii(data: Column) -> bool:
    every, _ = _bytes_of(data)
    return not len(every) or bool(every.max() < 0x80)


def _is_utf8(data: Column) -> bool:
    if _is_ascii(data):
        return True
    try:
        data.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _java(data: Column) -> Column:
    """What Java makes of bytes that should be UTF-8."""
    if _is_utf8(data):
        return data
    return pa.array(
        [None if it is None else java_text(it).encode() for it in data.to_pylist()], pa.binary()
    )


def _shown(data: Column) -> Column:
    """As text_format shows a key or a value."""
    every, lengths = _bytes_of(data)
    is_empty = lengths == 0
    if data.null_count:
        is_empty &= ~data.is_null().to_numpy(zero_copy_only=False)
    is_plain = not len(every) or (every.min() >= 0x20 and every.max() < 0x7F)
    if not is_empty.any() and (is_plain or _is_printable(data)):
        return pc.fill_null(data, b"null") if data.null_count else data
    return pa.array([shown(it).encode() for it in data.to_pylist()], pa.binary())


def _is_printable(data: Column) -> bool:
    if not _is_utf8(data):
        return False
    return bool(pc.all(pc.utf8_is_printable(data.cast(pa.string())), min_count=0).as_py())


def _sizes(lengths: Any) -> tuple[Column, ...]:
    is_null = lengths < 0
    if not is_null.any():
        return _numbers(lengths), b" B"
    texts = pc.cast(pa.array(lengths), pa.string()).cast(pa.binary())
    with_unit = pc.binary_join_element_wise(texts, _constant(b" B"), _constant(b""))
    return (pc.if_else(pa.array(is_null), _constant(b"null"), with_unit),)


def _padded(data: Column, width: int) -> tuple[Column, ...]:
    """Spaces are one part for all where all are equally long."""
    if isinstance(data, bytes):
        return (data.ljust(width),)
    if not _is_ascii(data):
        return (pc.utf8_rpad(data.cast(pa.string()), width).cast(pa.binary()),)
    _, lengths = _bytes_of(data)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest or shortest >= width:
        return data, b" " * (width - shortest)
    return (pc.ascii_rpad(data.cast(pa.string()), width).cast(pa.binary()),)


def _times(timestamps: Any) -> Column:
    """ISO 8601, as text_format has it; seconds are few, so each is written once."""
    if timestamps.min() < 0 or timestamps.max() >= 253_402_300_800_000:
        texts = [f"{iso(it):<24}".encode() for it in timestamps.tolist()]
        return pa.array(texts, pa.binary())
    seconds = timestamps // _MS
    changes = np.flatnonzero(np.diff(seconds)) + 1
    firsts = np.concatenate(([0], changes))
    which = np.zeros(len(seconds), np.int32)
    which[changes] = 1
    which = np.cumsum(which)
    heads = [iso(it * _MS)[:-4] for it in seconds[firsts].tolist()]
    head = pa.array([it.encode() for it in heads], pa.binary()).take(pa.array(which))
    return pc.binary_join_element_wise(
        head, _TAILS.take(pa.array(timestamps - seconds * _MS)), _constant(b"")
    )


_TAILS = pa.array([f"{ms:03d}Z".encode() for ms in range(_MS)], pa.binary())


def _with_headers(columns: RecordColumns, default: str, text: Callable[[int], str]) -> Column:
    """`text` of the records that have headers, `default` for the others."""
    which = np.flatnonzero(columns.header_counts)
    if not len(which):
        return default.encode()
    texts = [default.encode()] * len(columns)
    for index in which.tolist():
        texts[index] = text(index).encode()
    return pa.array(texts, pa.binary())


def _header_names(columns: RecordColumns) -> Column:
    pairs = _HeaderPairs(columns)
    return _with_headers(columns, "[]", lambda i: f"[{','.join(name for name, _ in pairs.of(i))}]")


def _header_pairs(columns: RecordColumns) -> Column:
    pairs = _HeaderPairs(columns)

    def text(index: int) -> str:
        return "".join(
            f"  {shown(name.encode()) if name else ''}={shown(value)}"
            for name, value in pairs.of(index)
        )

    return _with_headers(columns, "", text)


class _HeaderPairs:
    """The headers of single records, each found at once."""

    def __init__(self, columns: RecordColumns) -> None:
        self._columns = columns
        self._firsts = np.concatenate(([0], np.cumsum(columns.header_counts))).tolist()

    def of(self, index: int) -> list[tuple[str, bytes | None]]:
        headers, payload = self._columns.headers, self._columns.payload
        found = []
        for at in range(self._firsts[index], self._firsts[index + 1]):
            key, key_length = int(headers.key_starts[at]), int(headers.key_lengths[at])
            value, length = int(headers.value_starts[at]), int(headers.value_lengths[at])
            name = bytes(payload[key : key + key_length]).decode("utf-8", "replace")
            found.append((name, None if length < 0 else bytes(payload[value : value + length])))
        return found
