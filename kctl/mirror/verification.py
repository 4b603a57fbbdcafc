"""Verifies a mirror: plans a task per partition, and compares one partition of source and target.

A task is a plain value, so tasks run in this process, in others, or on Spark's executors. A
partition is compared up to the offsets that the plan found, so records that arrive later are no
difference.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from kctl.errors import KctlError, NotFoundError, UsageError
from kctl.mirror.formats import PREFIX, MirrorPosition
from kctl.mirror.map_topic import read_map, read_positions
from kctl.mirror.mapped_range import RunMapping, map_gap, mapped_ranges
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.places import Loop, OpenCluster, OpenPlace, Place
from kctl.mirror.proof.differences import Difference, DifferenceKind, Differences
from kctl.mirror.proof.proof import OffsetMapping, PartitionProof, ProofResult
from kctl.mirror.renames import Rename
from kctl.model import Position, PositionKind, TopicPartition

_IDENTITY = Rename("{topic}")
_EARLIEST = Position(PositionKind.EARLIEST)
_LATEST = Position(PositionKind.LATEST)


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to compare."""

    source: Place
    target: Place
    # Names or shell patterns of source topics; none: all topics but internal ones.
    topics: tuple[str, ...] = ()
    rename: Rename = _IDENTITY
    # Topics to leave out.
    exclude: tuple[str, ...] = ()
    # The mirror whose map says where each record must be; without it, records pair up in order.
    name: str | None = None
    since: Position = _EARLIEST
    until: Position = _LATEST
    ignores_timestamps: bool = False


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """A partition to compare, and the offsets (end exclusive) that are compared."""

    source: Place
    target: Place
    source_partition: TopicPartition
    target_partition: TopicPartition
    source_range: tuple[int, int] = (0, 0)
    target_range: tuple[int, int] = (0, 0)
    # Whether the log begins after offset 0: older records were deleted.
    is_source_cut: bool = False
    is_target_cut: bool = False
    mapping: OffsetMapping | None = None
    # Why the offsets of the map are not all that the mirror has copied; empty if they are.
    gap: str = ""
    ignores_timestamps: bool = False
    # Why the partition cannot be compared; empty if it can.
    obstacle: str = ""

    @property
    def offsets(self) -> int:
        """Return the amount of work, in offsets of both sides."""
        ranges = (self.source_range, self.target_range)
        return sum(max(0, end - first) for first, end in ranges)


@dataclass(slots=True)
class VerifiedPartition:
    """The result of one partition."""

    task: VerifyTask
    result: ProofResult = field(default_factory=ProofResult)
    # Records at the beginning that only one side still has, as the other has deleted them.
    deleted_at_source: int = 0
    deleted_at_target: int = 0
    obstacle: str = ""

    @property
    def is_equal(self) -> bool:
        """Return whether everything was compared and is equal."""
        return not self.obstacle and not len(self.result.differences)


@dataclass(frozen=True, slots=True)
class _Mirror:
    """What a mirror keeps in the target."""

    positions: Mapping[TopicPartition, MirrorPosition]
    maps: Mapping[TopicPartition, OffsetMap]


def plan_verification(request: VerifyRequest, loop: Loop) -> list[VerifyTask]:
    """Return a task per partition of the source's topics, with the offsets to compare now.

    A partition that the target does not have has an obstacle. NotFoundError if a topic does not
    exist at the source or the target has no such mirror; UnreachableError.
    """
    source, target = request.source.open(loop), request.target.open(loop)
    partitions = [
        each
        for each in source.partitions(request.topics)
        if not any(fnmatchcase(each.topic, pattern) for pattern in request.exclude)
        and not each.topic.startswith(PREFIX)
    ]
    names = sorted({request.rename(each.topic) for each in partitions})
    held = set(_held(target, names))
    mirror = None if request.name is None else _mirror(request.name, target, loop, partitions)
    return [_task(request, source, target, each, held, mirror) for each in partitions]


def _mirror(
    name: str, target: OpenPlace, loop: Loop, partitions: Sequence[TopicPartition]
) -> _Mirror:
    if not isinstance(target, OpenCluster):
        raise UsageError("--name needs a cluster as --target: it holds the mirror's map")
    router = target.admin.router
    # The positions first: a map that is read after them covers them.
    positions = loop.run(read_positions(router, name))
    return _Mirror(positions, loop.run(read_map(router, name, set(partitions))))


