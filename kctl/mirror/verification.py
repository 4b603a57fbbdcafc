"""Verifies a mirror: plans a task per partition, and compares one partition of source and target.

A task is a plain value, so tasks run in this process, in others, or on Spark's executors. A
partition is compared up to the offsets that the plan found, so records that arrive later are no
difference.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

from kctl.errors import KctlError, NotFoundError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.comparison import Comparison
from kctl.mirror.formats import PREFIX, MirrorPosition
from kctl.mirror.kept_choice import decode_choice
from kctl.mirror.map_topic import read_kept, read_map
from kctl.mirror.mapped_range import RunMapping, map_gap, mapped_ranges
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.places import Loop, OpenCluster, OpenPlace, Place
from kctl.mirror.proof.differences import (
    Difference,
    DifferenceKind,
    Differences,
    unreadable_batches,
)
from kctl.mirror.proof.last_values import LastValues
from kctl.mirror.proof.origins import CopiedBetween
from kctl.mirror.proof.proof import OffsetMapping, PartitionProof, ProofPlace, ProofResult
from kctl.mirror.proof.records import decode
from kctl.mirror.record_changes import Loops
from kctl.mirror.renames import Rename
from kctl.mirror.spill import DiskSpill
from kctl.mirror.topics import TopicChoice
from kctl.model import Position, PositionKind, TopicPartition

if TYPE_CHECKING:
    from kctl.client.router import Router

_IDENTITY = Rename("{topic}")
_EARLIEST = Position(PositionKind.EARLIEST)
_LATEST = Position(PositionKind.LATEST)


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to compare."""

    source: Place
    target: Place
    # Names or shell patterns of source topics; none: those of the mirror `name`, or all topics but
    # internal ones.
    topics: tuple[str, ...] = ()
    # Identity with a `name`: as the mirror names them.
    rename: Rename = _IDENTITY
    # Topics to leave out.
    exclude: tuple[str, ...] = ()
    # The mirror whose map says where each record must be; without it, records pair up in order.
    name: str | None = None
    since: Position = _EARLIEST
    until: Position = _LATEST
    ignores_timestamps: bool = False
    comparison: Comparison = Comparison.AUTO
    # The option of the mirror, where there is no `name` that says it.
    loops: Loops = Loops.ALLOWED


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
    compares_last_values: bool = False
    # Which records of a ring or mesh the mirror copies; None: all.
    copied: CopiedBetween | None = None

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
    # Keys that were written after the compared offsets, and records without a key, where last
    # values are compared: neither is judged.
    pending_keys: int = 0
    keyless: int = 0

    @property
    def is_equal(self) -> bool:
        """Return whether everything was compared and is equal."""
        return not self.obstacle and not len(self.result.differences)


@dataclass(frozen=True, slots=True)
class _Mirror:
    """What a mirror keeps in the target."""

    name: str
    router: "Router"
    positions: Mapping[TopicPartition, MirrorPosition]
    # Which topics it selects; None if it does not keep that.
    choice: TopicChoice | None
    # By partition of the source, once they are read.
    maps: Mapping[TopicPartition, OffsetMap] = field(default_factory=dict)

    def selects(self) -> Callable[[str], bool]:
        """Return which topics it copies; all if it does not keep that."""
        choice, begun = self.choice, {it.source.topic for it in self.positions.values()}
        if choice is None:
            return begun.__contains__ if begun else lambda _: True
        return lambda topic: topic in begun or choice.selects(topic)

    def names(self) -> Callable[[str], str]:
        """Return what topics of the source are called in the target."""
        rename = _IDENTITY if self.choice is None else self.choice.rename
        begun = {it.source.topic: there.topic for there, it in self.positions.items()}
        return lambda topic: begun.get(topic) or rename(topic)


def plan_verification(request: VerifyRequest, loop: Loop) -> list[VerifyTask]:
    """Return a task per partition of the source's topics, with the offsets to compare now.

    A partition that the target does not have has an obstacle. NotFoundError if a topic does not
    exist at the source or the target has no such mirror; UnreachableError.
    """
    source, target = request.source.open(loop), request.target.open(loop)
    mirror = None if request.name is None else _mirror(request.name, target, loop)
    selects: Callable[[str], bool] = lambda _: True  # noqa: E731
    rename: Callable[[str], str] = request.rename
    if mirror is not None and not request.topics:
        selects = mirror.selects()
    if mirror is not None and request.rename.template == _IDENTITY.template:
        rename = mirror.names()
    partitions = [
        each
        for each in source.partitions(request.topics)
        if not any(fnmatchcase(each.topic, pattern) for pattern in request.exclude)
        and not each.topic.startswith(PREFIX)
        and selects(each.topic)
    ]
    names = sorted({rename(each.topic) for each in partitions})
    held = set(_held(target, names))
    if mirror is not None:
        maps = loop.run(read_map(mirror.router, mirror.name, set(partitions)))
        mirror = replace(mirror, maps=maps)
    topics = sorted({each.topic for each in partitions})
    by_last_value: set[str] = set()
    if request.comparison is Comparison.LAST_VALUES:
        by_last_value = set(topics)
    elif request.comparison is Comparison.AUTO:
        compacted = target.compacted(names)
        by_last_value = source.compacted(topics) | {
            topic for topic in topics if rename(topic) in compacted
        }
    planner = _Planner(request, rename, source, target, held, mirror, by_last_value)
    return [planner.task(each) for each in partitions]


