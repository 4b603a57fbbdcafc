"""Joins neighbouring small batches of a partition: a Produce request holds one batch of each. Pure.

A source whose producers do not linger has batches of single records. Passed on one by one, each
costs the target as much as a full batch, and a mirror that is behind may catch up more slowly than
the source grows. So neighbours of one codec that have few records are decoded and built again as
one batch; all others stay as they are (decision 0175).

Invariants: the records, their order and their source offsets stay; a batch whose records cannot be
decoded stays as it is, and the target judges it.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch
"""

from collections.abc import Iterator, Sequence

from kctl.errors import CorruptDataError
from kctl.mirror.raw_batches import NOT_MAPPED, BatchCopy
from kctl.records.builder import RecordBatchBuilder
from kctl.records.record_batch import RecordBatch

# A batch that is worth decoding: above this, passing it on costs less.
SMALL_RECORDS_MAX = 8
SMALL_BYTES_MAX = 4 << 10
# Where joined batches end, before compression: a topic may have a low max.message.bytes.
JOINED_BYTES_MAX = 64 << 10


def join_small(copies: Sequence[BatchCopy]) -> list[BatchCopy]:
    """Return the batches of a partition with runs of small ones joined."""
    joined: list[BatchCopy] = []
    for run in _runs(copies):
        joined += run if len(run) == 1 else _join(run)
    return joined


def _runs(copies: Sequence[BatchCopy]) -> Iterator[list[BatchCopy]]:
    """Yield the batches in lists: of neighbours that can be one batch, or of a single one."""
    run: list[BatchCopy] = []
    size, codec = 0, -1
    for copy in copies:
        is_small = copy.count <= SMALL_RECORDS_MAX and copy.size <= SMALL_BYTES_MAX
        own_codec = RecordBatch(copy.data).compression_type if is_small else -1
        if run and (not is_small or own_codec != codec or size + copy.size > JOINED_BYTES_MAX):
            yield run
            run, size = [], 0
        if not is_small:
            yield [copy]
            continue
        run.append(copy)
        size, codec = size + copy.size, own_codec
    if run:
        yield run


def _join(run: list[BatchCopy]) -> list[BatchCopy]:
    """Return the batches of `run` as one, or unchanged if one of them cannot be decoded."""
    builder = RecordBatchBuilder(compression_type=RecordBatch(run[0].data).compression_type)
    pieces: list[tuple[int, int]] = []
    try:
        for copy in run:
            for record in RecordBatch(copy.data).records():
                builder.append(
                    timestamp=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
            for piece in copy.pieces:
                _add_piece(pieces, piece)
    except CorruptDataError:
        return run
    if builder.count != sum(copy.count for copy in run):
        return run
    return [BatchCopy(builder.build(), builder.count, pieces, is_raw=False)]


def _add_piece(pieces: list[tuple[int, int]], piece: tuple[int, int]) -> None:
    """Add source offsets, to the last ones if they continue these."""
    first, count = piece
    if pieces and NOT_MAPPED not in (first, pieces[-1][0]) and sum(pieces[-1]) == first:
        pieces[-1] = (pieces[-1][0], pieces[-1][1] + count)
    else:
        pieces.append(piece)
