"""JoinedPieces: many small segments of a split as one buffer, decoded together.

Decoding costs about half a millisecond a buffer, however few records it holds, so segments of a few
kilobytes are read one after the other into one buffer. Segments that are whole are one sequence of
batches; if the walk over the headers and checksums finds anything else, or a batch across a border,
the pieces are decoded one by one, which reports the damage as it is in its file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from kctl.arrow_files.files import Files
from kctl.arrow_files.partition_log import is_old_segment
from kctl.export.splits import Piece
from kctl.lazy_dataclass import dataclass
from kctl.records.columnar import Keep, RecordColumns, decode_scanned
from kctl.records.columnar_batches import BatchDamage, Int64s, ScannedBatches, scan_batches

# Bytes that are read together, and the largest piece that is copied for that.
_JOINED_BYTES_MAX = 4 * 1024 * 1024
_PIECE_BYTES_MAX = 512 * 1024


def together(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces in order, small neighbours in one list."""
    waiting: list[Piece] = []
    size = 0
    for piece in pieces:
        length = piece.end - piece.start
        is_small = length <= _PIECE_BYTES_MAX and not is_old_segment(piece.url)
        if waiting and not (is_small and size + length <= _JOINED_BYTES_MAX):
            yield waiting
            waiting, size = [], 0
        if is_small:
            waiting.append(piece)
            size += length
        else:
            yield [piece]
    if waiting:
        yield waiting


@dataclass(slots=True)
class JoinedPieces:
    """Pieces side by side in one buffer, which holds nothing but whole and valid batches."""

    pieces: Sequence[Piece]
    # Where each piece begins in the buffer.
    starts: Int64s
    view: memoryview
    steps: Sequence[ScannedBatches]

    @classmethod
    def read(cls, pieces: Sequence[Piece]) -> "JoinedPieces | None":
        """Read the pieces; None if they must be decoded one by one. StorageError."""
        parts = []
        for piece in pieces:
            files, path = Files.of(piece.url)
            parts.append(files.read_range(path, piece.start, piece.end - piece.start))
        sizes = np.array([len(part) for part in parts], np.int64)
        starts = np.cumsum(sizes) - sizes
        view = memoryview(b"".join(parts))
        steps = list(scan_batches(view))
        positions = np.concatenate([step.batches.positions for step in steps]) if steps else starts
        is_whole = (
            not any(step.damages for step in steps)
            and all(len(part) == it.end - it.start for part, it in zip(parts, pieces, strict=True))
            and bool(np.isin(starts, positions).all())
        )
        return cls(pieces, starts, view, steps) if is_whole else None

    def chunks(self, keep: Keep) -> Iterator[RecordColumns]:
        """Yield the records, as `decode_chunks` does; positions are those in the buffer."""
        for step in self.steps:
            yield from decode_scanned(self.view, step, keep=keep)

    def place(self, damage: BatchDamage) -> tuple[Piece, BatchDamage]:
        """Return the piece in which a batch is damaged, and the damage with its position there."""
        number = int(np.searchsorted(self.starts, damage.position, side="right")) - 1
        piece = self.pieces[number]
        position = damage.position - int(self.starts[number]) + piece.start
        return piece, replace(damage, position=position)

    def with_positions(self, columns: RecordColumns) -> RecordColumns:
        """Return the columns with the positions of their batches in the files."""
        numbers = np.searchsorted(self.starts, columns.batches.positions, side="right") - 1
        firsts = np.array([piece.start for piece in self.pieces], np.int64)
        positions = columns.batches.positions + (firsts - self.starts)[numbers]
        return replace(columns, batches=replace(columns.batches, positions=positions))