def _mirror(name: str, target: OpenPlace, loop: Loop) -> _Mirror:
    if not isinstance(target, OpenCluster):
        raise UsageError("--name needs a cluster as --target: it holds the mirror's map")
    # The positions first: a map that is read after them covers them.
    router = target.admin.router
    positions, kept = loop.run(read_kept(router, name))
    return _Mirror(name, router, positions, None if kept is None else decode_choice(kept))


def _held(place: OpenPlace, names: Sequence[str]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for name in names:
        # A topic that the target does not have is reported with each of its partitions.
        with suppress(NotFoundError):
            found += place.partitions([name])
    return found


@dataclass(frozen=True, slots=True)
class _Planner:
    """Plans the tasks of a request."""

    request: VerifyRequest
    # What topics are called in the target.
    rename: Callable[[str], str]
    source: OpenPlace
    target: OpenPlace
    # The target's partitions.
    held: set[TopicPartition]
    mirror: _Mirror | None
    # Topics of the source that are compared by the last value of each key.
    by_last_value: set[str]

    def task(self, partition: TopicPartition) -> VerifyTask:
        """Return the task of a partition of the source."""
        request = self.request
        there = TopicPartition(self.rename(partition.topic), partition.partition)
        task = VerifyTask(
            request.source, request.target, partition, there,
            ignores_timestamps=request.ignores_timestamps,
            compares_last_values=partition.topic in self.by_last_value,
        )  # fmt: skip
        if there not in self.held:
            return replace(task, obstacle=f"the target has no partition {there}")
        first, end, start = self.source.span(partition, request.since, request.until)
        other_first, other_end, other_start = self.target.span(there, request.since, request.until)
        ranges = (first, max(first, end)), (other_first, max(other_first, other_end))
        if self.mirror is None:
            task = replace(
                task, source_range=ranges[0], target_range=ranges[1],
                is_source_cut=first == start > 0, is_target_cut=other_first == other_start > 0,
            )  # fmt: skip
            return self._without_loops(task, request.loops)
        return self._mapped(task, self.mirror, *ranges)

    def _mapped(
        self, task: VerifyTask, mirror: _Mirror, source: tuple[int, int], target: tuple[int, int]
    ) -> VerifyTask:
        position = mirror.positions.get(task.target_partition)
        changes = "" if position is None else position.changes
        loops = next((it for it in Loops if f"--{it}" == changes), Loops.ALLOWED)
        if changes and loops is Loops.ALLOWED:
            what = f"the mirror changes records ({changes}), which cannot be compared"
            return replace(task, obstacle=what)
        offsets = mirror.maps.get(task.source_partition, OffsetMap())
        gap = map_gap(offsets, position, source, target)
        if gap and not offsets.runs:
            return replace(task, obstacle=gap)
        mine, theirs = mapped_ranges(offsets, position, source, target)
        task = replace(
            task, source_range=mine, target_range=theirs, mapping=RunMapping(offsets), gap=gap
        )
        return self._without_loops(task, loops)

    def _without_loops(self, task: VerifyTask, loops: Loops) -> VerifyTask:
        """Restrict a task to the records that a mirror of a ring or mesh copies."""
        if loops is Loops.ALLOWED:
            return task
        if task.compares_last_values:
            # Each cluster has the records of others at another place in the order.
            what = f"a compacted topic in a {loops} has its own last values on each side"
            return replace(task, obstacle=what)
        source_id, target_id = self.source.cluster_id(), self.target.cluster_id()
        if source_id is None or target_id is None:
            raise UsageError(f"A {loops} is compared between clusters with ids (Kafka 0.10.1)")
        copied = CopiedBetween(source_id, target_id, only_from_origin=loops is Loops.MESH)
        return replace(task, copied=copied)


class Places(Protocol):
    """Keeps how far a partition is compared."""

    @property
    def begin(self) -> ProofPlace | None:
        """Return where to go on; None for the beginning."""
        ...

    @property
    def bytes_between(self) -> int:
        """Return how many stored bytes are compared between two places."""
        ...

    def keep(self, place: ProofPlace) -> None:
        """Keep a place."""
        ...


def verify_partition(
    task: VerifyTask,
    progress: Callable[[int], object] = lambda _offsets: None,
    places: Places | None = None,
) -> VerifiedPartition:
    """Compare one partition; `progress` receives the offsets read since its last call, `places`
    where the comparison could go on.

    An error of a broker or file ends in the result's obstacle, so the other partitions go on.
    """
    from kctl.runtime.real import make_runtime
    from kctl.runtime.trace import NullTrace

    if task.obstacle:
        return VerifiedPartition(task, obstacle=task.obstacle)
    with Loop(lambda: make_runtime(NullTrace())) as loop:
        try:
            if task.compares_last_values:
                return _compared_last_values(task, loop, progress)
            found = VerifiedPartition(task, _proved(task, loop, progress, places))
        except KctlError as error:
            return VerifiedPartition(task, obstacle=str(error))
    found.obstacle = task.gap
    return _without_deleted(found)


def _proved(
    task: VerifyTask, loop: Loop, progress: Callable[[int], object], places: Places | None
) -> ProofResult:
    source, target = task.source.open(loop), task.target.open(loop)
    readers = {
        True: source.reader(task.source_partition, task.source_range[1]),
        False: target.reader(task.target_partition, task.target_range[1]),
    }
    done = {True: task.source_range[0], False: task.target_range[0]}
    proof = PartitionProof(
        task.source_range, task.target_range, task.mapping,
        ignores_timestamps=task.ignores_timestamps,
        views=None if task.copied is None else (task.copied.at_source, task.copied.at_target),
    )  # fmt: skip
    if task.copied is not None:
        # Where a filtered side goes on is not known exactly.
        places = None
    begin = None if places is None else places.begin
    if begin is not None:
        proof.go_on(begin)
    size = 0
    try:
        while (read := proof.next_read()) is not None:
            if places is not None and size >= places.bytes_between:
                place = proof.place()
                if place is not None:
                    places.keep(place)
                    size = 0
            chunk = readers[read.is_source].read(read.offset)
            more = chunk.next_offset - done[read.is_source]
            if more > 0:
                progress(more)
                done[read.is_source] = chunk.next_offset
            proof.add(read, chunk)
            size += chunk.size
    finally:
        for reader in readers.values():
            reader.close()
    return proof.result


def _compared_last_values(
    task: VerifyTask, loop: Loop, progress: Callable[[int], object]
) -> VerifiedPartition:
    from kctl.runtime.real.temporary import temporary_directory

    found = VerifiedPartition(task, obstacle=task.gap)
    with temporary_directory("kctl-verify-") as directory:
        spill = DiskSpill(loop.runtime.disk, directory)
        last = LastValues(task.source_range[1], task.target_range[1], spill)
        damages: list[Difference] = []
        for is_source in (True, False):
            size, damaged = _read_side(task, loop, last, progress, is_source=is_source)
            damages += damaged
            if is_source:
                found.result.source_bytes = size
            else:
                found.result.target_bytes = size
        result = last.result()
    found.result.equal, found.result.differences = result.equal, result.differences
    found.result.differences.extend(damages)
    found.pending_keys, found.keyless = result.pending, result.keyless
    return found


def _read_side(
    task: VerifyTask,
    loop: Loop,
    last: LastValues,
    progress: Callable[[int], object],
    *,
    is_source: bool,
) -> tuple[int, list[Difference]]:
    """Add the records of a side, and those that were written since; return the bytes that were
    read, and what cannot be read."""
    where = task.source if is_source else task.target
    place = where.open(loop)
    partition = task.source_partition if is_source else task.target_partition
    first, end = task.source_range if is_source else task.target_range
    size, damages = 0, Differences()
    for is_beyond in (False, True):
        begin, stop = first, end
        if is_beyond:
            # What is beyond the range may have replaced records of it while they were read, so its
            # end is looked up after that.
            place = where.open(loop)
            begin, stop = end, place.span(partition, _EARLIEST, _LATEST)[1]
        offset, is_last = begin, begin >= stop
        reader = place.reader(partition, stop)
        try:
            while not is_last and offset < stop:
                chunk = reader.read(offset)
                records, unreadable = decode(
                    chunk.batches, begin, stop, ignores_timestamps=task.ignores_timestamps
                )
                last.add(records, is_source=is_source)
                damages.extend(
                    unreadable_batches([*chunk.damages, *unreadable], is_source=is_source)
                )
                progress(0 if is_beyond else max(0, min(chunk.next_offset, stop) - offset))
                size += chunk.size
                offset, is_last = chunk.next_offset, chunk.is_last
        finally:
            reader.close()
    return size, damages.listed


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
