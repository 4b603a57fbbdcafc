"""Source07: a mirror's source that has logs of Kafka 0.7, whose offsets are byte positions.

Positions are committed after whole entries (see `messages07`), so nothing of a compressed message
is copied twice. A position that was committed is the end of an entry; one that is taken from the
map, because the group has expired, may lie inside the last one, and is moved behind it.

Kafka 0.7: kafka.consumer.SimpleConsumer; 0.8: kafka.tools.KafkaMigrationTool
"""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kctl.client.offsets import ListedOffset
from kctl.errors import CorruptDataError, KctlError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.groups import FoundGroups, SelectsGroup
from kctl.mirror.loss import Loss, LossKind, SourceFacts, judge
from kctl.mirror.messages07 import copy_messages, first_record
from kctl.mirror.mirror_plan import TopicFacts
from kctl.mirror.sources import ReadBatches
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError
from kctl.protocol.kafka07 import FetchAnswer, FetchRequest, Kafka07Error
from kctl.records.message07 import CutMessageError
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.logs07 import Logs07
    from kctl.mirror.numbering07 import Numbering
    from kctl.mirror.sources import MirrorSource
    from kctl.records.record import Record
    from kctl.runtime.runtime import Runtime

T = TypeVar("T")

PARTITION_BYTES_MAX = 1 << 20
# Partitions that one request asks for.
PARTITIONS_AT_ONCE_MAX = 8
# The largest message that is copied.
MESSAGE_BYTES_MAX = 128 << 20
_IDLE_MS = 500


class Source07:
    """The logs of a server of Kafka 0.7, of several, or of a directory. See MirrorSource."""

    admin: None = None
    # Of the servers that ZooKeeper knows.
    numbering: "Numbering | None" = None

    def __init__(self, runtime: "Runtime", logs: "Logs07") -> None:
        """Copy from `logs`."""
        self.runtime = runtime
        self.logs = logs

    async def describe(self, selects: Callable[[str], bool]) -> tuple[str | None, list[TopicFacts]]:
        """Count the partitions of each topic that has messages; raise UnreachableError."""
        found = await self.logs.partitions(selects)
        is_part = self.logs.is_part
        return None, [TopicFacts(it, found[it], is_part=is_part) for it in sorted(found)]

    async def groups(
        self,
        selects: SelectsGroup,  # noqa: ARG002 - as in the Protocol
        names: Container[str],  # noqa: ARG002
    ) -> FoundGroups:
        """Return why there are none: their offsets are in ZooKeeper."""
        hint = "kctl group migrate --mirror moves them"
        error = UsageError("the groups of Kafka 0.7 keep their offsets in ZooKeeper", hint=hint)
        return FoundGroups(errors=[error])

    def reader(self) -> "Reader07":
        """Return a reader."""
        return Reader07(self)

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the logs have the partition."""
        return self.logs.holds(partition)

    async def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the first positions."""
        return {it: ListedOffset((await self.logs.bounds(it, 0))[0]) for it in partitions}

    async def ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the positions after the last messages."""
        return {it: ListedOffset((await self.logs.bounds(it, 0))[1]) for it in partitions}

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

    async def _entry_at(
        self, partition: TopicPartition, position: int
    ) -> "tuple[Record | None, int] | None":
        """Return the first message of the entry that begins at `position`, and the entry's end;
        None if none begins there."""
        bytes_max = PARTITION_BYTES_MAX
        while bytes_max <= MESSAGE_BYTES_MAX:
            request = FetchRequest(partition.topic, partition.partition, position, bytes_max)
            [answer] = await self.logs.fetch([request])
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
    """Reads partitions of Kafka 0.7. See BatchReader."""

    def __init__(self, source: Source07) -> None:
        self._source = source
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._unjoined: Container[TopicPartition] = ()

    def assign(
        self,
        positions: Mapping[TopicPartition, MirrorPosition],
        topic_ids: Mapping[str, str],  # noqa: ARG002 - as in the Protocol
        unjoined: Container[TopicPartition] = (),
    ) -> None:
        """Read these partitions from now on, and no others. Entries of the `unjoined` ones are not
        joined."""
        self._unjoined = unjoined
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
        """Close connections and files; the next poll opens them again."""
        self._source.logs.close()

    async def poll(self) -> ReadBatches:
        """Return the next batches; raise UnreachableError if the server does not answer."""
        found = ReadBatches()
        await self._examine(found)
        active = [it for it, state in self._partitions.items() if state.error is None]
        is_fruitful = bool(found.stopped)
        for first in range(0, len(active), PARTITIONS_AT_ONCE_MAX):
            some = active[first : first + PARTITIONS_AT_ONCE_MAX]
            answers = await self._source.logs.fetch([self._request(it) for it in some])
            for partition, answer in zip(some, answers, strict=True):
                is_fruitful |= self._take(partition, answer, found)
        if not is_fruitful:
            await sleep(self._source.runtime.scheduler, _IDLE_MS)
            self._source.logs.look_again()
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
            joins = partition not in self._unjoined
            copied = copy_messages(answer.message_set, at, joins=joins)
        except CutMessageError as error:
            if len(answer.message_set) < state.bytes_max:
                if at + len(answer.message_set) >= state.end:
                    # The rest is yet to be written.
                    return False
                self._fail(partition, self._damaged(partition, error), found)
                return True
            state.bytes_max = error.bytes_needed
            if error.bytes_needed > MESSAGE_BYTES_MAX:
                self._fail(partition, self._damaged(partition, error), found)
            return True
        except CorruptDataError as error:
            self._fail(partition, self._damaged(partition, error), found)
            return True
        if copied.next_offset == at:
            return False
        state.position = replace(state.position, offset=copied.next_offset)
        state.bytes_max = PARTITION_BYTES_MAX
        found.ranges[partition] = copied
        return True

    async def _examine(self, found: ReadBatches) -> None:
        """Compare positions with what the logs have."""
        for partition, state in self._partitions.items():
            if state.is_examined or state.error is not None:
                continue
            start, state.end = await self._source.logs.bounds(partition, state.position.offset)
            loss = judge(state.position.offset, -1, None, SourceFacts(start, state.end))
            state.is_examined = True
            if loss is not None:
                self._fail(partition, loss, found)

    def _damaged(self, partition: TopicPartition, error: CorruptDataError) -> CorruptDataError:
        position = self._partitions[partition].position.offset
        return CorruptDataError(f"{self._source.logs.place(partition, position)}: {error}")

    def _fail(self, partition: TopicPartition, error: KctlError | Loss, found: ReadBatches) -> None:
        self._partitions[partition].error = error
        found.stopped[partition] = error


async def with_logs(
    source: Source07,
    target: "AdminClient",
    work: "Callable[[MirrorSource, AdminClient], Awaitable[T]]",
) -> T:
    """Return the result of `work(source, target)`, and close what the source has open."""
    try:
        return await work(source, target)
    finally:
        source.logs.close()
