"""Numbering: which partition of a target's topic gets which partition of a cluster of Kafka 0.7.

A partition of Kafka 0.7 belongs to one broker, and is called BROKER-PARTITION; the target numbers
the partitions of a topic from 0. Numbers are given in the order of brokers and partitions to what
has none yet, and a position of the mirror says whose it is: so a broker that is away or comes later
changes no number. Pure.
"""

from collections.abc import Iterable

from kctl.errors import UsageError
from kctl.mirror.formats import MirrorPosition
from kctl.model import TopicPartition
from kctl.store.consumer_znodes import BrokerPartition, parse_partition


class Numbering:
    """The numbers of a cluster's partitions; they only grow in number."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, BrokerPartition] = {}
        self._counts: dict[str, int] = {}

    def restore(self, positions: Iterable[MirrorPosition]) -> None:
        """Take the numbers of the positions that the mirror has committed; UsageError if they are
        those of another kind of source."""
        for each in positions:
            name = parse_partition(each.server_partition)
            if not isinstance(name, BrokerPartition):
                raise UsageError(
                    f"The mirror copies {each.source} from another source than this cluster",
                    hint="give this mirror another --name",
                )
            self._set(each.source, name)

    def add(self, topic: str, partitions: Iterable[BrokerPartition]) -> None:
        """Give numbers to those partitions of a topic that have none."""
        numbers = range(self._counts.get(topic, 0))
        known = {self._partitions.get(TopicPartition(topic, it)) for it in numbers}
        number = 0
        for partition in sorted(partitions):
            if partition in known:
                continue
            while TopicPartition(topic, number) in self._partitions:
                number += 1
            self._set(TopicPartition(topic, number), partition)

    def counts(self) -> dict[str, int]:
        """Return the numbers of partitions of all topics."""
        return dict(self._counts)

    def find(self, at: TopicPartition) -> BrokerPartition | None:
        """Return the partition with this number; None if none has it."""
        return self._partitions.get(at)

    def name(self, at: TopicPartition) -> str:
        """Return BROKER-PARTITION, empty for a number that none has."""
        found = self._partitions.get(at)
        return "" if found is None else str(found)

    def _set(self, at: TopicPartition, partition: BrokerPartition) -> None:
        self._partitions[at] = partition
        self._counts[at.topic] = max(self._counts.get(at.topic, 0), at.partition + 1)
