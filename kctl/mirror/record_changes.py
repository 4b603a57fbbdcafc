"""RecordChange: what a mirror does to records that it decodes: leaves out, masks, marks. Pure.

A batch that a reader returned is decoded, and built again from the records that are left. Each kept
record stays mapped to its offset in the source; one that is left out maps like one that compaction
removed: to the next copied record.

**Provenance.** With `--ring` or `--mesh` each copied record carries the header `kctl-mirror-path`:
the ids of the clusters that it was copied from, the first one being where it was produced. A record
whose path names the target came from there, and is not sent back. So, with mirrors A to B, B to C
and C to A, or A to B and B to A, each cluster has each record once, under one topic name. Where
every cluster is mirrored directly into every other (a mesh), records that have a path are not
copied on at all.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from kctl.errors import CorruptDataError, KctlError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.raw_batches import (
    BUILT_BYTES_MAX,
    NOT_MAPPED,
    BatchCopy,
    CopiedRange,
    is_full,
)
from kctl.model import TopicPartition
from kctl.records.builder import RecordBatchBuilder
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch

PATH_HEADER = "kctl-mirror-path"
# A longer path is that of a loop which provenance did not end.
PATH_CLUSTERS_MAX = 64

# Returns the record to copy, or None to leave it out. Offsets do not count.
Change = Callable[[Record], Record | None]


class Loops(StrEnum):
    """What keeps records from going round."""

    ALLOWED = "loops"
    RING = "ring"
    MESH = "mesh"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Marks records with the cluster that they are copied from, and sends none back."""

    source_id: str
    target_id: str
    # Whether records are copied only from the cluster where they were produced.
    only_from_origin: bool = False

    def __call__(self, record: Record) -> Record | None:
        """Return the record with its path, or None if it is not to be copied."""
        path = path_of(record)
        if self.target_id in path or (path and self.only_from_origin):
            return None
        if len(path) >= PATH_CLUSTERS_MAX:
            raise CorruptDataError(f"A record was copied {len(path)} times: {','.join(path)}")
        kept = [it for it in record.headers if it[0] != PATH_HEADER]
        value = ",".join([*path, self.source_id]).encode()
        return record._replace(headers=(*kept, (PATH_HEADER, value)))


def path_of(record: Record) -> list[str]:
    """Return the ids of the clusters that a record was copied from, the first one first."""
    for name, value in record.headers:
        if name == PATH_HEADER and value:
            return bytes(value).decode("utf-8", "replace").split(",")
    return []


def in_order(changes: Sequence[Change]) -> Change:
    """Return the changes as one."""

    def change(record: Record) -> Record | None:
        current: Record | None = record
        for each in changes:
            if current is None:
                return None
            current = each(current)
        return current

    return change


def change_ranges(
    ranges: dict[TopicPartition, CopiedRange],
    change: Change,
    unjoined: Container[TopicPartition] = (),
) -> dict[TopicPartition, KctlError]:
    """Replace each range by what is left of it; remove those of which a record fails, and return
    why. Batches of `unjoined` partitions do not grow."""
    failed: dict[TopicPartition, KctlError] = {}
    for partition, each in list(ranges.items()):
        try:
            ranges[partition] = changed_range(each, change, grows=partition not in unjoined)
        except KctlError as error:
            failed[partition] = error
            del ranges[partition]
    return failed


def changed_range(found: CopiedRange, change: Change, *, grows: bool = True) -> CopiedRange:
    """Return what is left of a range; raise CorruptDataError for a damaged batch, or whatever
    `change` raises. Unless a batch `grows`, one whose records become larger is split: a batch with
    several records is not larger than it was."""
    copies = [
        built
        for copy in found.copies
        for built in _changed(copy, change, BUILT_BYTES_MAX if grows else copy.size)
    ]
    return replace(found, copies=copies)


def _changed(copy: BatchCopy, change: Change, bytes_max: int) -> Iterator[BatchCopy]:
    batch = RecordBatch(copy.data)
    codec = batch.compression_type
    builder = RecordBatchBuilder(compression_type=codec)
    pieces: list[tuple[int, int]] = []
    for offset, record in zip(_offsets(copy.pieces), batch.records(), strict=True):
        kept = change(record._replace(offset=offset))
        if kept is None:
            continue
        if is_full(builder, kept.key, kept.value, kept.headers, bytes_max):
            yield BatchCopy(builder.build(), builder.count, pieces, is_raw=False)
            builder, pieces = RecordBatchBuilder(compression_type=codec), []
        builder.append(
            timestamp=kept.timestamp, key=kept.key, value=kept.value, headers=kept.headers
        )
        if pieces and sum(pieces[-1]) == offset:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
        else:
            pieces.append((offset, 1))
    if builder.count:
        yield BatchCopy(builder.build(), builder.count, pieces, is_raw=False)


def _offsets(pieces: Sequence[tuple[int, int]]) -> Iterator[int]:
    for first, count in pieces:
        if first == NOT_MAPPED:
            raise UsageError("Records of compressed sets of Kafka 0.7 cannot be changed on the way")
        yield from range(first, first + count)
