"""chunk_of: what a proof compares of the bytes that were read: committed, not empty, not before the
offset that was asked for."""

import numpy as np

from kctl.mirror.proof.raw import Batches
from kctl.mirror.proof.stream import Chunk
from kctl.records.columnar import Keep
from kctl.records.columnar_batches import BatchColumns, BatchDamage, scan_batches


def chunk_of(
    view: memoryview, keep: Keep, offset: int, *, position: int = 0, is_complete: bool = False
) -> tuple[Chunk, int]:
    """Return the batches at `position` of a buffer, some megabytes at most, and the position after
    them.

    `keep` selects committed batches; `offset` is where the chunk begins. Unless the buffer
    `is_complete`, a batch truncated by its end is left for the next chunk. The caller sets
    `is_last`.
    """
    damages: list[BatchDamage] = []
    for step in scan_batches(view, position, is_complete=is_complete, expected_offset=offset):
        damages += step.damages
        if not len(step.batches) and step.end < len(view) and step.damages:
            continue
        return _chunk(view, step.batches, keep, offset, damages, step.end - position), step.end
    nothing = BatchColumns(*(np.zeros(0, np.int64) for _ in range(13)))
    return Chunk(Batches(view, nothing), damages, offset, size=len(view) - position), len(view)


def _chunk(
    view: memoryview,
    batches: BatchColumns,
    keep: Keep,
    offset: int,
    damages: list[BatchDamage],
    size: int,
) -> Chunk:
    last = [int(batches.last_offsets.max(initial=-1)), *(each.last_offset for each in damages)]
    wanted = keep(batches, view) & (batches.last_offsets >= offset) & (batches.record_counts != 0)
    return Chunk(
        Batches(view, batches.take(wanted)), damages, max(offset, max(last) + 1), size=size
    )
