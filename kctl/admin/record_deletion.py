"""Deletes the oldest records of partitions: a plan per partition, and its execution.

Brokers raise the log start offset; whole segments below it are then removed from the disks.

Kafka 2.7: kafka.admin.DeleteRecordsCommand; KIP-107
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.admin.selection import chosen_among, is_pattern, matching
from kctl.admin.topic_configs import topic_config_values
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import Position, TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.offsets import ListedOffset

_CLEANUP_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class DeletionStep:
    """The deletion of one partition's records before `new_start_offset`."""

    partition: TopicPartition
    # None where the offsets are unknown.
    start_offset: int | None
    end_offset: int | None
    new_start_offset: int | None
    # Why nothing is deleted.
    error: KctlError | None = None

    @property
    def offset_count(self) -> int:
        """Return the number of offsets to delete, which is the largest possible number of records;
        0 if nothing is deleted."""
        if self.error is not None or self.start_offset is None or self.new_start_offset is None:
            return 0
        return max(0, self.new_start_offset - self.start_offset)


async def plan_record_deletion(
    admin: "AdminClient", scope: Mapping[str, Sequence[int] | None], before: Position
) -> list[DeletionStep]:
    """Return the steps that delete the records before a position, changing nothing.

    `scope` has the partitions by name or glob of topics; None selects all of a topic. A glob
    matches no internal topic. A partition without a leader, with a position outside its log, or
    of a topic without the cleanup policy `delete` has a step with an error. Raise NotFoundError
    for an unknown topic or partition, UnreachableError.
    """
    return await _plan(admin, dict.fromkeys(await _partitions(admin, scope), before))


async def plan_deletion_by_partition(
    admin: "AdminClient", before: Mapping[TopicPartition, Position]
) -> list[DeletionStep]:
    """Return the steps that delete, in each partition, the records before its own position.

    Nothing is changed. Steps have the same errors as those of `plan_record_deletion`. Raise
    NotFoundError for an unknown topic or partition, UnreachableError.
    """
    known = [
        TopicPartition(it.name, number.partition)
        for it in await admin.topics.list_topics()
        for number in it.partitions
    ]
    for partition in before:
        chosen_among(known, {partition.topic: [partition.partition]})
    return await _plan(admin, dict(sorted(before.items())))


async def delete_records(
    admin: "AdminClient", steps: Iterable[DeletionStep], timeout_ms: int
) -> list[DeletionStep]:
    """Delete the records of each step that deletes any; return the steps with their results.

    `new_start_offset` is then the log start offset that all live replicas have reached.
    """
    wanted = {
        step.partition: step.new_start_offset
        for step in steps
        if step.offset_count and step.new_start_offset is not None
    }
    found = {}
    if wanted:
        results = await admin.offsets.delete_records(wanted, timeout_ms=timeout_ms)
        found = {result.partition: result for result in results}
    done = []
    for step in steps:
        result = found.get(step.partition)
        if result is None:
            done.append(step)
        elif result.error is not None:
            done.append(replace(step, new_start_offset=None, error=_explained(result.error)))
        else:
            done.append(replace(step, new_start_offset=result.offset))
    return done


async def _partitions(
    admin: "AdminClient", scope: Mapping[str, Sequence[int] | None]
) -> list[TopicPartition]:
    topics = await admin.topics.list_topics()
    own = [topic.name for topic in topics if not topic.is_internal]
    chosen: dict[TopicPartition, None] = {}
    known = [TopicPartition(it.name, number.partition) for it in topics for number in it.partitions]
    for name, numbers in scope.items():
        names = matching(own, [name]) if is_pattern(name) else [name]
        chosen |= dict.fromkeys(chosen_among(known, dict.fromkeys(names, numbers)))
    return sorted(chosen)


async def _plan(
    admin: "AdminClient", before: Mapping[TopicPartition, Position]
) -> list[DeletionStep]:
    if not before:
        return []
    starts = await admin.offsets.earliest(before)
    ends = await admin.offsets.latest(before)
    targets = await admin.offsets.resolve(before)
    topics = {it.topic for it in before}
    policies = await topic_config_values(admin, topics, _CLEANUP_POLICY)
    return [_step(it, starts[it], ends[it], targets[it], policies.get(it.topic)) for it in before]


def _step(
    partition: TopicPartition,
    start: "ListedOffset",
    end: "ListedOffset",
    target: "ListedOffset",
    policy: str | None,
) -> DeletionStep:
    error = start.error or end.error or target.error
    if error is not None:
        return DeletionStep(partition, None, None, None, error)
    if policy is not None and "delete" not in policy:
        error = _not_deletable(f"its cleanup.policy is {policy}")
    elif target.offset > end.offset:
        error = KctlError(f"offset {target.offset} is after the end offset {end.offset}")
    if error is not None:
        return DeletionStep(partition, start.offset, end.offset, None, error)
    wanted = max(start.offset, target.offset)
    return DeletionStep(partition, start.offset, end.offset, wanted)


def _explained(error: KctlError) -> KctlError:
    if isinstance(error, ApiError) and error.code == ErrorCode.POLICY_VIOLATION:
        return KctlError(
            "brokers refuse to delete its records: its cleanup.policy does not include delete, or"
            " it follows another cluster (kctl link list)"
        )
    return error


def _not_deletable(reason: str) -> KctlError:
    return KctlError(f"the topic is compacted: {reason}, and brokers refuse to delete its records")
