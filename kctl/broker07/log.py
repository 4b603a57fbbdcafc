"""Log07: one partition's log, a chain of `.kafka` segments, and the end that readers see.

Offsets are byte positions: a segment's name is where it begins, and it ends where the next begins.
Appended bytes are in the file at once, and visible to readers once they are flushed, as in Kafka
0.7: what was read once is on disk. A segment is rolled only while nothing is unflushed, so a crash
leaves at most an incomplete end of the newest segment, which is what recovery looks for.

Invariants: `visible_end` <= `end`; both only grow; all bytes before `visible_end`, and the names of
their files, are durable. While a set is written off the loop (`writing`), nothing else is written
and no segment is rolled.

Kafka 0.7: kafka.log.Log, kafka.log.LogSegment, kafka.message.FileMessageSet
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kctl.broker07.config import Broker07Config
from kctl.errors import CorruptDataError, StorageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.kafka07 import EARLIEST_TIME, LATEST_TIME, Kafka07Error
from kctl.protocol.primitives import Buffer
from kctl.runtime.disk import Disk, DiskFile, FileSlice
from kctl.runtime.future import Future
from kctl.storage.layout import LOG_SUFFIX
from kctl.storage.segments07 import (
    breaks_in_chain,
    directory_name,
    segment_name,
    segments_in,
    unreadable_names,
    valid_end,
)
from kctl.work import Work

# Files whose times are looked at between two turns of the loop.
FILES_PER_TURN = 500


@dataclass(slots=True)
class Segment:
    """One file of a log."""

    base_offset: int
    path: str
    size: int
    # Opened when it is first needed.
    file: DiskFile | None = None

    @property
    def end_offset(self) -> int:
        """Return where the next segment begins."""
        return self.base_offset + self.size


class Found(NamedTuple):
    """What a fetch found."""

    error: Kafka07Error
    # None: nothing.
    part: FileSlice | None


class FlushJob(NamedTuple):
    """What makes a log durable up to `end`."""

    file: DiskFile
    # Their names are not durable yet: a segment's directory, and that one's parent.
    directories: Sequence[str]
    end: int
    messages: int


_NOTHING = Found(Kafka07Error.NONE, None)
_OUT_OF_RANGE = Found(Kafka07Error.OFFSET_OUT_OF_RANGE, None)


class Log07:
    """The log of one partition; opened by `load` or `create`."""

    def __init__(
        self, disk: Disk, config: Broker07Config, log_dir: str, topic_partition: TopicPartition
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = f"{log_dir}/{directory_name(topic_partition)}"
        # Why it is offline; None while it serves.
        self.failure: str | None = None
        # In the order of their offsets; never empty once the log is open.
        self.segments: list[Segment] = []
        self.end = 0
        self.visible_end = 0
        self.unflushed_messages = 0
        # Wall milliseconds.
        self.flushed_ms = 0
        # Done when the set that is written off the loop is there; None: there is no such set.
        self.writing: Future[None] | None = None
        self._disk = disk
        self._log_dir = log_dir
        self._segment_bytes = config.segment_bytes_of(topic_partition.topic)
        self._roll_ms = config.roll_ms_of(topic_partition.topic)
        # Of the newest segment, in this process.
        self._first_append_ms: int | None = None
        # Directories with names that are not durable.
        self._new_names: list[str] = []

    # --- opening

    def create(self, now_ms: int) -> None:
        """Make the directory and an empty segment; StorageError."""
        self._disk.make_directory(self.directory)
        self._new_names.append(self._log_dir)
        self._add_segment(0)
        self.flushed_ms = now_ms

    def load(self, now_ms: int, *, is_clean: bool) -> int:
        """Open the files that are there, and recover the newest one unless the last stop was clean.

        Return the number of bytes that recovery removed. CorruptDataError if the segments are no
        chain.
        """
        removed = 0
        names = unreadable_names(self._disk, self.directory)
        if names:
            raise CorruptDataError(f"{self.directory}/{names[0]}: the name is no offset")
        if any(name.endswith(LOG_SUFFIX) for name in self._disk.list(self.directory)):
            raise CorruptDataError(f"{self.directory} contains segments of Kafka 0.8 or later")
        found = segments_in(self._disk, self.directory)
        for earlier, later in breaks_in_chain(found):
            raise CorruptDataError(
                f"{earlier.path} ends at {earlier.end_offset} and the next segment begins at"
                f" {later.base_offset}"
            )
        self.segments = [Segment(it.base_offset, it.path, it.size) for it in found]
        if not self.segments:
            self._add_segment(0)
        elif not is_clean:
            removed = self._recover(self.segments[-1])
        self.end = self.visible_end = self.segments[-1].end_offset
        self.flushed_ms = now_ms
        return removed

    def _recover(self, newest: Segment) -> int:
        end, _ = valid_end(self._disk, newest.path)
        file = self._file(newest)
        removed = newest.size - end
        if removed:
            file.truncate(end)
            newest.size = end
        # Written before a crash of the process, and perhaps not on disk.
        file.fsync()
        self._disk.fsync_directory(self.directory)
        self._disk.fsync_directory(self._log_dir)
        return removed

    def check_online(self) -> None:
        """Raise StorageError if the log is offline."""
        if self.failure is not None:
            raise StorageError(f"{self.topic_partition} is offline: {self.failure}")

    # --- writing

    @property
    def size(self) -> int:
        """Return the bytes of all segments."""
        return self.end - self.segments[0].base_offset

    @property
    def is_flushed(self) -> bool:
        """Return whether everything that was appended is flushed, and so visible to readers."""
        return self.visible_end == self.end

    @property
    def is_at_rest(self) -> bool:
        """Return whether everything is flushed and nothing is being written."""
        return self.is_flushed and self.writing is None

    def is_due_to_roll(self, now_ms: int) -> bool:
        """Return whether the next append needs a new segment."""
        if self.segments[-1].size > self._segment_bytes:
            return True
        first_ms = self._first_append_ms
        return first_ms is not None and now_ms - first_ms > self._roll_ms

    def roll(self) -> None:
        """Begin a segment, while everything is flushed; StorageError changes nothing."""
        if not self.is_at_rest:
            raise RuntimeError("a log is flushed before it is rolled")
        if self.segments[-1].size:
            self._add_segment(self.end)
        self._first_append_ms = None

    def write_job(self, data: Buffer) -> Callable[[], object]:
        """Return what writes whole entries to the file, on the loop or off it; StorageError.

        `written` or `write_failed` follows. Nothing is visible before `flushed`.
        """
        return partial(self._file(self.segments[-1]).append, [data])

    def write_failed(self, error: StorageError) -> None:
        """Go offline, unless nothing of the set is left in the file: a full disk passes."""
        newest = self.segments[-1]
        if self._disk.size(newest.path) != newest.size:
            self.failure = str(error)

    def written(self, length: int, messages: int, now_ms: int) -> None:
        """Count the entries that a `write_job` has written."""
        self.segments[-1].size += length
        self.end += length
        self.unflushed_messages += messages
        if self._first_append_ms is None:
            self._first_append_ms = now_ms

    def flush_job(self) -> FlushJob:
        """Return what makes everything appended so far durable."""
        newest = self.segments[-1]
        return FlushJob(
            self._file(newest), tuple(self._new_names), self.end, self.unflushed_messages
        )

    def run(self, job: FlushJob) -> None:
        """Do `job`, off the loop; StorageError is final for the log."""
        job.file.fsync()
        for directory in job.directories:
            self._disk.fsync_directory(directory)

    def flushed(self, job: FlushJob, now_ms: int) -> None:
        """Let readers see what `job` made durable."""
        self.visible_end = max(self.visible_end, job.end)
        self.unflushed_messages -= job.messages
        del self._new_names[: len(job.directories)]
        self.flushed_ms = now_ms

    def _add_segment(self, base_offset: int) -> None:
        path = f"{self.directory}/{segment_name(base_offset)}"
        file = self._disk.open(path, create=True)
        self._new_names.append(self.directory)
        self.segments.append(Segment(base_offset, path, 0, file))

    def _file(self, segment: Segment) -> DiskFile:
        if segment.file is None:
            is_old = segment is not self.segments[-1]
            segment.file = self._disk.open(segment.path, read_only=is_old)
        return segment.file

    # --- reading

    def read(self, offset: int, bytes_max: int) -> Found:
        """Return what a fetch of at most `bytes_max` bytes gets from `offset` on, or its error; an
        answer ends with the segment. StorageError if the log cannot be read."""
        segments = self.segments
        if not segments[0].base_offset <= offset <= self.visible_end:
            return _OUT_OF_RANGE
        if bytes_max < 0:
            return Found(Kafka07Error.INVALID_FETCH_SIZE, None)
        segment = segments[-1]
        if offset < segment.base_offset:
            segment = segments[bisect_right(segments, offset, key=_base_offset) - 1]
        length = min(bytes_max, segment.end_offset - offset, self.visible_end - offset)
        if not length:
            return _NOTHING
        return Found(
            Kafka07Error.NONE,
            FileSlice(self._file(segment), offset - segment.base_offset, length),
        )

    def offsets_before(self, time_ms: int, count_max: int, now_ms: int) -> Work[list[int]]:
        """Return the starts of segments, and the end, that are from `time_ms` or before, newest
        first. The time of a segment is its file's, that of the end is now."""
        starts = [segment.base_offset for segment in self.segments]
        if self.visible_end > starts[-1]:
            starts.append(self.visible_end)
        if time_ms == EARLIEST_TIME:
            newest = 0
        elif time_ms == LATEST_TIME or time_ms >= now_ms:
            newest = len(starts) - 1
        else:
            newest = yield from self._newest_before(time_ms, list(self.segments))
        return starts[newest::-1][:count_max] if newest >= 0 else []

    def _newest_before(self, time_ms: int, segments: Sequence[Segment]) -> Work[int]:
        for number in range(len(segments) - 1, -1, -1):
            if self._disk.modified_ms(segments[number].path) <= time_ms:
                return number
            if number % FILES_PER_TURN == 0:
                yield
        return -1

    # --- retention

    def expired(self, now_ms: int, retention_ms: int) -> Iterator[Segment]:
        """Yield the oldest segments whose files are older than `retention_ms`."""
        for segment in self.segments:
            if now_ms - self._disk.modified_ms(segment.path) <= retention_ms:
                return
            yield segment

    def excess(self, retention_bytes: int) -> Iterator[Segment]:
        """Yield the oldest segments without which the log still has `retention_bytes`."""
        left = self.size - retention_bytes
        for segment in self.segments:
            left -= segment.size
            if retention_bytes < 0 or left < 0:
                return
            yield segment

    def remove_oldest(self, count: int) -> list[str]:
        """Take the oldest segments out of the log; return the paths of their files, which the
        caller removes. The newest segment stays: `roll` comes first."""
        if count >= len(self.segments):
            raise RuntimeError("a log always has a segment")
        gone, self.segments = self.segments[:count], self.segments[count:]
        return [segment.path for segment in gone]

    def renew(self, now_ms: int) -> None:
        """Set the time of the newest file, which is empty, to now."""
        self._disk.set_modified_ms(self.segments[-1].path, now_ms)

    def close(self) -> None:
        """Close the files; slices being sent keep their own."""
        for segment in self.segments:
            if segment.file is not None:
                segment.file.close()
                segment.file = None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
