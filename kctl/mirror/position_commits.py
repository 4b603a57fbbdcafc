"""Commits the positions of a mirror's worker, in requests that every target takes.

A coordinator writes what a request commits as one batch of its topic, which Apache Kafka limits to
1 MB (`message.max.bytes`). A position has some 200 bytes there, so the first turn of a mirror with
five thousand partitions exceeds that.

Kafka 2.7: kafka.coordinator.group.GroupMetadataManager.storeOffsets
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.mirror.formats import MirrorPosition
from kctl.mirror.raw_batches import CopiedRange
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.client.group_member import GroupMember
    from kctl.client.producer_transaction import ProducerTransaction

COMMIT_BYTES_MAX = 256 << 10
# Of a position in a batch, beside its topic and its metadata: the group and some numbers.
_POSITION_BYTES = 300


def positions_after(
    positions: Mapping[TopicPartition, MirrorPosition],
    ranges: Mapping[TopicPartition, CopiedRange],
    changes: str,
) -> dict[TopicPartition, MirrorPosition]:
    """Return the positions after what was read, to whose records `changes` were applied; without
    any, those that were applied before are kept."""
    return {
        partition: replace(
            positions[partition],
            offset=found.next_offset,
            changes=changes or positions[partition].changes,
        )
        for partition, found in ranges.items()
    }


async def commit_positions(
    member: "GroupMember",
    transaction: "ProducerTransaction | None",
    positions: Mapping[TopicPartition, MirrorPosition],
) -> None:
    """Commit positions, by partition of the target, as `member` of the mirror's group: in
    `transaction`, to which the group was added, if there is one. Raise KctlError."""
    for part in _in_parts(positions):
        offsets = {partition: positions[partition].offset for partition in part}
        if transaction is None:
            await member.commit(offsets, part)
        else:
            await transaction.commit_offsets(
                member.group_id, offsets, part,
                member_id=member.member_id, generation_id=member.generation_id,
            )  # fmt: skip


def _in_parts(
    positions: Mapping[TopicPartition, MirrorPosition],
) -> Iterator[dict[TopicPartition, str]]:
    """Yield the metadata of positions, some at a time."""
    part: dict[TopicPartition, str] = {}
    size = 0
    for partition, at in positions.items():
        metadata = at.metadata()
        more = _POSITION_BYTES + len(partition.topic) + len(metadata)
        if part and size + more > COMMIT_BYTES_MAX:
            yield part
            part, size = {}, 0
        part[partition] = metadata
        size += more
    if part:
        yield part
