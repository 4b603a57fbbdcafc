"""Columns of the messages of a Kafka 0.7 segment, without an object per message.

Each entry is followed by its size; what is inside compressed messages is flattened, as consumers
get it. A message's offset is the position of its outermost entry plus its number inside it, but
less than the position of the next entry: a set may hold more messages than it has bytes.

Invariant: the messages are those of `kctl.records.message07.messages`, except that a compressed
message which cannot be opened is damage, left out as a whole, and the walk continues after it.

Kafka 0.7: kafka.message.ByteBufferMessageSet
"""

import struct
from array import array
from collections.abc import Iterator

import numpy as np

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import crc32
from kctl.records.columnar import RecordColumns
from kctl.records.columnar_batches import BatchColumns, BatchDamage, DamageRule, Int64s
from kctl.records.columnar_fields import HeaderColumns
from kctl.records.compression import DEFAULT_DECOMPRESSED_BYTES_MAX
from kctl.records.message07 import (
    CODEC_MASK,
    HEADER_BYTES,
    SIZE,
    Entry07,
    Message07,
    entry_at,
    inner_messages,
    open_message,
)

__all__ = ["decode_chunks07"]

# Bytes of entries and of what is inside them, decoded together.
CHUNK_BYTES = 8 * 1024 * 1024
_HEAD = struct.Struct(">iBBI")


class _Chunk:
    """The messages of consecutive entries, in parts: a run of plain ones, or a compressed set."""

    def __init__(self, start: int) -> None:
        self.end = self.start = start
        # Of each entry, and the number of messages inside.
        self.positions: list[Int64s] = []
        self.counts: list[Int64s] = []
        # Of each message, in the joined parts.
        self.starts: list[Int64s] = []
        self.lengths: list[Int64s] = []
        self.parts: list[Buffer] = []
        self.size = 0
        self.damages: list[BatchDamage] = []

    def add(self, part: Buffer, starts: Int64s, lengths: Int64s) -> None:
        """Add messages at `starts` in `part`."""
        self.parts.append(part)
        self.starts.append(starts + self.size)
        self.lengths.append(lengths)
        self.size += len(part)


def decode_chunks07(
    view: memoryview,
    position: int,
    end: int,
    base_offset: int,
    bytes_max: int = DEFAULT_DECOMPRESSED_BYTES_MAX,
) -> Iterator[RecordColumns]:
    """Yield the messages of the entries from `position` on, up to `end` or the first that is not
    intact: the last columns' `end` is there.

    `base_offset` is that of the first byte of `view`.
    """
    # Views of mapped files may have signed bytes.
    view = view.cast("B")
    while True:
        chunk = _Chunk(position)
        is_over = _fill(chunk, view, end, base_offset, bytes_max)
        yield _columns(chunk, base_offset)
        position = chunk.end
        if is_over:
            return


def _fill(chunk: _Chunk, view: memoryview, end: int, base_offset: int, bytes_max: int) -> bool:
    """Add entries up to about CHUNK_BYTES; return whether nothing intact follows."""
    at = chunk.start
    while chunk.size < CHUNK_BYTES:
        run = array("q")
        following = _plain_run(view, at, end, run)
        if run:
            starts, lengths = _fields_of(view, at, following, run)
            chunk.add(view[at:following], starts, lengths)
            chunk.positions.append(_int64s(run))
            chunk.counts.append(np.ones(len(run), np.int64))
            chunk.end = at = following
            continue
        entry = _intact_entry(view, at, end)
        if entry is None:
            return True
        chunk.positions.append(_int64s([at]))
        count = _add_message(chunk, entry, base_offset, bytes_max)
        chunk.counts.append(_int64s([count]))
        chunk.end = at = entry.end
    return False


def _plain_run(data: Buffer, at: int, end: int, run: "array[int]") -> int:
    """Append the positions of the intact plain entries from `at` on, up to about CHUNK_BYTES;
    return where they end."""
    head, checksum, add, mask = _HEAD.unpack_from, crc32, run.append, CODEC_MASK
    last = min(at + CHUNK_BYTES, end - _HEAD.size)
    while at <= last:
        length, magic, attributes, crc = head(data, at)
        following = at + 4 + length
        if following > end:
            break
        if magic == 1:
            if attributes & mask or length < 6 or checksum(data[at + 10 : following]) != crc:
                break
        elif (
            magic or length < 5 or checksum(data[at + 9 : following]) != attributes << 24 | crc >> 8
        ):
            break
        add(at)
        at = following
    return at


