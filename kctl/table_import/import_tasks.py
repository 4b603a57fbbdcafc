"""The tasks of an import into files: they distribute rows to partitions, then write the partitions.

    <staging>/rows/000007.arrow     the rows of part 7, a record batch per partition and chunk
    <staging>/rows/000007.json      each partition's batch numbers; written when the part is done
    <staging>/orders-3/*            segments, indexes and snapshots of a partition in final form
    <staging>/orders-3.json         their description; written when the partition is done

So a finished task is not repeated, and an unfinished one starts over. The functions run in any
process that sees the files: this one, a process pool, or Spark's executors.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.arrow_files.files import Files
from kctl.arrow_files.partitioning import partitions_of
from kctl.lazy_dataclass import dataclass
from kctl.records.columnar_encoder import SCHEMA, EncodedBatch, encode_batches
from kctl.repair.rebuild import Wanted, rebuild
from kctl.runtime.disk import Disk, DiskFile
from kctl.storage.layout import LOG_SUFFIX, file_name
from kctl.table_import.import_plan import LoadPlan, Target
from kctl.table_import.tables import CHUNK_BYTES, TablePart, read_rows

ROWS_DIRECTORY = "rows"
# Most rows of a sorted partition that are taken at once.
_ORDERED_ROWS = 32_768
# An offset index stores offsets relative to the segment's base offset in 32 bits.
_SEGMENT_OFFSETS_MAX = 2**31 - 1
_ORDER = "order"
_FIRST = pa.scalar(-(2**63), pa.int64())


@dataclass(frozen=True, slots=True)
class LoadTask:
    """What every task of an import needs in addition to its item."""

    disk: Disk
    plan: LoadPlan
    staging: str


@dataclass(slots=True)
class Loaded:
    """The result of importing into one partition."""

    topic: str
    partition: int
    first_offset: int
    # Exclusive.
    end_offset: int
    segments: list[str] = field(default_factory=list)
    bytes: int = 0
    max_timestamp: int = -1

    @property
    def rows(self) -> int:
        """Return the number of records."""
        return self.end_offset - self.first_offset


def stage_part(
    task: LoadTask, item: tuple[int, TablePart], progress: Callable[[int], object]
) -> None:
    """Distribute the rows of one part of the table to their partitions."""
    number, part = item
    stem = f"{task.staging}/{ROWS_DIRECTORY}/{number:06d}"
    if task.disk.exists(f"{stem}.json"):
        progress(part.size)
        return
    files, path = Files.of(f"{stem}.arrow")
    order_by = task.plan.options.order_by
    schema = SCHEMA.append(pa.field(_ORDER, pa.int64())) if order_by else SCHEMA
    index: dict[str, list[int]] = {}
    count = 0
    with files.create(path) as stream, pa.ipc.new_file(stream, schema) as writer:
        for topic, rows, numbers in _with_partitions(task.plan, number, part):
            for target, chosen in _by_partition(rows, numbers):
                columns = [chosen.column(name) for name in SCHEMA.names]
                columns += [pc.fill_null(chosen.column(order_by), _FIRST)] if order_by else []
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                index.setdefault(f"{topic}-{target}", []).append(count)
                count += 1
    task.disk.write_file(f"{stem}.json", json.dumps(index).encode())
    progress(part.size)


def _with_partitions(
    plan: LoadPlan, number: int, part: TablePart
) -> Iterator[tuple[str, pa.RecordBatch, Any]]:
    """Yield the rows of each topic with the numbers of their partitions."""
    # Rows without a key rotate through the partitions; each part starts at another partition.
    seen = number * 1_001
    for rows in read_rows(part, plan.now_ms):
        topics = [plan.options.topic]
        if plan.options.topic is None:
            topics = pc.unique(rows.column("topic")).to_pylist()
        for topic in topics:
            assert topic is not None
            chosen = rows if len(topics) == 1 else rows.filter(pc.equal(rows["topic"], topic))
            named = chosen.column("partition") if plan.options.keeps_partitions else None
            yield (
                topic,
                chosen,
                partitions_of(chosen.column("key"), named, plan.counts[topic], seen),
            )
            seen += chosen.num_rows


def _by_partition(rows: pa.RecordBatch, numbers: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
    order = np.argsort(numbers, kind="stable")
    ordered = rows.take(pa.array(order))
    found, starts = np.unique(numbers[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    for target, start, end in zip(found.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield target, ordered.slice(start, end - start)


def write_partition(task: LoadTask, target: Target, progress: Callable[[int], object]) -> Loaded:
    """Write the segments of a partition with their indexes, snapshot and leader epochs."""
    disk, directory = task.disk, f"{task.staging}/{target.name}"
    if disk.exists(f"{directory}.json"):
        facts = json.loads(disk.read_file(f"{directory}.json"))
        loaded = Loaded(**facts)
        progress(loaded.rows)
        return loaded
    disk.remove_tree(directory)
    disk.make_directory(directory)
    loaded = Loaded(target.topic, target.partition, target.base_offset, target.base_offset)
    writer = _SegmentWriter(disk, directory, task.plan.options.segment_bytes, loaded)
    options = task.plan.options
    for rows in _staged_rows(task, target):
        for batch in encode_batches(
            rows, loaded.end_offset, compression_type=options.compression_type,
            leader_epoch=target.leader_epoch,
        ):  # fmt: skip
            writer.write(batch)
        progress(rows.num_rows)
    writer.close()
    if target.is_new and not loaded.segments:
        # An empty segment makes the partition count visible in the directory.
        writer.open(0)
        writer.close()
    if loaded.segments:
        rebuild(disk, directory, Wanted(None, snapshots=target.is_new, epochs=target.is_new))
    disk.fsync_directory(directory)
    disk.write_file(f"{directory}.json", json.dumps(asdict(loaded)).encode())
    return loaded


def _staged_rows(task: LoadTask, target: Target) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition in order, in chunks."""
    staged = _staged_batches(task, target)
    if task.plan.options.order_by is not None:
        yield from _ordered(list(staged))
        return
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in staged:
        waiting.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield _as_one(waiting)
            waiting, size = [], 0
    if waiting:
        yield _as_one(waiting)


