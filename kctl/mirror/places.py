"""Places: where a proof reads partitions: the brokers of a cluster, or log directories.

A place is a plain value that can be pickled; `open` makes readers of it in any process. Both sides
of a proof share one loop, so that the next chunks of both arrive while a chunk is compared.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.Fetcher; KIP-98
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kctl.arrow_files.files import Files
from kctl.arrow_files.log_discovery import find_logs
from kctl.arrow_files.partition_log import PartitionLog, Segment
from kctl.errors import CorruptDataError, UsageError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import PREFIX
from kctl.mirror.proof.reading import chunk_of
from kctl.mirror.proof.stream import Chunk
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.constants import CONSUMER_REPLICA_ID, READ_COMMITTED
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.records.transactions import AbortedRange, CommittedReader

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.runtime.real import RealRuntime

T = TypeVar("T")

# Bytes requested at once.
FETCH_BYTES = 8 * 1024 * 1024
# The size of a record batch above which reading fails.
FETCH_BYTES_MAX = 128 * 1024 * 1024
_CLEANUP_POLICY = "cleanup.policy"
_MAX_WAIT_MS = 500
# Responses in a row without a batch after which reading a partition fails.
_EMPTY_RESPONSES_MAX = 60


class Reader(Protocol):
    """Reads one partition."""

    def read(self, offset: int) -> Chunk:
        """Return the chunk that begins at `offset`; the one after the last is read fastest."""
        ...

    def close(self) -> None:
        """End what is under way."""
        ...


class OpenPlace(Protocol):
    """A place that partitions can be read from, until it is closed."""

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions of topics (names or shell patterns), in order.

        Raise NotFoundError if a name or pattern matches no topic.
        """
        ...

    def span(
        self, partition: TopicPartition, since: Position, until: Position
    ) -> tuple[int, int, int]:
        """Return the first offset, the offset after the last committed record (both limited by the
        positions), and the log start offset."""
        ...

    def reader(self, partition: TopicPartition, end: int) -> Reader:
        """Return a reader of the records before `end`."""
        ...

    def compacted(self, topics: Sequence[str]) -> set[str]:
        """Return those of the topics that are compacted and not deleted, as far as is known."""
        ...

    def cluster_id(self) -> str | None:
        """Return the cluster's id, if there is one."""
        ...


class Place(Protocol):
    """Where partitions are."""

    def open(self, _loop: "Loop") -> OpenPlace:
        """Return the place, which the loop drives and closes."""
        ...


class Loop:
    """The runtime that drives all connections of a proof; a context manager that closes them."""

    def __init__(self, runtime: "Callable[[], RealRuntime]") -> None:
        """Use the runtime that `runtime` makes on first use."""
        self._make = runtime
        self._runtime: RealRuntime | None = None
        self._closers: list[Callable[[], object]] = []

    @property
    def runtime(self) -> "RealRuntime":
        """Return the runtime."""
        if self._runtime is None:
            self._runtime = self._make()
        return self._runtime

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end and return its result."""
        scheduler = self.runtime.scheduler
        return scheduler.run_until(scheduler.spawn(work))

    def on_close(self, close: Callable[[], object]) -> None:
        """Call `close` when the loop closes."""
        self._closers.append(close)

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_error: object) -> None:
        for close in self._closers:
            close()
        if self._runtime is not None:
            self._runtime.scheduler.close()


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """The brokers of a cluster, and the client settings of Apache Kafka to reach them."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    timeout_ms: int
    # May contain secrets.
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def open(self, _loop: Loop) -> "OpenCluster":
        """Return a client, which connects on first use."""
        from kctl.admin.admin_client import AdminClient

        admin = AdminClient.connect(
            _loop.runtime, self.bootstrap_servers, self.timeout_ms, dict(self.properties),
            reads_only=True,
        )  # fmt: skip
        _loop.on_close(admin.close)
        return OpenCluster(_loop, admin)


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """Log directories, partition directories or segment files; also URLs that Arrow reads."""

    sources: tuple[str, ...]

    def open(self, _loop: Loop) -> "OpenDirectory":
        """Return the directory; nothing is read yet."""
        return OpenDirectory(self.sources)


def _is_internal(topic: str) -> bool:
    return topic.startswith(("__", PREFIX))


