"""DirectorySource: a mirror's source that is a log directory: a backup, or the disk of a broker.

Segments are walked from the position on, a few megabytes of whole batches at a time. A directory
may change while it is read, as that of a running broker does: once all of it is copied, and where
it cannot be read on, it is listed again, and its beginning and end are compared with the position
as those of a cluster are.

Records are missing where a segment begins after the offset at which the one before it ends. Only
compaction leaves such a gap too: it is no loss in a log that the cleaner has a checkpoint for, or
that has gaps inside its segments.

The log of a running broker may end in records that its other replicas do not have, and which it
drops if another replica becomes the leader. So such a log is read up to the high watermark that the
broker wrote last. The one of a broker that does not run is read to its end: its last checkpoint is
older than the records that it acknowledged last.

Invariants: positions only rise; what precedes a damaged batch is returned before the damage is
reported; nothing at or after the first open transaction is returned.

Kafka 2.7: kafka.log.Log, kafka.log.LogSegment
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from kctl.arrow_files.files import Files
from kctl.arrow_files.log_discovery import find_logs, stored_offsets
from kctl.arrow_files.partition_log import PartitionLog, Segment
from kctl.client.consumer import AbortedFilter
from kctl.client.offsets import CommittedOffset, ListedOffset
from kctl.counts import counted
from kctl.errors import CorruptDataError, KctlError, NotFoundError, StorageError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.directory_groups import StoredGroups, read_stored_groups
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.groups import FoundGroups, SelectsGroup
from kctl.mirror.loss import Loss, LossKind, SourceFacts, judge
from kctl.mirror.mirror_plan import TopicFacts
from kctl.mirror.raw_batches import CopiedRange, copy_batches
from kctl.mirror.sources import ReadBatches
from kctl.mirror.topics import chosen
from kctl.model import TopicPartition
from kctl.protocol.constants import GROUP_METADATA_TOPIC
from kctl.records.memory_records import batches, locate, locations
from kctl.records.record_batch import RecordBatch
from kctl.records.transactions import AbortedRange
from kctl.runtime.future import sleep
from kctl.storage.checkpoint import decode_offsets
from kctl.storage.layout import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    META_PROPERTIES,
)
from kctl.storage.meta_properties import read_any_meta_properties

if TYPE_CHECKING:
    from kctl.records.record import Record
    from kctl.runtime.runtime import Runtime

PARTITION_BYTES_MAX = 2 << 20
POLL_BYTES_MAX = 8 << 20
_IDLE_MS = 500


@dataclass(frozen=True, slots=True)
class _Aborted:
    aborted_transactions: list[AbortedRange]


@dataclass(slots=True)
class _Log:
    """A partition as it was listed last."""

    log: PartitionLog
    aborted: list[AbortedRange]
    # Exclusive: the log's end, the high watermark, or the first open transaction.
    end: int
    is_compacted: bool

    @property
    def start(self) -> int:
        return self.log.start_offset


@dataclass(slots=True)
class _Partition:
    """A partition that is read."""

    position: MirrorPosition
    log: _Log
    skips: AbortedFilter
    # The segment and the place in it where the next batches are; None: not looked up yet.
    at: tuple[int, int] | None = None
    view: tuple[str, memoryview] | None = None
    error: KctlError | Loss | None = None
    # The offset at which reading failed, for which the directory was listed again.
    listed_at: int = -1


@dataclass(slots=True)
class DirectorySource:
    """Log directories, partition directories or segment files. See MirrorSource."""

    directories: Sequence[str]
    runtime: "Runtime"
    admin: None = None
    numbering: None = None
    logs: dict[TopicPartition, _Log] = field(default_factory=dict)
    # What was read of each partition of __consumer_offsets, and of which offsets.
    _groups: dict[TopicPartition, tuple[tuple[int, int], StoredGroups]] = field(
        default_factory=dict
    )

    async def describe(self, selects: Callable[[str], bool]) -> tuple[str | None, list[TopicFacts]]:
        """List the directories; raise UsageError if one is none, StorageError."""
        self.list()
        partitions: dict[str, int] = {}
        for topic, number in self.logs:
            partitions[topic] = max(partitions.get(topic, 0), number + 1)
        facts = [TopicFacts(name, count, is_part=True) for name, count in partitions.items()]
        return self._cluster_id(), chosen(facts, selects)

    def list(self) -> None:
        """Read which segments there are, and where logs begin and end."""
        found = find_logs(self.directories, ["*"])
        marks = self._high_watermarks(found)
        self.logs = {it.topic_partition: _listed(it, marks) for it in found}

    def _high_watermarks(
        self, logs: Iterable[PartitionLog]
    ) -> dict[str, Mapping[TopicPartition, int]]:
        """Return the checkpoints of the log directories that another process writes to, by path."""
        found: dict[str, Mapping[TopicPartition, int]] = {}
        disk = self.runtime.disk
        for path in sorted({_parent(log) for log in logs}):
            name = f"{path}/{HIGH_WATERMARK_CHECKPOINT}"
            if "://" not in path and disk.exists(name) and disk.writers([path]):
                data = disk.read_file(name)
                found[path] = decode_offsets(data, name) if data else {}
        return found

    def reader(self) -> "DirectoryReader":
        """Return a reader of the segments."""
        return DirectoryReader(self)

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the directories have the partition."""
        return partition in self.logs

    async def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Return where the logs begin."""
        return {it: self._offset(it, lambda log: log.start) for it in partitions}

    async def ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Return where the logs end."""
        return {it: self._offset(it, lambda log: log.end) for it in partitions}

    async def records_at(
        self, offsets: Mapping[TopicPartition, int]
    ) -> "dict[TopicPartition, Record]":
        """Read the records; what cannot be read is left out."""
        found: dict[TopicPartition, Record] = {}
        for partition, offset in offsets.items():
            record = _record_at(self.logs[partition].log, offset)
            if record is not None:
                found[partition] = record
        return found

    async def next_offset(
        self,
        partition: TopicPartition,  # noqa: ARG002 - as in the Protocol
        mapped_end: int,
    ) -> int:
        """Return the map's end: offsets count records."""
        return mapped_end

    async def groups(self, selects: SelectsGroup, names: Container[str]) -> FoundGroups:
        """Read the __consumer_offsets of the directories."""
        logs = [log for it, log in self.logs.items() if it.topic == GROUP_METADATA_TOPIC]
        if not logs:
            what = f"no partition of {GROUP_METADATA_TOPIC} is in {', '.join(self.directories)}"
            return FoundGroups(errors=[NotFoundError(what)])
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        errors: list[KctlError] = []
        for log in logs:
            try:
                stored = self._stored_groups(log)
            except KctlError as error:
                errors.append(error)
                continue
            for group, offsets in stored.of_consumers().items():
                chosen_offsets = {p: it for p, it in offsets.items() if p.topic in names}
                if chosen_offsets and selects(group):
                    found[group] = chosen_offsets
        return FoundGroups(dict(sorted(found.items())), errors)

    def _stored_groups(self, log: _Log) -> StoredGroups:
        partition, span = log.log.topic_partition, (log.start, log.end)
        known = self._groups.get(partition)
        if known is None or known[0] != span:
            known = self._groups[partition] = span, read_stored_groups(log.log, log.end)
        return known[1]

    def _offset(self, partition: TopicPartition, of: Callable[[_Log], int]) -> ListedOffset:
        log = self.logs.get(partition)
        if log is None:
            return ListedOffset(-1, error=NotFoundError(f"{partition} is not in the directory"))
        return ListedOffset(of(log))

    def _cluster_id(self) -> str | None:
        """Return the id in the meta.properties of the directories, if they name one cluster."""
        ids = set()
        for directory in {_parent(it.log) for it in self.logs.values()}:
            files = next(it.log.files for it in self.logs.values() if _parent(it.log) == directory)
            path = f"{directory}/{META_PROPERTIES}"
            if files.find(path) is None:
                return None
            ids.add(read_any_meta_properties(files.read(path), path).cluster_id)
        return ids.pop() if len(ids) == 1 else None


