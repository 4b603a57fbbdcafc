"""Rows: the records of a split as Arrow batches, with the columns of Spark's Kafka source.

The columns are key, value, topic, partition, offset, timestamp, timestampType, headers, and on
request leaderEpoch, producerId, producerEpoch and position. Offsets outside the split, control
records and, under read_committed, aborted records are left out; batches that contain nothing else
are not decompressed.

One chunk of decoded records is in memory at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from kctl.arrow_files.files import Files
from kctl.arrow_files.partition_log import PartitionLog, is_old_segment
from kctl.errors import CorruptDataError
from kctl.export.joined_pieces import JoinedPieces, together
from kctl.export.options import ExportOptions, Isolation
from kctl.export.splits import Piece, Split
from kctl.lazy_dataclass import dataclass
from kctl.records.columnar import (
    Keep,
    RecordColumns,
    decode_chunks,
    without_control,
    without_records,
)
from kctl.records.columnar07 import decode_chunks07
from kctl.records.columnar_arrow import HEADERS, TIMESTAMP
from kctl.records.columnar_batches import BatchColumns, BatchDamage, DamageRule, Mask
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.transactions import CommittedReader
from kctl.storage.segments07 import FaultKind
from kctl.storage.walk07 import DamagedRange as OldDamage
from kctl.storage.walk07 import ViewFile, walk_all

__all__ = ["DamagedRange"]

# Records after which superseded records are discarded.
_ROWS_BETWEEN = 1_000_000

RAW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "position": pa.int64(),
}


@dataclass(slots=True)
class DamagedRange:
    """A part of a file that could not be read, for the report."""

    path: str
    position: int
    size: int
    rule: str
    first_offset: int
    last_offset: int
    message: str

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.message}"


@dataclass(slots=True)
class SplitReader:
    """Reads one split; `damages` and `bytes_read` grow as it does."""

    split: Split
    options: ExportOptions
    progress: Callable[[int], object] = lambda _bytes: None
    damages: list[DamagedRange] = field(default_factory=list)
    bytes_read: int = 0

    def chunks(self) -> Iterator[RecordColumns]:
        """Yield the records; CorruptDataError for the first damage if the options ask for it."""
        keep = _keep(self.split, self.options)
        for pieces in together(self.split.pieces):
            if len(pieces) > 1:
                yield from self._joined(pieces, keep)
            else:
                yield from self._piece(pieces[0], keep)

    def _piece(self, piece: Piece, keep: Keep) -> Iterator[RecordColumns]:
        files, path = Files.of(piece.url)
        view = files.map(path, piece.start, piece.end)
        done = piece.start
        decoded = (
            _old_chunks(view, piece)
            if is_old_segment(path)
            else decode_chunks(
                view, position=piece.start, end=piece.end, keep=keep,
                expected_offset=piece.first_offset,
            )
        )  # fmt: skip
        for columns in decoded:
            for damage in columns.damages:
                self._note(piece, damage)
            yield from self._counted(columns, done)
            done = columns.end
        self.progress(piece.end - done)

    def _joined(self, pieces: Sequence[Piece], keep: Keep) -> Iterator[RecordColumns]:
        """Decode small pieces together, or one by one if damage may extend over their borders."""
        joined = JoinedPieces.read(pieces)
        if joined is None:
            for piece in pieces:
                yield from self._piece(piece, keep)
            return
        done = 0
        for columns in joined.chunks(keep):
            for damage in columns.damages:
                self._note(*joined.place(damage))
            yield from self._counted(joined.with_positions(columns), done)
            done = columns.end

    def _counted(self, columns: RecordColumns, done: int) -> Iterator[RecordColumns]:
        """Report the bytes from `done` to the end of the columns; yield the split's records."""
        self.progress(columns.end - done)
        self.bytes_read += columns.end - done
        if len(columns):
            yield _within(columns, self.split.first_offset, self.split.end_offset)

    def _note(self, piece: Piece, damage: BatchDamage) -> None:
        damaged = DamagedRange(
            piece.url, damage.position, damage.size, damage.rule.value, damage.offset,
            damage.last_offset, damage.message,
        )  # fmt: skip
        if self.options.fails_on_damage:
            raise CorruptDataError(
                str(damaged), hint="--on-damage skip exports all readable records"
            )
        self.damages.append(damaged)


