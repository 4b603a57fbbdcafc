"""SourceEnds: where a mirror's worker stops if it copies until the end, and what has to wait.

The ends are those at which the partitions were found first. A partition whose leader is away has
none now: it waits, and the others are copied meanwhile.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kctl.client.retry import WRONG_LEADER
from kctl.errors import KctlError, UnreachableError
from kctl.mirror.settings import MirroredTopics
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.mirror.sources import MirrorSource


class SourceEnds:
    """The ends of the partitions of `source` that were found; by partition of the source."""

    def __init__(self, source: "MirrorSource") -> None:
        self._source = source
        self._ends: dict[TopicPartition, int] = {}

    async def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KctlError]:
        """Find the ends of these partitions; return why some have to wait. Raise ApiError if the
        source cannot say where partitions end."""
        waiting: dict[TopicPartition, KctlError] = {}
        for partition, end in (await self._source.ends(partitions)).items():
            if end.error is None:
                self._ends.setdefault(partition, end.offset)
            elif is_code(end.error, ErrorCode.UNSUPPORTED_VERSION):
                raise end.error
            # A topic that is not known is judged by the reader.
            elif may_pass(end.error) and not is_code(
                end.error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ):
                waiting[partition] = end.error
        return waiting

    def get(self, partition: TopicPartition) -> int:
        """Return where a partition ends; -1 if that is not known."""
        return self._ends.get(partition, -1)

    def forget(self, partition: TopicPartition) -> None:
        """Find the end of a partition again: it begins elsewhere."""
        self._ends.pop(partition, None)

    def is_reached(
        self, partition: TopicPartition, offset: int, read_ends: Mapping[TopicPartition, int]
    ) -> bool:
        """Return whether a partition is copied to its end; the first one in `read_ends`, which a
        reader has met, counts if none was found before."""
        if partition not in self._ends and partition in read_ends:
            self._ends[partition] = read_ends[partition]
        return partition in self._ends and offset >= self._ends[partition]

    async def goal(self, topics: MirroredTopics) -> dict[TopicPartition, int]:
        """Return the ends of all partitions that have something to copy, by partition of the
        target; those that cannot be read now are left to their worker."""
        wanted = [
            TopicPartition(topic, number)
            for topic, count in topics.partitions.items()
            for number in range(count)
            if self._source.holds(TopicPartition(topic, number))
        ]
        starts = await self._source.starts(wanted)
        ends = await self._source.ends(wanted)
        goal: dict[TopicPartition, int] = {}
        for it, end in ends.items():
            if end.error is None and starts[it].error is None and starts[it].offset < end.offset:
                target = TopicPartition(topics.targets[it.topic], it.partition)
                goal[target] = self._ends.setdefault(it, end.offset)
        return goal


def may_pass(error: KctlError) -> bool:
    """Return whether a partition of the source has no leader now, or one that does not answer."""
    if isinstance(error, ApiError):
        return error.code in WRONG_LEADER
    return isinstance(error, UnreachableError)


def is_code(error: KctlError, code: ErrorCode) -> bool:
    """Return whether a broker answered with `code`."""
    return isinstance(error, ApiError) and error.code == code
