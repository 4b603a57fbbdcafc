"""Source07: a mirror's source that is a server of Kafka 0.7, whose offsets are byte positions.

A server of 0.7 does not list its topics, so they are named; it answers a fetch from a partition
that it cannot have with an error, so partitions are counted by asking. A topic without a message
looks like one that does not exist, and is not mirrored until it has one.

Positions are committed after whole entries (see `messages07`), so nothing of a compressed message
is copied twice. A position that was committed is the end of an entry; one that is taken from the
map, because the group has expired, may lie inside the last one, and is moved behind it.

Kafka 0.7: kafka.consumer.SimpleConsumer; 0.8: kafka.tools.KafkaMigrationTool
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from kctl.client.offsets import ListedOffset
from kctl.client.reading_connection07 import ReadingConnection07
from kctl.errors import CorruptDataError, KctlError, UnreachableError, UsageError
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.loss import Loss, LossKind, SourceFacts, judge
from kctl.mirror.messages07 import copy_messages, first_record
from kctl.mirror.mirror_plan import TopicFacts
from kctl.mirror.sources import ReadBatches
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError
from kctl.protocol.kafka07 import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchAnswer,
    FetchRequest,
    Kafka07Error,
    MultiFetchRequest,
    decode_fetch_answer,
    decode_multifetch_answer,
)
from kctl.records.message07 import CutMessageError
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.sources import MirrorSource
    from kctl.records.record import Record
    from kctl.runtime.runtime import Runtime

T = TypeVar("T")

PARTITION_BYTES_MAX = 1 << 20
# Partitions that one request asks for.
PARTITIONS_AT_ONCE_MAX = 8
# The largest message that is copied.
MESSAGE_BYTES_MAX = 128 << 20
# Partitions of a topic that are looked for.
PARTITIONS_MAX = 10_000
_GLOB_CHARACTERS = frozenset("*?[")
_IDLE_MS = 500


class Source07:
    """The server at `host:port`. See MirrorSource."""

    admin: None = None

    def __init__(
        self, runtime: "Runtime", host: str, port: int, topics: Sequence[str], timeout_ms: int
    ) -> None:
        """Copy from `topics`; UsageError if one is a pattern."""
        for topic in topics:
            if not _GLOB_CHARACTERS.isdisjoint(topic):
                raise UsageError(
                    f"A server of Kafka 0.7 does not list its topics: {topic} is a pattern",
                    hint="name each one: --topics clicks --topics orders",
                )
        self.runtime = runtime
        self.connection = ReadingConnection07(runtime, host, port, timeout_ms)
        self._topics = list(dict.fromkeys(topics))
        self._counts: dict[str, int] = {}

    async def describe(self, selects: Callable[[str], bool]) -> tuple[str | None, list[TopicFacts]]:
        """Count the partitions of each topic that has messages; raise UnreachableError."""
        facts: list[TopicFacts] = []
        for topic in sorted(filter(selects, self._topics)):
            count = await self._partitions_of(topic)
            ends = await self.ends(TopicPartition(topic, number) for number in range(count))
            if any(it.offset > 0 for it in ends.values()):
                self._counts[topic] = count
                facts.append(TopicFacts(topic, count))
        return None, facts

    def reader(self) -> "Reader07":
        """Return a reader."""
        return Reader07(self)

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the server has the partition."""
        return partition.partition < self._counts.get(partition.topic, 0)

    async def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask for the first positions."""
        return {it: ListedOffset(await self._offset(it, EARLIEST_TIME)) for it in partitions}

    async def ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask for the positions after the last messages."""
        return {it: ListedOffset(await self._offset(it, LATEST_TIME)) for it in partitions}

    async def records_at(
        self, offsets: Mapping[TopicPartition, int]
    ) -> "dict[TopicPartition, Record]":
        """Fetch the messages that begin at these positions."""
        found: dict[TopicPartition, Record] = {}
        for partition, position in offsets.items():
            entry = await self._entry_at(partition, position)
            if entry is not None and entry[0] is not None:
                found[partition] = entry[0]
        return found

    async def next_offset(self, partition: TopicPartition, mapped_end: int) -> int:
        """Return the end of the entry that the map's last run is in."""
        entry = await self._entry_at(partition, mapped_end - 1)
        return mapped_end if entry is None else entry[1]

    async def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the first position and the one after the last message."""
        return (
            await self._offset(partition, EARLIEST_TIME),
            await self._offset(partition, LATEST_TIME),
        )

    async def _offset(self, partition: TopicPartition, time_ms: int) -> int:
        found = await self.connection.offsets_before(
            partition.topic, partition.partition, time_ms, 1
        )
        return found[0] if found else 0

    async def _partitions_of(self, topic: str) -> int:
        for number in range(PARTITIONS_MAX):
            answer = await self._fetch(TopicPartition(topic, number), 0, 1)
            if answer.error == Kafka07Error.WRONG_PARTITION:
                return number
            if answer.error == Kafka07Error.UNKNOWN:
                return 0
        return PARTITIONS_MAX

    async def _fetch(self, partition: TopicPartition, position: int, bytes_max: int) -> FetchAnswer:
        request = FetchRequest(partition.topic, partition.partition, position, bytes_max)
        return decode_fetch_answer(await self.connection.ask(request))

    async def _entry_at(
        self, partition: TopicPartition, position: int
    ) -> "tuple[Record | None, int] | None":
        """Return the first message of the entry that begins at `position`, and the entry's end;
        None if none begins there."""
        bytes_max = PARTITION_BYTES_MAX
        while bytes_max <= MESSAGE_BYTES_MAX:
            answer = await self._fetch(partition, position, bytes_max)
            try:
                return None if answer.error else first_record(answer.message_set, position)
            except CutMessageError as error:
                if len(answer.message_set) < bytes_max:
                    return None
                bytes_max = error.bytes_needed
            except CorruptDataError:
                return None
        return None


@dataclass(slots=True)
class _Partition:
    """A partition that is read."""

    position: MirrorPosition
    bytes_max: int = PARTITION_BYTES_MAX
    end: int = -1
    is_examined: bool = False
    error: KctlError | Loss | None = None


class Reader07:
    """Reads partitions of a server of Kafka 0.7. See BatchReader."""

    def __init__(self, source: Source07) -> None:
        self._source = source
        self._partitions: dict[TopicPartition, _Partition] = {}

    def assign(
        self,
        positions: Mapping[TopicPartition, MirrorPosition],
        topic_ids: Mapping[str, str],  # noqa: ARG002 - as in the Protocol
    ) -> None:
        """Read these partitions from now on, and no others."""
        self._partitions = {it: _Partition(at) for it, at in positions.items()}

    @property
    def positions(self) -> dict[TopicPartition, MirrorPosition]:
        """Return the position after what has been returned, of each partition."""
        return {it: state.position for it, state in self._partitions.items()}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the ends as far as they are known."""
        return {
            it: max(state.end, state.position.offset)
            for it, state in self._partitions.items()
            if state.end >= 0
        }

    def stop(self, partitions: Iterable[TopicPartition], error: KctlError | Loss) -> None:
        """Read no more of these partitions."""
        for partition in partitions:
            self._partitions[partition].error = error

    def close(self) -> None:
        """Close the connection; the next poll opens another."""
        self._source.connection.close()

    async def poll(self) -> ReadBatches:
        """Return the next batches; raise UnreachableError if the server does not answer."""
        found = ReadBatches()
        await self._examine(found)
        active = [it for it, state in self._partitions.items() if state.error is None]
        is_fruitful = bool(found.stopped)
        for first in range(0, len(active), PARTITIONS_AT_ONCE_MAX):
            some = active[first : first + PARTITIONS_AT_ONCE_MAX]
            request = MultiFetchRequest([self._request(it) for it in some])
            answers = decode_multifetch_answer(await self._source.connection.ask(request))
            if len(answers) != len(some):
                raise UnreachableError("the server of Kafka 0.7 answered less than it was asked")
            for partition, answer in zip(some, answers, strict=True):
                is_fruitful |= self._take(partition, answer, found)
        if not is_fruitful:
            await sleep(self._source.runtime.scheduler, _IDLE_MS)
        return found

    def _request(self, partition: TopicPartition) -> FetchRequest:
        state = self._partitions[partition]
        return FetchRequest(
            partition.topic, partition.partition, state.position.offset, state.bytes_max
        )

    def _take(self, partition: TopicPartition, answer: FetchAnswer, found: ReadBatches) -> bool:
        """Take what was fetched; return whether to fetch again at once."""
        state = self._partitions[partition]
        at = state.position.offset
        if answer.error == Kafka07Error.OFFSET_OUT_OF_RANGE:
            state.is_examined = False
            return False
        if answer.error == Kafka07Error.WRONG_PARTITION:
            self._fail(partition, Loss(LossKind.GONE, at, at, 0), found)
            return True
        if answer.error:
            self._fail(partition, ApiError(answer.error), found)
            return True
        try:
            copied = copy_messages(answer.message_set, at)
        except CutMessageError as error:
            if len(answer.message_set) < state.bytes_max:
                return False
            state.bytes_max = error.bytes_needed
            if error.bytes_needed > MESSAGE_BYTES_MAX:
                self._fail(partition, _damaged(at, error), found)
            return True
        except CorruptDataError as error:
            self._fail(partition, _damaged(at, error), found)
            return True
        if copied.next_offset == at:
            return False
        state.position = replace(state.position, offset=copied.next_offset)
        state.bytes_max = PARTITION_BYTES_MAX
        found.ranges[partition] = copied
        return True

    async def _examine(self, found: ReadBatches) -> None:
        """Compare positions with what the server has."""
        for partition, state in self._partitions.items():
            if state.is_examined or state.error is not None:
                continue
            start, state.end = await self._source.bounds(partition)
            loss = judge(state.position.offset, -1, None, SourceFacts(start, state.end))
            state.is_examined = True
            if loss is not None:
                self._fail(partition, loss, found)

    def _fail(self, partition: TopicPartition, error: KctlError | Loss, found: ReadBatches) -> None:
        self._partitions[partition].error = error
        found.stopped[partition] = error


async def with_server(
    source: Source07,
    target: "AdminClient",
    work: "Callable[[MirrorSource, AdminClient], Awaitable[T]]",
) -> T:
    """Return the result of `work(source, target)`, and close the connection to the server."""
    try:
        return await work(source, target)
    finally:
        source.connection.close()


def _damaged(position: int, error: CorruptDataError) -> CorruptDataError:
    return CorruptDataError(f"at position {position}: {error}")
