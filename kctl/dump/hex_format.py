"""An annotated hexdump of batches: the fields of the header with their bytes, then the records.

For the inspection of damage: nothing is decompressed or trusted, a wrong checksum is marked.
"""

from collections.abc import Iterable, Iterator

from kctl.counts import counted
from kctl.dump.values import DumpedBatch, DumpedFile, DumpItem, TrailingBytes
from kctl.records.record_batch import RecordBatch

_ROW_BYTES = 16
# Name and size of the fields, in order.
_V2_FIELDS = (
    ("baseOffset", 8), ("batchLength", 4), ("partitionLeaderEpoch", 4), ("magic", 1), ("crc", 4),
    ("attributes", 2), ("lastOffsetDelta", 4), ("baseTimestamp", 8), ("maxTimestamp", 8),
    ("producerId", 8), ("producerEpoch", 2), ("baseSequence", 4), ("recordCount", 4),
)  # fmt: skip
_LEGACY_FIELDS = (("offset", 8), ("messageSize", 4), ("crc", 4), ("magic", 1), ("attributes", 1))
_V1_FIELDS = (*_LEGACY_FIELDS, ("timestamp", 8))
_UNSIGNED = ("crc", "attributes")


def hex_lines(items: Iterable[DumpItem]) -> Iterator[str]:
    """Yield the lines, each with its end; items other than batches are skipped."""
    for item in items:
        if isinstance(item, DumpedFile):
            yield f"{item.path}  ({counted(item.size, 'byte')})\n"
        elif isinstance(item, DumpedBatch):
            yield from _batch(item)
        elif isinstance(item, TrailingBytes):
            yield f"{item.position:08x}  {counted(item.length, 'byte')}, not a batch\n"


def _batch(item: DumpedBatch) -> Iterator[str]:
    batch = item.batch
    data = batch.to_bytes()
    if isinstance(batch, RecordBatch):
        fields: tuple[tuple[str, int], ...] = _V2_FIELDS
    else:
        fields = _V1_FIELDS if batch.magic == 1 else _LEGACY_FIELDS
    at = 0
    for name, size in fields:
        raw = data[at : at + size]
        value = int.from_bytes(raw, "big", signed=name not in _UNSIGNED)
        note = ""
        if name == "crc" and not item.is_valid:
            note = f"  WRONG, computed {batch.compute_crc()}"
        yield f"{item.position + at:08x}  {raw.hex(' '):<24}  {name} {value}{note}\n"
        at += size
    for start in range(at, len(data), _ROW_BYTES):
        row = data[start : start + _ROW_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{item.position + start:08x}  {row.hex(' '):<47}  |{text}|\n"
    yield "\n"