def unreadable_end(log: PartitionLog, options: ExportOptions) -> list[DamagedRange]:
    """Return the damage of a last segment without any readable batch: the log ends before it, so
    that no split reads it. CorruptDataError if the options ask for it."""
    last = log.segments[-1]
    if last.is_old or not last.size or log.has_whole_batch_in_last_segment:
        return []
    piece = Piece(log.files.url(last.path), 0, last.size, last.base_offset)
    nothing = last.base_offset, last.base_offset
    reader = SplitReader(Split(*log.topic_partition, *nothing, (piece,)), options)
    for _ in reader.chunks():
        pass
    return reader.damages


_OLD_RULES = {
    FaultKind.CHECKSUM: DamageRule.CRC,
    FaultKind.CUT: DamageRule.CUT,
    FaultKind.MAGIC: DamageRule.HEADER,
    FaultKind.SIZE: DamageRule.HEADER,
}


def _old_chunks(view: memoryview, piece: Piece) -> Iterator[RecordColumns]:
    """Yield the messages of a piece of a Kafka 0.7 segment, also those after damage."""
    base_offset = piece.first_offset - piece.start
    position = piece.start
    while position < piece.end:
        for columns in decode_chunks07(view, position, piece.end, base_offset):
            position = columns.end
            yield columns
        if position < piece.end:
            found = next(walk_all(ViewFile(view[: piece.end]), position))
            assert isinstance(found, OldDamage)
            damage = BatchDamage(
                _OLD_RULES[found.kind], found.position, found.end - found.position,
                base_offset + found.position, base_offset + found.end - 1, found.reason,
            )  # fmt: skip
            position = found.end
            yield without_records([damage], position)


def _keep(split: Split, options: ExportOptions) -> Keep:
    is_committed: Keep = without_control
    if options.isolation is Isolation.READ_COMMITTED:
        is_committed = CommittedReader(split.aborted)

    def keep(batches: BatchColumns, view: memoryview) -> Mask:
        # A v0 or v1 wrapper message carries only its last offset.
        starts_before_end = (batches.base_offsets < split.end_offset) | (
            batches.magics < CURRENT_MAGIC
        )
        mask: Mask = (
            is_committed(batches, view)
            & starts_before_end
            & (batches.last_offsets >= split.first_offset)
        )
        return mask

    return keep


def _within(columns: RecordColumns, first_offset: int, end_offset: int) -> RecordColumns:
    offsets = columns.offsets
    return columns.take((offsets >= first_offset) & (offsets < end_offset))


def raw_table(
    columns: RecordColumns, topic: str, partition: int, names: tuple[str, ...]
) -> pa.RecordBatch:
    """Return the named columns with keys and values as stored."""
    count = len(columns)
    constant = {
        "topic": lambda: pa.repeat(pa.scalar(topic), count),
        "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), count),
    }
    decoded = columns.to_arrow([name for name in names if name not in constant])
    arrays: list[Any] = [
        constant[name]() if name in constant else decoded.column(name) for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, list(names))


class LatestPerKey:
    """The last record of each key, except keys whose last value is null. Records without a key are
    dropped.

    All records are added before the first call of `of`.
    """

    def __init__(self) -> None:
        self._found: pa.Table | None = None
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._offsets: np.ndarray[Any, Any] | None = None

    def add(self, columns: RecordColumns) -> None:
        """Add records in the order of their offsets."""
        part = columns.to_arrow(("key", "offset"))
        live = pa.array(columns.value_lengths >= 0)
        self._parts.append(pa.table([*part.columns, live], names=["key", "offset", "live"]))
        self._rows += len(columns)
        if self._rows > _ROWS_BETWEEN:
            self._settle()

    def of(self, columns: RecordColumns) -> Any:
        """Return a mask of the records that are the last of their keys."""
        if self._offsets is None:
            self._settle()
            found = self._found
            assert found is not None
            live = found.filter(found["live"])["offset"].to_numpy() if found.num_rows else []
            self._offsets = np.sort(np.asarray(live, np.int64))
        return np.isin(columns.offsets, self._offsets, assume_unique=True)

    def _settle(self) -> None:
        self._found = _last_of_each(self._found, self._parts)
        self._parts, self._rows = [], 0


def _last_of_each(found: pa.Table | None, parts: list[pa.Table]) -> pa.Table:
    tables = ([found] if found is not None else []) + parts
    if not tables:
        return pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64()),
                         "live": pa.array([], pa.bool_())})  # fmt: skip
    whole = pa.concat_tables(tables)
    whole = whole.filter(whole["key"].is_valid()).combine_chunks()
    last = whole.group_by("key").aggregate([("offset", "max")])["offset_max"].to_numpy()
    return whole.filter(pa.array(np.isin(whole["offset"].to_numpy(), last)))
