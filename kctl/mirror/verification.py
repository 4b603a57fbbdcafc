"""Verifies a mirror: plans a task per partition, and compares one partition of source and target.

A task is a plain value, so tasks run in this process, in others, or on Spark's executors. A partition
is compared up to the offsets that the plan found, so records that arrive later are no difference.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kctl.errors import KctlError, NotFoundError, UsageError
from kctl.mirror.places import Loop, OpenPlace, Place
from kctl.mirror.proof.differences import Difference, DifferenceKind, Differences
from kctl.mirror.proof.proof import OffsetMapping, PartitionProof, ProofResult
from kctl.model import Position, PositionKind, TopicPartition

# What stands for the topic's name in a template of target names.
TOPIC_FIELD = "{topic}"
_EARLIEST = Position(PositionKind.EARLIEST)
_LATEST = Position(PositionKind.LATEST)


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What to compare."""

    source: Place
    target: Place
    # Names or shell patterns of source topics; none: all topics but internal ones.
    topics: tuple[str, ...] = ()
    # The target's name of a topic, in which `{topic}` is the source's.
    rename: str = TOPIC_FIELD
    since: Position = _EARLIEST
    until: Position = _LATEST
    ignores_timestamps: bool = False

    def target_name(self, topic: str) -> str:
        """Return the name of a source topic at the target."""
        return self.rename.replace(TOPIC_FIELD, topic)


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


def plan_verification(request: VerifyRequest, loop: Loop) -> list[VerifyTask]:
    """Return a task per partition of the source's topics, with the offsets to compare now.

    A partition that the target does not have has an obstacle. NotFoundError if a topic does not
    exist at the source; UnreachableError.
    """
    if TOPIC_FIELD not in request.rename:
        raise UsageError(
            f"--rename {request.rename} has no {TOPIC_FIELD}",
            hint="for example --rename 'west.{topic}'",
        )
    source, target = request.source.open(loop), request.target.open(loop)
    partitions = source.partitions(request.topics)
    names = sorted({request.target_name(each.topic) for each in partitions})
    held = set(_held(target, names))
    return [_task(request, source, target, each, held) for each in partitions]


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
) -> VerifyTask:
    there = TopicPartition(request.target_name(partition.topic), partition.partition)
    task = VerifyTask(
        request.source, request.target, partition, there,
        ignores_timestamps=request.ignores_timestamps,
    )  # fmt: skip
    if there not in held:
        return replace(task, obstacle=f"the target has no partition {there}")
    first, end, start = source.span(partition, request.since, request.until)
    other_first, other_end, other_start = target.span(there, request.since, request.until)
    return replace(
        task, source_range=(first, max(first, end)),
        target_range=(other_first, max(other_first, other_end)),
        is_source_cut=first == start > 0, is_target_cut=other_first == other_start > 0,
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