class OpenCluster:
    """See OpenPlace. UnreachableError or ApiError if a broker does not answer or refuses."""

    def __init__(self, loop: Loop, admin: "AdminClient") -> None:
        self.admin = admin
        self._loop = loop

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions of topics; without any, of all topics but internal ones."""
        known = {it.name: it for it in self._loop.run(self.admin.topics.list_topics())}
        chosen = [name for name in known if not topics and not _is_internal(name)]
        for topic in topics:
            # As `mirror run`: no pattern matches an internal topic.
            names = [
                name
                for name in known
                if name == topic or (fnmatchcase(name, topic) and not _is_internal(name))
            ]
            if not names:
                raise not_found("topic", topic, known)
            chosen += names
        return sorted(
            TopicPartition(name, each.partition)
            for name in dict.fromkeys(chosen)
            for each in known[name].partitions
        )

    def span(
        self, partition: TopicPartition, since: Position, until: Position
    ) -> tuple[int, int, int]:
        """Ask the leader."""
        earliest = Position(PositionKind.EARLIEST)
        latest = Position(PositionKind.LATEST)
        start, first, end, limit = (
            self._resolved(partition, position) for position in (earliest, since, latest, until)
        )
        return max(start, first), min(end, limit), start

    def _resolved(self, partition: TopicPartition, position: Position) -> int:
        asked = self.admin.offsets.resolve({partition: position}, isolation_level=READ_COMMITTED)
        found = self._loop.run(asked)[partition]
        if found.error is not None:
            raise found.error
        return found.offset

    def compacted(self, topics: Sequence[str]) -> set[str]:
        """Ask for `cleanup.policy`; a topic whose settings may not be read, and any topic of a
        broker before Kafka 0.11, counts as not compacted."""
        from kctl.admin.topic_configs import topic_config_values

        values = self._loop.run(topic_config_values(self.admin, topics, _CLEANUP_POLICY))
        return {topic for topic, value in values.items() if value == "compact"}

    def cluster_id(self) -> str | None:
        """Ask a broker; clusters have ids since Kafka 0.10.1."""
        router = self.admin.router
        if router.view.cluster_id is None:
            self._loop.run(router.refresh([]))
        return router.view.cluster_id

    def reader(self, partition: TopicPartition, end: int) -> "FetchReader":
        """Return a reader that fetches from the leader."""
        return FetchReader(self._loop, self.admin, partition, end)


class FetchReader:
    """Fetches committed records of a partition, one response ahead."""

    def __init__(
        self, loop: Loop, admin: "AdminClient", partition: TopicPartition, end: int
    ) -> None:
        self._loop = loop
        self._admin = admin
        self._partition = partition
        self._end = end
        self._bytes = FETCH_BYTES
        # The offset that was asked for ahead, and the task that waits for it.
        self._ahead: tuple[int, Any] | None = None

    def close(self) -> None:
        """Cancel the request in flight, if any."""
        if self._ahead is not None:
            self._ahead[1].cancel()
            self._ahead = None

    def read(self, offset: int) -> Chunk:
        """Return the records from `offset` on; ApiError if the leader does not hold the offset."""
        for _ in range(_EMPTY_RESPONSES_MAX):
            chunk = self._read(offset)
            if chunk.next_offset > offset or chunk.is_last:
                return chunk
        raise CorruptDataError(f"{self._partition}: no batch can be read from offset {offset} on")

    def _read(self, offset: int) -> Chunk:
        if self._ahead is not None and self._ahead[0] != offset:
            self.close()
        _, task = self._ahead or (offset, self._spawn(offset))
        self._ahead = None
        found = self._loop.runtime.scheduler.run_until(task)
        item = found.responses[0].partition_responses[0]
        code = found.error_code or item.error_code
        if code:
            text = ErrorCode(code).text
            raise ApiError(code, f"Cannot read {self._partition} at offset {offset}: {text}")
        data = memoryview(item.record_set or b"")
        keep = CommittedReader(
            AbortedRange(each.producer_id, each.first_offset)
            for each in item.aborted_transactions or ()
        )
        chunk, _ = chunk_of(data, keep, offset)
        # An empty response means that only markers and aborted records are left before the end.
        chunk.is_last = chunk.next_offset >= self._end
        if not chunk.is_last and chunk.next_offset > offset:
            self._ahead = chunk.next_offset, self._spawn(chunk.next_offset)
        elif not chunk.is_last and len(data) >= self._bytes:
            self._bytes = min(2 * self._bytes, FETCH_BYTES_MAX)
        return chunk

    def _spawn(self, offset: int) -> Any:
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA_ID, max_wait_ms=_MAX_WAIT_MS, min_bytes=1,
            max_bytes=self._bytes, isolation_level=READ_COMMITTED,
            topics=[FetchTopic(
                topic=self._partition.topic,
                partitions=[FetchPartition(
                    partition=self._partition.partition, fetch_offset=offset,
                    partition_max_bytes=self._bytes,
                )],
            )],
        )  # fmt: skip
        sending = self._admin.router.send_to_leader(self._partition, request)
        return self._loop.runtime.scheduler.spawn(sending, "mirror verify")


class OpenDirectory:
    """See OpenPlace. StorageError if a file cannot be read."""

    def __init__(self, sources: tuple[str, ...]) -> None:
        self._sources = sources
        self._logs: dict[TopicPartition, PartitionLog] = {}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions of topics; without any, of all topics but internal ones."""
        for log in find_logs(self._sources, topics):
            topic = log.topic_partition.topic
            if _is_internal(topic) and topic not in topics:
                continue
            if any(segment.is_old for segment in log.segments):
                raise UsageError(
                    f"{log.topic_partition}: the files are those of Kafka 0.7",
                    hint="serve them: kctl serve --kafka-0.7",
                )
            self._logs[log.topic_partition] = log
        return sorted(self._logs)

    def span(
        self, partition: TopicPartition, since: Position, until: Position
    ) -> tuple[int, int, int]:
        """Read indexes and headers."""
        log = self._log(partition)
        _, unstable = log.transactions()
        end = log.end_offset if unstable is None else min(unstable, log.end_offset)
        first = max(log.start_offset, log.resolve(since))
        return first, min(end, log.resolve(until)), log.start_offset

    def _log(self, partition: TopicPartition) -> PartitionLog:
        if partition not in self._logs:
            self.partitions([partition.topic])
        return self._logs[partition]

    def compacted(self, topics: Sequence[str]) -> set[str]:  # noqa: ARG002 - as in the Protocol
        """Return nothing: settings are not in the segments."""
        return set()

    def cluster_id(self) -> None:
        """Return None."""
        return

    def reader(self, partition: TopicPartition, end: int) -> "LogReader":
        """Return a reader of the segments."""
        return LogReader(self._log(partition), end)


