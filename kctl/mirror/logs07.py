"""Logs07: what a mirror reads of Kafka 0.7: the logs of a server, or those of a directory.

Both answer fetches of byte positions as a server does, so one reader (`source07`) serves them.

Kafka 0.7: kafka.consumer.SimpleConsumer
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kctl.client.reading_connection07 import ReadingConnection07
from kctl.errors import UnreachableError, UsageError
from kctl.model import TopicPartition
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

if TYPE_CHECKING:
    from kctl.runtime.runtime import Runtime

# Partitions of a topic that are looked for.
PARTITIONS_MAX = 10_000
_GLOB_CHARACTERS = frozenset("*?[")


class Logs07(Protocol):
    """Logs of Kafka 0.7. What a method asks of a server may raise UnreachableError."""

    # Whether a topic may have more partitions elsewhere.
    is_part: bool

    async def partitions(self, selects: Callable[[str], bool]) -> dict[str, int]:
        """Return the numbers of partitions of the selected topics that have a message."""
        ...

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether there is such a partition of a topic that `partitions` returned."""
        ...

    async def bounds(self, partition: TopicPartition, position: int) -> tuple[int, int]:
        """Return the first position, and the one after the last message. If nothing is at
        `position` and something after it, the first is where that begins."""
        ...

    async def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchAnswer]:
        """Return the answers to `requests`, in their order."""
        ...

    def look_again(self) -> None:
        """Note what has come where a fetch does not see it; called when there was nothing to read.
        StorageError, UsageError."""
        ...

    def place(self, partition: TopicPartition, position: int) -> str:
        """Return how to name a position in a message to the user."""
        ...

    def close(self) -> None:
        """Release connections and files; the next fetch opens them again."""
        ...


class ServerLogs07:
    """The logs of the server at `host:port`. A server of 0.7 does not list its topics, so they are
    named; it answers a fetch from a partition that it cannot have with an error, so partitions are
    counted by asking."""

    is_part = False

    def __init__(
        self, runtime: "Runtime", host: str, port: int, topics: Sequence[str], timeout_ms: int
    ) -> None:
        """Read `topics`; UsageError if one is a pattern."""
        for topic in topics:
            if not _GLOB_CHARACTERS.isdisjoint(topic):
                raise UsageError(
                    f"A server of Kafka 0.7 does not list its topics: {topic} is a pattern",
                    hint="name each one: --topics clicks --topics orders",
                )
        self._connection = ReadingConnection07(runtime, host, port, timeout_ms)
        self._topics = list(dict.fromkeys(topics))
        self._counts: dict[str, int] = {}

    async def partitions(self, selects: Callable[[str], bool]) -> dict[str, int]:
        """Ask for each topic; one without a message looks like one that does not exist."""
        found: dict[str, int] = {}
        for topic in sorted(filter(selects, self._topics)):
            count = await self._partitions_of(topic)
            for number in range(count):
                if await self._offset(TopicPartition(topic, number), LATEST_TIME) > 0:
                    found[topic] = count
                    break
        self._counts |= found
        return found

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the topic has as many partitions."""
        return partition.partition < self._counts.get(partition.topic, 0)

    async def bounds(
        self,
        partition: TopicPartition,
        position: int,  # noqa: ARG002 - a server does not say what is missing between segments
    ) -> tuple[int, int]:
        """Ask for the first and the last position."""
        return (
            await self._offset(partition, EARLIEST_TIME),
            await self._offset(partition, LATEST_TIME),
        )

    async def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchAnswer]:
        """Send one request."""
        if len(requests) == 1:
            return [decode_fetch_answer(await self._connection.ask(requests[0]))]
        request = MultiFetchRequest(list(requests))
        answers = decode_multifetch_answer(await self._connection.ask(request))
        if len(answers) != len(requests):
            raise UnreachableError("the server of Kafka 0.7 answered less than it was asked")
        return answers

    def look_again(self) -> None:
        """Do nothing: a server answers each fetch with what it has."""

    def place(
        self,
        partition: TopicPartition,  # noqa: ARG002 - as in the Protocol
        position: int,
    ) -> str:
        """Name the position."""
        return f"at position {position}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def _offset(self, partition: TopicPartition, time_ms: int) -> int:
        found = await self._connection.offsets_before(
            partition.topic, partition.partition, time_ms, 1
        )
        return found[0] if found else 0

    async def _partitions_of(self, topic: str) -> int:
        for number in range(PARTITIONS_MAX):
            [answer] = await self.fetch([FetchRequest(topic, number, 0, 1)])
            if answer.error == Kafka07Error.WRONG_PARTITION:
                return number
            if answer.error == Kafka07Error.UNKNOWN:
                return 0
        return PARTITIONS_MAX
