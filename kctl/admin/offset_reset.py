"""Plans offset resets of groups, and executes them.

New offsets are limited to the range of the partition, and the plan says where that happened. Only a
group without members can be reset: an active member would overwrite the offset with its next
commit.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`resetOffsets`); KIP-122
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import TYPE_CHECKING

from kctl.client.offsets import (
    CommittedOffset,
    ListedOffset,
    OffsetsClient,
    PartitionResult,
)
from kctl.counts import counted
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import Position, TopicPartition
from kctl.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kctl.admin.group_descriptions import GroupDescription
    from kctl.client.router import Router


# The offset that a target stands for, None without a commit to shift, or why it is not known.
_Asked = int | KctlError | None


class ResetKind(Enum):
    """The kinds of targets: a position for all partitions, or relative to the committed offset."""

    POSITION = auto()
    # Forwards by `shift` records, or backwards if it is negative.
    SHIFT = auto()
    # The committed offset, limited to the partition's range; the end if none is committed.
    CURRENT = auto()
    # A given offset for each partition.
    EACH = auto()


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The target of a reset."""

    kind: ResetKind
    position: Position | None = None
    shift: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class ResetStep:
    """The reset of one partition; `note` says why the new offset differs from the target."""

    partition: TopicPartition
    current_offset: int | None
    new_offset: int | None
    note: str = ""
    error: KctlError | None = None


class OffsetReset:
    """Resets for the groups of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._offsets = OffsetsClient(router)

    async def plan(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        target: ResetTarget,
        committed: Mapping[TopicPartition, CommittedOffset] | None = None,
    ) -> list[ResetStep]:
        """Return the new offset of each partition (default: all with a commit) without changing
        anything; `committed` are the offsets of a group that keeps them elsewhere."""
        if committed is None:
            # Errors of partitions are only in the answer for named ones.
            named = None if partitions is None else sorted(set(partitions))
            committed = await self._offsets.committed(group_id, named)
            partitions = named
        wanted = sorted(set(committed if partitions is None else partitions))
        if not wanted:
            return []
        starts = await self._offsets.earliest(wanted)
        ends = await self._offsets.latest(wanted)
        asked = await self._asked_for(wanted, committed, ends, target)
        return [
            _step(partition, committed.get(partition), starts[partition], ends[partition], asked)
            for partition in wanted
        ]

    async def execute(
        self,
        group_id: str,
        steps: Iterable[ResetStep],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> list[PartitionResult]:
        """Commit the new offsets of `steps` with their metadata; return a result per partition."""
        offsets = {
            step.partition: step.new_offset
            for step in steps
            if step.error is None and step.new_offset is not None
        }
        return await self._offsets.commit(group_id, offsets, metadata) if offsets else []

    async def _asked_for(
        self,
        partitions: list[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
        ends: Mapping[TopicPartition, ListedOffset],
        target: ResetTarget,
    ) -> dict[TopicPartition, _Asked]:
        if target.position is not None:
            positions = dict.fromkeys(partitions, target.position)
            resolved = await self._offsets.resolve(positions)
            return {p: item.error or item.offset for p, item in resolved.items()}
        if target.kind is ResetKind.EACH:
            return {partition: target.offsets[partition] for partition in partitions}
        is_shift = target.kind is ResetKind.SHIFT
        asked: dict[TopicPartition, _Asked] = {}
        for partition in partitions:
            known = committed.get(partition)
            if known is not None and known.error is not None:
                asked[partition] = known.error
            elif known is not None and known.offset >= 0:
                asked[partition] = known.offset + (target.shift if is_shift else 0)
            else:
                asked[partition] = None if is_shift else ends[partition].offset
        return asked


def why_not_resettable(group: "GroupDescription") -> str | None:
    """Return why the offsets of `group` cannot be reset now, or None if they can."""
    missing = group.error is not None and group.error.code == ErrorCode.GROUP_ID_NOT_FOUND
    if missing or group.state in ("Empty", "Dead"):
        return None
    members = counted(len(group.members), "member")
    return f"Group {group.group_id} is {group.state} with {members}"


def _step(
    partition: TopicPartition,
    committed: CommittedOffset | None,
    start: ListedOffset,
    end: ListedOffset,
    asked: Mapping[TopicPartition, _Asked],
) -> ResetStep:
    current = committed.offset if committed is not None and committed.offset >= 0 else None
    error = start.error or end.error
    if error is not None:
        return ResetStep(partition, current, None, error=error)
    wanted = asked[partition]
    if isinstance(wanted, KctlError):
        return ResetStep(partition, current, None, error=wanted)
    if wanted is None:
        return ResetStep(partition, current, None, "no committed offset to shift")
    if wanted < start.offset:
        return ResetStep(partition, current, start.offset, f"{wanted} is before the start")
    if wanted > end.offset:
        return ResetStep(partition, current, end.offset, f"{wanted} is after the end")
    return ResetStep(partition, current, wanted)
