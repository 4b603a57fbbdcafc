"""Carries the committed offsets of groups over to the target, translated exactly.

A group's offset in the source becomes the offset in the target of the first record that it has not
read. An offset beyond what is copied becomes the end of what is copied, and moves on with the
mirror. In a partition of which nothing was copied, one at the end becomes the end of the target, if
that has no records. A group that has members in the target is left alone, and none goes back.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorCheckpointTask; KIP-545
"""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import PREFIX
from kctl.mirror.offset_map import OffsetMap
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.offsets import CommittedOffset

# Committed offsets by group and partition.
CommittedByGroup = Mapping[str, Mapping[TopicPartition, "CommittedOffset"]]
# Selects groups by their names.
SelectsGroup = Callable[[str], bool]

_METADATA = "kctl-mirror"
# How a coordinator refuses offsets of a group that has members.
_OF_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """What the groups of a source have committed, and why some of them could not be read."""

    committed: CommittedByGroup = field(default_factory=dict)
    errors: Sequence[KctlError] = ()


@dataclass(frozen=True, slots=True)
class CarriedOffset:
    """The offset of a group that was committed in the target, or why it was not."""

    group: str
    source: TopicPartition
    target: TopicPartition
    source_offset: int
    target_offset: int
    error: KctlError | None = None


@dataclass(frozen=True, slots=True)
class NothingCopied:
    """A partition of which nothing was copied, and whose target has no records, either."""

    # The next offset to copy.
    position: int
    # Where the next record is going to be in the target.
    target_end: int


def translated(
    committed: Mapping[TopicPartition, int],
    present: Mapping[TopicPartition, int],
    maps: Mapping[TopicPartition, OffsetMap],
    names: Mapping[str, str],
    empty: Mapping[TopicPartition, NothingCopied],
) -> dict[TopicPartition, tuple[TopicPartition, int]]:
    """Return the offsets to commit, by partition of the target, with the source's partitions.

    `committed` are a group's offsets in the source, `present` those that it has in the target;
    `names` are topics of the target by topics of the source, and `empty` partitions of the source.
    """
    found: dict[TopicPartition, tuple[TopicPartition, int]] = {}
    for source, offset in committed.items():
        if source.topic not in names:
            continue
        target = TopicPartition(names[source.topic], source.partition)
        nothing = empty.get(source)
        translation = None
        if nothing is not None and offset >= nothing.position:
            translation = nothing.target_end
        elif source in maps:
            translation = maps[source].to_target(offset)
        if translation is not None and translation > present.get(target, -1):
            found[target] = (source, translation)
    return found


_NONE: Mapping[TopicPartition, NothingCopied] = {}


async def read_groups(
    source: "AdminClient", selects: SelectsGroup, names: Container[str]
) -> CommittedByGroup:
    """Return what the groups that `selects` selects have committed for the topics `names`."""
    listed = await source.groups.list_groups([], [])
    groups = [
        group.group_id
        for group in listed.groups
        if group.protocol_type in ("consumer", "") and not group.group_id.startswith(PREFIX)
    ]
    found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for group in sorted(filter(selects, groups)):
        committed = await source.offsets.committed(group)
        offsets = {
            partition: it
            for partition, it in committed.items()
            if it.error is None and it.offset >= 0 and partition.topic in names
        }
        if offsets:
            found[group] = offsets
    return found


async def ends_of_empty(
    target: "AdminClient", partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end offsets of those of `partitions` that exist and have no records. Where others
    have written, what of it a group has read is unknown."""
    if not partitions:
        return {}
    starts = await target.offsets.earliest(partitions)
    ends = await target.offsets.latest(partitions)
    return {
        it: ends[it].offset
        for it in partitions
        if starts[it].error is None
        and ends[it].error is None
        and starts[it].offset == ends[it].offset
    }


async def carry_groups(
    groups: CommittedByGroup,
    target: "AdminClient",
    maps: Mapping[TopicPartition, OffsetMap],
    names: Mapping[str, str],
    empty: Mapping[TopicPartition, NothingCopied] = _NONE,
) -> list[CarriedOffset]:
    """Commit the offsets of `groups`, translated; return what was committed."""
    carried: list[CarriedOffset] = []
    for group, committed in groups.items():
        offsets = {partition: it.offset for partition, it in committed.items()}
        there = await target.offsets.committed(group)
        present = {p: it.offset for p, it in there.items() if it.error is None}
        wanted = translated(offsets, present, maps, names, empty)
        if not wanted:
            continue
        moved = {partition: at for partition, (_, at) in wanted.items()}
        results = await target.offsets.commit(group, moved, dict.fromkeys(moved, _METADATA))
        for result in results:
            origin, at = wanted[result.partition]
            error = result.error
            if isinstance(error, ApiError) and error.code in _OF_MEMBERS:
                error = KctlError("the group has members in the target: its offsets stay")
            carried.append(
                CarriedOffset(group, origin, result.partition, offsets[origin], at, error)
            )
    return carried