def _fields_of(data: Buffer, start: int, end: int, run: "array[int]") -> tuple[Int64s, Int64s]:
    """Return where the payloads of a run begin, from `start` on, and their lengths."""
    positions = _int64s(run) - start
    magics = np.frombuffer(data, np.uint8)[positions + (start + SIZE.size)]
    starts = positions + SIZE.size + HEADER_BYTES[0] + magics
    return starts, np.append(positions[1:], end - start) - starts


def _intact_entry(view: memoryview, at: int, end: int) -> Entry07 | None:
    try:
        entry = entry_at(view[:end], at)
    except CorruptDataError:
        return None
    return entry if entry is not None and entry.message.is_valid else None


def _add_message(chunk: _Chunk, entry: Entry07, base_offset: int, bytes_max: int) -> int:
    """Add the messages inside an entry, or its own; return their number."""
    message = entry.message
    if not message.attributes & CODEC_MASK:
        chunk.add(message.payload, np.zeros(1, np.int64), _int64s([len(message.payload)]))
        return 1
    try:
        return _add_set(chunk, message, bytes_max)
    except CorruptDataError as error:
        chunk.damages.append(
            BatchDamage(
                DamageRule.RECORDS, entry.position, entry.end - entry.position,
                base_offset + entry.position, base_offset + entry.end - 1,
                f"inside the compressed message: {error}",
            )
        )  # fmt: skip
        return 0


def _add_set(chunk: _Chunk, message: Message07, bytes_max: int) -> int:
    data = open_message(message, 1, bytes_max)
    run = array("q")
    end = 0
    while (following := _plain_run(data, end, len(data), run)) > end:
        end = following
    if end == len(data):
        if run:
            chunk.add(data, *_fields_of(data, 0, end, run))
        return len(run)
    # Nested, cut or damaged. There may be millions: an object for each would take gigabytes.
    payloads, sizes = bytearray(), array("q")
    for inner in inner_messages(message, bytes_max):
        payloads += inner.payload
        sizes.append(len(inner.payload))
    lengths = np.array(sizes, np.int64)
    chunk.add(payloads, np.cumsum(lengths) - lengths, lengths)
    return len(sizes)


def _columns(chunk: _Chunk, base_offset: int) -> RecordColumns:
    positions, counts = _joined(chunk.positions), _joined(chunk.counts)
    starts, lengths = _joined(chunk.starts), _joined(chunk.lengths)
    payload = chunk.parts[0] if len(chunk.parts) == 1 else b"".join(chunk.parts)
    ends = np.append(positions[1:], chunk.end)
    indexes = np.repeat(np.arange(len(positions)), counts)
    # The number of each message inside its entry.
    numbers = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = np.minimum(positions[indexes] + numbers, ends[indexes] - 1) + base_offset
    nothing = np.full(len(starts), -1, np.int64)
    return RecordColumns(
        memoryview(payload), offsets, nothing, starts, nothing, starts, lengths,
        np.zeros(len(starts), np.int64), HeaderColumns.none(), indexes,
        _entries(positions, ends, counts, base_offset), chunk.damages, chunk.end,
    )  # fmt: skip


def _entries(positions: Int64s, ends: Int64s, counts: Int64s, base_offset: int) -> BatchColumns:
    """Return the entries in the terms of batches: as those of v0, which have no timestamps."""
    zeros = np.zeros(len(positions), np.int64)
    none = zeros - 1
    return BatchColumns(
        positions, ends - positions, zeros, positions + base_offset, ends + base_offset - 1, none,
        zeros, none, none, none, none, none, counts,
    )  # fmt: skip


def _joined(columns: list[Int64s]) -> Int64s:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


def _int64s(values: "list[int] | array[int]") -> Int64s:
    return np.array(values, np.int64)