def _held(place: OpenPlace, names: Sequence[str]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for name in names:
        # A topic that the target does not have is reported with each of its partitions.
        with suppress(NotFoundError):
            found += place.partitions([name])
    return found


def _task(
    request: VerifyRequest,
    source: OpenPlace,
    target: OpenPlace,
    partition: TopicPartition,
    held: set[TopicPartition],
    mirror: _Mirror | None,
) -> VerifyTask:
    there = TopicPartition(request.rename(partition.topic), partition.partition)
    task = VerifyTask(
        request.source, request.target, partition, there,
        ignores_timestamps=request.ignores_timestamps,
    )  # fmt: skip
    if there not in held:
        return replace(task, obstacle=f"the target has no partition {there}")
    first, end, start = source.span(partition, request.since, request.until)
    other_first, other_end, other_start = target.span(there, request.since, request.until)
    ranges = (first, max(first, end)), (other_first, max(other_first, other_end))
    if mirror is None:
        return replace(
            task, source_range=ranges[0], target_range=ranges[1],
            is_source_cut=first == start > 0, is_target_cut=other_first == other_start > 0,
        )  # fmt: skip
    position = mirror.positions.get(there)
    if position is not None and position.changes:
        what = f"the mirror changes records ({position.changes}), which cannot be compared"
        return replace(task, obstacle=what)
    offsets = mirror.maps.get(partition, OffsetMap())
    mine, theirs = mapped_ranges(offsets, position, *ranges)
    return replace(
        task, source_range=mine, target_range=theirs, mapping=RunMapping(offsets),
        gap=map_gap(offsets, *ranges),
    )  # fmt: skip


def verify_partition(
    task: VerifyTask, progress: Callable[[int], object] = lambda _offsets: None
) -> VerifiedPartition:
    """Compare one partition; `progress` receives the offsets read since its last call.

    An error of a broker or file ends in the result's obstacle, so the other partitions go on.
    """
    from kctl.runtime.real import make_runtime
    from kctl.runtime.trace import NullTrace

    if task.obstacle:
        return VerifiedPartition(task, obstacle=task.obstacle)
    with Loop(lambda: make_runtime(NullTrace())) as loop:
        try:
            found = VerifiedPartition(task, _proved(task, loop, progress))
        except KctlError as error:
            return VerifiedPartition(task, obstacle=str(error))
    found.obstacle = task.gap
    return _without_deleted(found)


def _proved(task: VerifyTask, loop: Loop, progress: Callable[[int], object]) -> ProofResult:
    source, target = task.source.open(loop), task.target.open(loop)
    readers = {
        True: source.reader(task.source_partition, task.source_range[1]),
        False: target.reader(task.target_partition, task.target_range[1]),
    }
    done = {True: task.source_range[0], False: task.target_range[0]}
    proof = PartitionProof(
        task.source_range, task.target_range, task.mapping,
        ignores_timestamps=task.ignores_timestamps,
    )  # fmt: skip
    try:
        while (read := proof.next_read()) is not None:
            chunk = readers[read.is_source].read(read.offset)
            more = chunk.next_offset - done[read.is_source]
            if more > 0:
                progress(more)
                done[read.is_source] = chunk.next_offset
            proof.add(read, chunk)
    finally:
        for reader in readers.values():
            reader.close()
    return proof.result


def _without_deleted(found: VerifiedPartition) -> VerifiedPartition:
    """Take the records that one side deleted first from the differences.

    Such a log no longer begins at 0, and everything that the other side has before is the first
    difference.
    """
    task, differences = found.task, found.result.differences
    first = differences.listed[0] if differences.listed else None
    if first is None:
        return found
    at_start = (first.source_offset, first.target_offset)
    is_first = at_start == (_first_of(found, task.source_range), task.target_range[0])
    if first.kind is DifferenceKind.EXTRA and task.is_source_cut and is_first:
        found.deleted_at_source = first.count
    elif first.kind is DifferenceKind.MISSING and task.is_target_cut and is_first:
        found.deleted_at_target = first.count
    else:
        return found
    _remove_first(differences, first)
    return found


def _first_of(found: VerifiedPartition, limits: tuple[int, int]) -> int:
    listed = found.result.differences.listed[0].source_offset
    # A log may begin before its first record: at a marker, or where records were compacted.
    return listed if listed <= limits[0] or found.result.equal == 0 else limits[0]


def _remove_first(differences: Differences, first: Difference) -> None:
    del differences.listed[0]
    differences.counts[first.kind] -= first.count
    if not differences.counts[first.kind]:
        del differences.counts[first.kind]
