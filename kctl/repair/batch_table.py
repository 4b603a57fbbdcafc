"""BatchTable: position and offsets of every intact batch of a partition, and the damage between.

Repair needs the whole log: a batch can be far from where its offsets belong, even in another
segment. The table holds positions and offsets, no records: about 70 bytes a batch.

Kafka 2.7 has no counterpart; kafka.log.LogSegment.recover reads one segment and looks at no other.
"""

from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from typing import NamedTuple

from kctl.errors import CorruptDataError, KctlError
from kctl.lazy_dataclass import dataclass
from kctl.records.legacy import LegacyBatch
from kctl.records.memory_records import batch_at
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import LOG_SUFFIX, file_name
from kctl.verify.segment_walk import WalkedBatch, Window, walk

# About 200 MB of columns and derived data.
BATCHES_MAX = 2_000_000
# Below this offset a v1 wrapper is readable whatever its relative offsets are.
_HIGH_OFFSET = 2**62


class LogTooLargeError(KctlError):
    """The log has more batches than repair can hold in memory."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a segment that are not a batch, or a batch whose records cannot be read."""

    file: int
    # Number of intact batches of the log before it.
    rows_before: int
    position: int
    end: int


class Row(NamedTuple):
    """One intact batch."""

    file: int
    position: int
    size: int
    magic: int
    first_offset: int
    last_offset: int
    # The offset field of the header: the first in v2, the last in v0 and v1.
    stored_offset: int
    crc: int
    leader_epoch: int
    # The checksum covers the offsets, as in a compressed message of v0.
    is_proven: int
    # -1 and 0 in v0 and v1.
    producer_id: int
    producer_epoch: int
    attributes: int
    max_timestamp: int

    @property
    def end(self) -> int:
        """Return the position after the batch."""
        return self.position + self.size


@dataclass(slots=True)
class BatchTable:
    """The batches of a partition; rows are in the order of file names, then of positions."""

    paths: list[str]
    base_offsets: list[int]
    sizes: list[int] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    _columns: tuple["array[int]", ...] = field(
        default_factory=lambda: tuple(array(code) for code in "HqiBqqqIiBqhhq")
    )

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: int) -> Row:
        return Row(*[column[index] for column in self._columns])

    def __iter__(self) -> Iterator[Row]:
        return map(Row, *self._columns)

    @property
    def files(self) -> "array[int]":
        return self._columns[0]

    @property
    def attributes(self) -> "array[int]":
        return self._columns[12]

    @property
    def first_offsets(self) -> "array[int]":
        return self._columns[4]

    @property
    def last_offsets(self) -> "array[int]":
        return self._columns[5]

    def add(self, row: Row) -> None:
        """Append a batch."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)


def read_table(
    disk: Disk, directory: str, base_offsets: list[int], unreadable: set[tuple[str, int]]
) -> BatchTable:
    """Walk all segments of `directory`; LogTooLargeError beyond BATCHES_MAX.

    `unreadable` holds path and position of batches whose checksum is right but whose records
    cannot be decoded.
    """
    paths = [f"{directory}/{file_name(base, LOG_SUFFIX)}" for base in base_offsets]
    table = BatchTable(paths, base_offsets)
    for number, path in enumerate(paths):
        records = FileRecords.open(disk, path)
        try:
            table.sizes.append(records.size)
            _read_file(table, number, records, unreadable)
        finally:
            records.close()
    return table


def _read_file(
    table: BatchTable, number: int, records: FileRecords, unreadable: set[tuple[str, int]]
) -> None:
    for item in walk(records, table.base_offsets[number]):
        if not isinstance(item, Window):
            table.stretches.append(Stretch(number, len(table), item.position, item.end))
            continue
        if len(table) + len(item.batches) > BATCHES_MAX:
            raise LogTooLargeError(
                f"{records.path}: the log has more than {BATCHES_MAX} batches, too many to put in "
                "order at once"
            )
        for batch in item.batches:
            offsets = _offsets(item, batch, (records.path, batch.position) not in unreadable)
            if offsets is None or offsets[1] < offsets[0]:
                end = batch.position + batch.size
                table.stretches.append(Stretch(number, len(table), batch.position, end))
                continue
            stored = batch.base_offset if batch.magic == 2 else batch.last_offset
            table.add(
                Row(number, batch.position, batch.size, batch.magic, *offsets, stored, batch.crc,
                    batch.leader_epoch, int(batch.is_wrapper and batch.magic == 0),
                    batch.producer_id, batch.producer_epoch, batch.attributes, batch.max_timestamp)
            )  # fmt: skip


def _offsets(window: Window, batch: WalkedBatch, is_readable: bool) -> tuple[int, int] | None:
    """Return the first and last offset of a batch, or None if its records cannot be read.

    The offsets of a wrapper are inside it: in v0 as absolute numbers that its checksum covers, in
    v1 relative to the wrapper's own offset. A v1 wrapper that only a wrong offset makes
    unreadable has the offsets that follow from it, even if they are negative.
    """
    if not batch.is_wrapper:
        return (batch.base_offset, batch.last_offset) if is_readable else None
    inner = batch_at(window.buffer, batch.position - window.position)
    assert isinstance(inner, LegacyBatch)
    if is_readable:
        with suppress(CorruptDataError):
            offsets = [record.offset for record in inner.records()]
            if offsets:
                return offsets[0], offsets[-1]
            return batch.last_offset, batch.last_offset
    return _offsets_of_misnumbered(inner) if batch.magic == 1 else None


def _offsets_of_misnumbered(wrapper: LegacyBatch) -> tuple[int, int] | None:
    """Return the offsets of a v1 wrapper whose own offset is impossible, or None if it has no
    readable records under any offset."""
    readable = LegacyBatch(bytearray(wrapper.to_bytes()))
    readable.set_last_offset(_HIGH_OFFSET)
    try:
        offsets = [record.offset for record in readable.records()]
    except CorruptDataError:
        return None
    if not offsets or offsets != sorted(set(offsets)) or offsets[-1] != _HIGH_OFFSET:
        return None
    return wrapper.offset - (offsets[-1] - offsets[0]), wrapper.offset