class DirectoryReader:
    """Reads the partitions of a directory, each in turn. See BatchReader."""

    def __init__(self, source: DirectorySource) -> None:
        self._source = source
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._unjoined: Container[TopicPartition] = ()
        self._is_assigned = False

    def assign(
        self,
        positions: Mapping[TopicPartition, MirrorPosition],
        topic_ids: Mapping[str, str],  # noqa: ARG002 - as in the Protocol
        unjoined: Container[TopicPartition] = (),
    ) -> None:
        """Read these partitions from now on, and no others. Batches of the `unjoined` ones are not
        joined when they are built again."""
        self._unjoined = unjoined
        self._partitions = {it: _begun(at, self._source.logs[it]) for it, at in positions.items()}
        self._is_assigned = True

    @property
    def positions(self) -> dict[TopicPartition, MirrorPosition]:
        """Return the position after what has been returned, of each partition."""
        return {it: state.position for it, state in self._partitions.items()}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the logs as they were listed last."""
        return {it: state.log.end for it, state in self._partitions.items()}

    def stop(self, partitions: Iterable[TopicPartition], error: KctlError | Loss) -> None:
        """Read no more of these partitions."""
        for partition in partitions:
            self._partitions[partition].error = error

    def close(self) -> None:
        """Release the files."""
        for state in self._partitions.values():
            state.view = None

    async def poll(self) -> ReadBatches:
        """Return the next batches; at the end, list the directory again after a pause."""
        found = ReadBatches()
        if self._is_assigned:
            self._is_assigned = False
            self._examine(found)
        size = 0
        for partition in list(self._partitions):
            state = self._partitions.pop(partition)
            # Each is the first in turn.
            self._partitions[partition] = state
            if state.error is not None or state.position.offset >= state.log.end:
                continue
            size += self._read(partition, state, found)
            if size >= POLL_BYTES_MAX:
                break
        if not size and not found.stopped:
            await sleep(self._source.runtime.scheduler, _IDLE_MS)
            self._list_again(found)
        return found

    def _list_again(self, found: ReadBatches) -> None:
        try:
            try:
                self._source.list()
            except StorageError:
                # A segment may have been deleted while it was looked at.
                self._source.list()
        except (StorageError, UsageError) as error:
            for partition, state in self._partitions.items():
                if state.error is None:
                    self._fail(partition, error, found)
            return
        for partition, state in self._partitions.items():
            log = self._source.logs.get(partition)
            if state.error is not None:
                continue
            if log is None:
                at = state.position.offset
                self._fail(partition, Loss(LossKind.GONE, at, at, 0), found)
            else:
                begun = _begun(state.position, log)
                self._partitions[partition] = replace(begun, listed_at=state.listed_at)
        self._examine(found)

    def _examine(self, found: ReadBatches) -> None:
        """Compare positions with what the directory has."""
        for partition, state in self._partitions.items():
            at = state.position
            facts = SourceFacts(state.log.start, state.log.log.end_offset)
            loss = judge(at.offset, at.leader_epoch, None, facts)
            if loss is not None and state.error is None:
                self._fail(partition, loss, found)

    def _fail(self, partition: TopicPartition, error: KctlError | Loss, found: ReadBatches) -> None:
        self._partitions[partition].error = error
        found.stopped[partition] = error

    # Reading

    def _read(self, partition: TopicPartition, state: _Partition, found: ReadBatches) -> int:
        """Read some batches of a partition; return the bytes that were read."""
        try:
            before = state.position.offset
            copied, size = self._next_range(state, joins=partition not in self._unjoined)
        except KctlError as error:
            return self._doubt(partition, error, found)
        if isinstance(copied, Loss):
            return self._doubt(partition, copied, found)
        if copied.next_offset > before:
            epoch = max(copied.leader_epoch, state.position.leader_epoch)
            state.position = replace(state.position, offset=copied.next_offset, leader_epoch=epoch)
            found.ranges[partition] = copied
        return max(size, 1)

    def _doubt(self, partition: TopicPartition, error: KctlError | Loss, found: ReadBatches) -> int:
        """List the directory again where a partition cannot be read, and stop it if that was done
        for this offset. Return 1 if it is to be read again, else 0.

        Since the directory was listed, the cleaner may have merged segments into one, and retention
        may have deleted some."""
        state = self._partitions[partition]
        if state.listed_at == state.position.offset:
            self._fail(partition, error, found)
            return 0
        state.listed_at = state.position.offset
        self._list_again(found)
        return 1

    def _next_range(self, state: _Partition, *, joins: bool) -> tuple[CopiedRange | Loss, int]:
        """Return what comes next in the segment, or the loss before the next segment."""
        log, position = state.log.log, state.position.offset
        number, start = state.at or _place_of(log, position)
        segment, view = log.segments[number], _viewed(state, log, number)
        end = _whole_batches(view, start, state.log.end)
        if end == start:
            return self._after_segment(state, segment, number, len(view) - start)
        try:
            copied = copy_batches(view[start:end], position, state.skips, joins=joins)
        except CorruptDataError as error:
            intact = start + _intact_bytes(view[start:end])
            if intact == start:
                where = f"{segment.path} at byte {start}"
                raise CorruptDataError(f"{where}: {error}") from None
            end, state.skips = intact, _filter(state.log.aborted, position)
            copied = copy_batches(view[start:end], position, state.skips, joins=joins)
        state.at = number, end
        return copied, end - start

    def _after_segment(
        self, state: _Partition, segment: Segment, number: int, bytes_left: int
    ) -> tuple[CopiedRange | Loss, int]:
        """Return the step to the next segment, which records may be missing before."""
        log, position = state.log.log, state.position.offset
        segments = log.segments
        if bytes_left and _is_beyond(state, number):
            # Compaction removed what was before an open transaction.
            return CopiedRange([], state.log.end), 0
        if bytes_left or number + 1 == len(segments):
            raise CorruptDataError(
                f"{segment.path}: no batch can be read {counted(bytes_left, 'byte')} before its"
                f" end, at offset {position}"
            )
        begin = segments[number + 1].base_offset
        if begin > position and not state.log.is_compacted and not _has_gaps(state.view):
            return Loss(LossKind.DELETED, position, begin, begin), 0
        state.at = number + 1, 0
        return CopiedRange([], max(begin, position)), 0


def _listed(log: PartitionLog, marks: Mapping[str, Mapping[TopicPartition, int]]) -> _Log:
    if any(segment.is_old for segment in log.segments):
        raise UsageError(
            f"{log.topic_partition} is of Kafka 0.7, as other partitions are not",
            hint="mirror the directories of its partitions by themselves",
        )
    aborted, unstable = log.transactions()
    end = log.end_offset if unstable is None else min(unstable, log.end_offset)
    if (known := marks.get(_parent(log))) is not None:
        # A partition that is not in the checkpoint is new: its records wait for the next one.
        end = min(end, max(known.get(log.topic_partition, 0), log.start_offset))
    path = f"{_parent(log)}/{CLEANER_OFFSET_CHECKPOINT}"
    return _Log(log, aborted, end, log.topic_partition in stored_offsets(log.files, path))


def _parent(log: PartitionLog) -> str:
    """Return the log directory that the partition is in."""
    return log.segments[0].path.rsplit("/", 2)[0]


def _begun(position: MirrorPosition, log: _Log) -> _Partition:
    return _Partition(position, log, _filter(log.aborted, position.offset))


def _filter(aborted: list[AbortedRange], position: int) -> AbortedFilter:
    return AbortedFilter(_Aborted([it for it in aborted if it.last_offset >= position]))


def _viewed(state: _Partition, log: PartitionLog, number: int) -> memoryview:
    path = log.segments[number].path
    if state.view is None or state.view[0] != path:
        files: Files = log.files
        state.view = path, memoryview(files.map(path)).cast("B")
    return state.view[1]


def _place_of(log: PartitionLog, offset: int) -> tuple[int, int]:
    """Return the number of the segment that has `offset`, and a place in it at or before it."""
    number = log.segment_of(offset)
    base = log.segments[number].base_offset
    # An index entry names a batch by its last offset: the batch before it may hold `offset`.
    below = [
        position
        for relative, position in log.index_entries(log.segments[number]).tolist()
        if base + relative < offset
    ]
    return number, below[-1] if below else 0


def _whole_batches(view: memoryview, start: int, end_offset: int) -> int:
    """Return where some megabytes of whole batches from `start` on end, of those that begin before
    `end_offset`."""
    end = start
    try:
        for found in locations(view, start):
            is_beyond = found.offset >= end_offset
            if is_beyond or (
                end > start and found.position + found.size > start + PARTITION_BYTES_MAX
            ):
                break
            end = found.position + found.size
    except CorruptDataError:
        # What is before it comes first; the next call begins with it and finds nothing.
        pass
    return end


def _is_beyond(state: _Partition, number: int) -> bool:
    """Return whether the next batch of the segment begins at or after the end of what is read."""
    view = _viewed(state, state.log.log, number)
    start = state.at[1] if state.at is not None else 0
    try:
        found = locate(view, start)
    except CorruptDataError:
        return False
    return found is not None and found.offset >= state.log.end


def _intact_bytes(data: memoryview) -> int:
    """Return where the first damaged batch begins."""
    end = 0
    for batch in batches(data):
        try:
            batch.ensure_valid()
        except CorruptDataError:
            break
        end = batch.position + batch.size
    return end


def _has_gaps(view: tuple[str, memoryview] | None) -> bool:
    """Return whether offsets are missing inside a segment, as compaction leaves them."""
    if view is None:
        return False
    expected = None
    for batch in batches(view[1]):
        if not isinstance(batch, RecordBatch):
            # The first offset of a compressed message of an old format is not in its header.
            if batch.compression_type:
                expected = None
                continue
        elif batch.count != batch.last_offset_delta + 1:
            return True
        if expected is not None and batch.base_offset != expected:
            return True
        expected = batch.next_offset
    return False


def _record_at(log: PartitionLog, offset: int) -> "Record | None":
    number, start = _place_of(log, offset)
    view = memoryview(log.files.map(log.segments[number].path)).cast("B")
    try:
        for batch in batches(view, start):
            if batch.next_offset <= offset:
                continue
            batch.ensure_valid()
            return next((it for it in batch.records() if it.offset == offset), None)
    except CorruptDataError:
        pass
    return None