def _ordered(staged: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows sorted by the order column, nulls first; the sort is stable.

    Keys and sizes of all rows are in memory. The rows themselves are taken from their mapped
    batches, a chunk at a time: a column of all batches may be larger than an Arrow array.
    """
    if not staged:
        return
    order = np.argsort(
        np.concatenate([it.column(_ORDER).to_numpy() for it in staged]), kind="stable"
    )
    ends = np.cumsum([it.num_rows for it in staged])
    sizes = np.cumsum(np.concatenate([_row_sizes(it) for it in staged])[order])
    start = size = 0
    while start < len(order):
        stop = int(np.searchsorted(sizes, size + CHUNK_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _ORDERED_ROWS)
        yield _taken(staged, ends, order[start:stop])
        start, size = stop, int(sizes[stop - 1])


def _row_sizes(batch: pa.RecordBatch) -> Any:
    """Return the approximate bytes of each row."""
    sizes = np.full(batch.num_rows, 1 + batch.column("headers").nbytes // max(1, batch.num_rows))
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy()
    return sizes


def _taken(staged: list[pa.RecordBatch], ends: Any, rows: Any) -> pa.RecordBatch:
    """Return the rows with these numbers, which count through all batches up to their `ends`."""
    numbers = np.searchsorted(ends, rows, side="right")
    by_batch = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[by_batch], return_index=True)
    pieces = []
    for number, chosen in zip(found.tolist(), np.split(by_batch, starts[1:]), strict=True):
        batch = staged[number]
        pieces.append(batch.take(pa.array(rows[chosen] - (ends[number] - batch.num_rows))))
    # The inverse of `by_batch` puts the rows back into order.
    return _as_one(pieces).take(pa.array(np.argsort(by_batch)))


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).select(SCHEMA.names).combine_chunks()
    whole = [column.chunk(0) for column in table.columns]
    return pa.RecordBatch.from_arrays(whole, schema=SCHEMA)


def _staged_batches(task: LoadTask, target: Target) -> Iterator[pa.RecordBatch]:
    """Yield the staged batches of a partition, mapped, in the order of the table."""
    for number in range(len(task.plan.parts)):
        stem = f"{task.staging}/{ROWS_DIRECTORY}/{number:06d}"
        numbers = json.loads(task.disk.read_file(f"{stem}.json")).get(target.name)
        if not numbers:
            continue
        files, path = Files.of(f"{stem}.arrow")
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(files.map(path))))
        for each in numbers:
            yield reader.get_batch(each)


class _SegmentWriter:
    """Writes batches to segments, rolls when one is full, and records them in `loaded`."""

    def __init__(self, disk: Disk, directory: str, segment_bytes: int, loaded: Loaded) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._loaded = loaded
        self._file: DiskFile | None = None
        self._base_offset = 0

    def open(self, base_offset: int) -> DiskFile:
        """Start a segment."""
        self.close()
        name = file_name(base_offset, LOG_SUFFIX)
        self._file = self._disk.open(f"{self._directory}/{name}", create=True)
        self._base_offset = base_offset
        self._loaded.segments.append(name)
        return self._file

    def write(self, batch: EncodedBatch) -> None:
        """Append a batch."""
        file = self._file
        end_offset = batch.base_offset + batch.record_count
        is_full = file is None or (
            file.size() + len(batch.data) > self._segment_bytes
            or end_offset - self._base_offset > _SEGMENT_OFFSETS_MAX
        )
        if file is None or is_full:
            file = self.open(batch.base_offset)
        file.append([batch.data])
        loaded = self._loaded
        loaded.end_offset = end_offset
        loaded.bytes += len(batch.data)
        loaded.max_timestamp = max(loaded.max_timestamp, batch.max_timestamp)

    def close(self) -> None:
        """Make the segment durable and close it."""
        if self._file is not None:
            self._file.fsync()
            self._file.close()
            self._file = None
