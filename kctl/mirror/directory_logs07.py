"""DirectoryLogs07: the `.kafka` files of Kafka 0.7 in log directories, read as a server reads them.

A server may still write to the directory: it is listed again when there was nothing to read.
What follows the last whole entry of a log is left out, as a server does when it recovers.

Kafka 0.7: kafka.log.Log (`read`, `findRange`)
"""

from collections.abc import Callable, Sequence
from dataclasses import field

from kctl.arrow_files.log_discovery import find_logs
from kctl.arrow_files.partition_log import PartitionLog
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.kafka07 import FetchAnswer, FetchRequest, Kafka07Error


@dataclass(slots=True)
class DirectoryLogs07:
    """Log directories, directories of partitions, or segment files. See Logs07."""

    directories: Sequence[str]
    is_part: bool = True
    _logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)

    async def partitions(self, selects: Callable[[str], bool]) -> dict[str, int]:
        """List the directories; raise UsageError for files of a later release, StorageError."""
        self._list()
        counts: dict[str, int] = {}
        for (topic, number), log in self._logs.items():
            if selects(topic) and log.segments[-1].base_offset + log.segments[-1].size > 0:
                counts[topic] = max(counts.get(topic, 0), number + 1)
        return counts

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether there are files of the partition."""
        return partition in self._logs

    async def bounds(self, partition: TopicPartition, position: int) -> tuple[int, int]:
        """Look at the files."""
        log = self._logs.get(partition)
        if log is None:
            return 0, 0
        end = log.end_offset
        if log.start_offset <= position < end and _left(log, position) <= 0:
            # A segment is missing.
            return log.segments[log.segment_of(position) + 1].base_offset, end
        return log.start_offset, end

    async def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchAnswer]:
        """Read the files."""
        return [self._answer(it) for it in requests]

    def look_again(self) -> None:
        """List the directories again."""
        self._list()

    def place(self, partition: TopicPartition, position: int) -> str:
        """Name the file, and the byte in it."""
        log = self._logs[partition]
        segment = log.segments[log.segment_of(position)]
        return f"{segment.path} at byte {position - segment.base_offset}"

    def close(self) -> None:
        """Do nothing: no file is open between two fetches."""

    def _list(self) -> None:
        logs = find_logs(self.directories, ["*"])
        for log in logs:
            if not log.segments[0].is_old:
                raise UsageError(
                    f"{log.topic_partition} is not of Kafka 0.7, as other partitions are",
                    hint="mirror the directories of its partitions by themselves",
                )
        # A log without new bytes keeps what it knows of its end, which takes a scan to find.
        known = self._logs
        self._logs = {}
        for log in logs:
            old = known.get(log.topic_partition)
            if old is not None and old.segments == log.segments:
                self._logs[log.topic_partition] = old
            else:
                self._logs[log.topic_partition] = log

    def _answer(self, request: FetchRequest) -> FetchAnswer:
        log = self._logs.get(TopicPartition(request.topic, request.partition))
        if log is None:
            return FetchAnswer(Kafka07Error.WRONG_PARTITION, b"")
        position = request.offset
        if not log.start_offset <= position <= log.end_offset:
            return FetchAnswer(Kafka07Error.OFFSET_OUT_OF_RANGE, b"")
        left = _left(log, position)
        if left <= 0:
            is_end = position == log.end_offset
            error = Kafka07Error.NONE if is_end else Kafka07Error.OFFSET_OUT_OF_RANGE
            return FetchAnswer(error, b"")
        segment = log.segments[log.segment_of(position)]
        start = position - segment.base_offset
        data = log.files.read_range(segment.path, start, min(left, request.bytes_max))
        return FetchAnswer(Kafka07Error.NONE, data)


def _left(log: PartitionLog, position: int) -> int:
    """Return how many bytes the segment that `position` belongs to has from there on; none after a
    segment that is followed by a gap."""
    number = log.segment_of(position)
    segment = log.segments[number]
    end = segment.base_offset + segment.size
    if number + 1 < len(log.segments):
        end = min(end, log.segments[number + 1].base_offset)
    return min(end, log.end_offset) - position


def is_of_kafka07(directories: Sequence[str]) -> bool:
    """Return whether the directories have partitions, all of them of Kafka 0.7; raise UsageError if
    one does not exist, StorageError."""
    return all(log.segments[0].is_old for log in find_logs(directories, ["*"]))
