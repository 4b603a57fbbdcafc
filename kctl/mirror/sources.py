"""What a mirror needs of its source, whatever it is.

A source describes topics, answers where partitions begin and end, and makes readers of batches:
a cluster (`cluster_source`), a directory of segments (`directory_source`), or a server or directory
of Kafka 0.7 (`source07`).
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from kctl.client.offsets import ListedOffset
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.groups import FoundGroups, SelectsGroup
from kctl.mirror.loss import Loss
from kctl.mirror.mirror_plan import TopicFacts
from kctl.mirror.raw_batches import CopiedRange
from kctl.model import TopicPartition
from kctl.records.record import Record

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.numbering07 import Numbering


@dataclass(slots=True)
class ReadBatches:
    """What a poll returned."""

    ranges: dict[TopicPartition, CopiedRange] = field(default_factory=dict)
    # Partitions that stopped during the poll.
    stopped: dict[TopicPartition, KctlError | Loss] = field(default_factory=dict)
    # Partitions whose topic was unknown for a while, and may be another one of the same name.
    # Nothing was read of it yet.
    reappeared: set[TopicPartition] = field(default_factory=set)
    # Topics that have become unknown during the poll.
    unknown: set[str] = field(default_factory=set)


class BatchReader(Protocol):
    """Reads the committed records of partitions in order and once; a partition with a loss returns
    nothing until it is assigned again."""

    def assign(
        self,
        positions: Mapping[TopicPartition, MirrorPosition],
        topic_ids: Mapping[str, str],
        unjoined: Container[TopicPartition] = (),
    ) -> None:
        """Read these partitions from now on, and no others; `topic_ids` are those of today. Batches
        of the `unjoined` ones are not joined when they are built again."""
        ...

    @property
    def positions(self) -> dict[TopicPartition, MirrorPosition]:
        """Return the position after what has been returned, of each partition."""
        ...

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the ends that are known."""
        ...

    def stop(self, partitions: Iterable[TopicPartition], error: KctlError | Loss) -> None:
        """Read no more of these partitions."""
        ...

    async def poll(self) -> ReadBatches:
        """Return the next batches; none if none came within half a second or so."""
        ...

    def close(self) -> None:
        """Discard what is under way."""
        ...


class MirrorSource(Protocol):
    """Where a mirror copies from."""

    @property
    def admin(self) -> "AdminClient | None":
        """Return the client of the source's cluster; None if it is no cluster of Kafka 0.8 or
        later. Only a cluster says which topics exist."""
        ...

    @property
    def numbering(self) -> "Numbering | None":
        """Return the numbers of partitions that the mirror itself gives; None for all sources but
        clusters of Kafka 0.7."""
        ...

    async def groups(self, selects: SelectsGroup, names: Container[str]) -> FoundGroups:
        """Return what the groups that `selects` selects have committed for the topics `names`."""
        ...

    async def describe(self, selects: Callable[[str], bool]) -> tuple[str | None, list[TopicFacts]]:
        """Return the cluster's id, if it is known, and the selected topics by name."""
        ...

    def reader(self) -> BatchReader:
        """Return a reader without partitions."""
        ...

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the source, as it was described last, has the partition."""
        ...

    async def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the first offset of each partition."""
        ...

    async def ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offset after the last committed record of each partition."""
        ...

    async def records_at(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Record]:
        """Return the committed records at these offsets; without those that no longer exist."""
        ...

    async def next_offset(self, partition: TopicPartition, mapped_end: int) -> int:
        """Return the next offset to copy where the map ends at `mapped_end`."""
        ...
