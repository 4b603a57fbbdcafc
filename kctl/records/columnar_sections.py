"""Sections: the decompressed records of batches, side by side in one payload.

Batches without a codec are not copied: their payload is a view of their buffer. Otherwise the
payload is the decompressed records joined, up to the size of a chunk, so a task needs the memory of
a chunk and of one batch however well its file is compressed.
"""

from collections.abc import Iterator
from dataclasses import field

import numpy as np

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.columnar_batches import BatchColumns, BatchDamage, DamageRule, Int64s
from kctl.records.columnar_fields import PADDING_BYTES
from kctl.records.compression import decompress
from kctl.records.legacy import LegacyBatch
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import RECORD_BATCH_OVERHEAD

Payload = bytes | memoryview


@dataclass(slots=True)
class Sections:
    """The records of several batches."""

    # Ends with PADDING_BYTES bytes that belong to no record.
    payload: Payload
    batches: BatchColumns
    # Of each batch's records in the payload; an uncompressed v0 or v1 message in full.
    starts: Int64s
    ends: Int64s
    # Of batches that could not be decompressed: their sections are empty.
    damages: list[BatchDamage] = field(default_factory=list)


def sections(
    view: memoryview, batches: BatchColumns, *, chunk_bytes: int, batch_bytes_max: int
) -> Iterator[Sections]:
    """Yield the records of `batches`, about `chunk_bytes` at a time."""
    if not len(batches):
        return
    if not batches.compression_types.any():
        yield _in_place(view, batches)
        return
    start = 0
    while start < len(batches):
        found, start = _joined(view, batches, start, chunk_bytes, batch_bytes_max)
        yield found


def _in_place(view: memoryview, batches: BatchColumns) -> Sections:
    first, end = int(batches.positions[0]), int(batches.positions[-1] + batches.sizes[-1])
    starts = batches.positions - first
    ends = starts + batches.sizes
    starts += np.where(batches.magics == CURRENT_MAGIC, RECORD_BATCH_OVERHEAD, 0)
    return Sections(_padded(view, first, end), batches, starts, ends)


def _padded(view: memoryview, start: int, end: int) -> Payload:
    """Return the bytes with the padding after them; they are copied only if the buffer ends
    there."""
    if end + PADDING_BYTES <= len(view):
        return view[start : end + PADDING_BYTES]
    return b"".join((view[start:end], bytes(PADDING_BYTES)))


def _joined(
    view: memoryview, batches: BatchColumns, start: int, chunk_bytes: int, batch_bytes_max: int
) -> tuple[Sections, int]:
    """Return the sections from batch `start` on, and the next batch."""
    parts: list[Payload] = []
    sizes: list[int] = []
    damages: list[BatchDamage] = []
    total = 0
    magics, codecs = batches.magics.tolist(), batches.compression_types.tolist()
    positions, ends = batches.positions.tolist(), batches.ends.tolist()
    number = start
    while number < len(positions) and (total < chunk_bytes or number == start):
        position, end = positions[number], ends[number]
        is_current = magics[number] == CURRENT_MAGIC
        try:
            if not codecs[number]:
                part: Payload = view[position + (RECORD_BATCH_OVERHEAD if is_current else 0) : end]
            elif is_current:
                body = view[position + RECORD_BATCH_OVERHEAD : end]
                part = decompress(codecs[number], body, batch_bytes_max)
            else:
                wrapper = LegacyBatch(view, position)
                wrapper.ensure_wrapper()
                part = wrapper.decompress(batch_bytes_max)
        except CorruptDataError as error:
            part = b""
            damages.append(
                BatchDamage(
                    DamageRule.COMPRESSION, position, end - position,
                    int(batches.base_offsets[number]), int(batches.last_offsets[number]),
                    str(error),
                )
            )  # fmt: skip
        parts.append(part)
        sizes.append(len(part))
        total += len(part)
        number += 1
    parts.append(bytes(PADDING_BYTES))
    stops = np.cumsum(np.array(sizes, np.int64))
    begins = stops - np.array(sizes, np.int64)
    chosen = batches.take(slice(start, number))
    return Sections(b"".join(parts), chosen, begins, stops, damages), number