class LogReader:
    """Reads the committed records of a partition's segments."""

    def __init__(self, log: PartitionLog, end: int) -> None:
        self._log = log
        self._end = end
        self._aborted, _ = log.transactions()
        self._view: tuple[Segment, memoryview] | None = None
        # Where the next chunk is: its offset, the number of its segment, its position there.
        self._next: tuple[int, int, int] | None = None
        self._keep = CommittedReader(self._aborted)

    def close(self) -> None:
        """Do nothing: views end with their last reader."""

    def read(self, offset: int) -> Chunk:
        """Return the batches from `offset` on."""
        if self._next is None or self._next[0] != offset:
            self._next = self._place_of(offset)
            self._keep = CommittedReader(
                each for each in self._aborted if each.last_offset >= offset
            )
        _, number, position = self._next
        segments = self._log.segments
        segment = segments[number]
        is_active = number == len(segments) - 1
        view = self._mapped(segment)
        chunk, position = chunk_of(
            view, self._keep, offset, position=position, is_complete=not is_active
        )
        is_empty = chunk.next_offset == offset and not chunk.damages
        if position >= segment.size or is_empty:
            chunk.is_last = is_active
            if not is_active:
                number, position = number + 1, 0
                chunk.next_offset = max(chunk.next_offset, segments[number].base_offset)
        chunk.is_last |= chunk.next_offset >= self._end
        self._next = chunk.next_offset, number, position
        return chunk

    def _place_of(self, offset: int) -> tuple[int, int, int]:
        number = self._log.segment_of(offset)
        segment = self._log.segments[number]
        entries = self._log.index_entries(segment)
        # An index entry names a batch by its last offset: the batch before it may hold `offset`.
        below = [
            position for relative, position in entries.tolist()
            if segment.base_offset + relative < offset
        ]  # fmt: skip
        return offset, number, below[-1] if below else 0

    def _mapped(self, segment: Segment) -> memoryview:
        if self._view is None or self._view[0] is not segment:
            files: Files = self._log.files
            self._view = segment, files.map(segment.path)
        return self._view[1]
