"""Changes the committed offsets of groups: resets, copies, imports and deletions.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`--export`, `deleteOffsets`); KIP-496
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.admin.offset_reset import (
    ResetKind,
    ResetStep,
    ResetTarget,
    why_not_resettable,
)
from kctl.admin.selection import did_you_mean, select_groups, select_partitions
from kctl.errors import KctlError, NotFoundError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.offsets import CommittedOffset

# Topic -> its wanted partitions; None selects all of them.
Scope = Mapping[str, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """The steps that change committed offsets, by group."""

    steps: Mapping[str, list[ResetStep]]
    # The metadata that is committed with the offsets.
    metadata: Mapping[TopicPartition, str] | None = None

    @property
    def possible(self) -> int:
        """Return the number of steps that commit an offset."""
        steps = (step for found in self.steps.values() for step in found)
        return sum(step.error is None and step.new_offset is not None for step in steps)


async def committed_offsets(
    admin: "AdminClient", group_id: str, scope: Scope | None = None
) -> "dict[TopicPartition, CommittedOffset]":
    """Return the committed offsets of a group in `scope`, or all.

    Raise KctlError if the group does not exist or has committed none, UsageError if it has none for
    a topic of the scope, ApiError.
    """
    committed = await _committed(admin, group_id)
    error = next((item.error for item in committed.values() if item.error is not None), None)
    if error is not None:
        raise error
    for topic in scope or ():
        if not any(partition.topic == topic for partition in committed):
            hint = did_you_mean(topic, {partition.topic for partition in committed})
            message = f"Group {group_id} has no committed offsets for topic {topic}"
            raise NotFoundError(message, hint=hint)
    return {tp: item for tp, item in committed.items() if not scope or _is_in(tp, scope)}


async def export_offsets(
    admin: "AdminClient", names: Sequence[str], scope: Scope | None = None
) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed offsets, in `scope`, of each group that names and globs select.

    Raise KctlError if a broker does not list its groups, and what `committed_offsets` raises.
    """
    return {
        name: {
            partition: item.offset
            for partition, item in (await committed_offsets(admin, name, scope)).items()
        }
        for name in await select_groups(admin, names, must_be_complete=True)
    }


async def plan_reset(
    admin: "AdminClient", group_id: str, scope: Scope | None, target: ResetTarget
) -> OffsetPlan:
    """Return the steps that reset a group to a target in `scope`, changing nothing.

    Without a scope, the partitions of a target for each partition are reset, or otherwise all with
    a committed offset. Raise KctlError if the group has members, UsageError for an unknown
    partition.
    """
    await refuse_members(admin, [group_id])
    partitions: list[TopicPartition] | None = None
    if scope:
        described = await select_partitions(admin, scope)
        partitions = [TopicPartition(it.topic, it.partition) for it in described]
    elif target.kind is ResetKind.EACH:
        partitions = list(target.offsets)
    return OffsetPlan({group_id: await admin.offset_reset.plan(group_id, partitions, target)})


async def plan_import(
    admin: "AdminClient", offsets: Mapping[str, Mapping[TopicPartition, int]]
) -> OffsetPlan:
    """Return the steps that commit these offsets, by group, changing nothing.

    Raise KctlError if a group has members.
    """
    await refuse_members(admin, offsets)
    return OffsetPlan({name: await _each(admin, name, found) for name, found in offsets.items()})


async def plan_clone(
    admin: "AdminClient", source: str, target: str, scope: Scope | None = None
) -> OffsetPlan:
    """Return the steps that commit the offsets of group `source` for group `target`.

    Raise KctlError if `target` has members, and what `committed_offsets` raises.
    """
    committed = await committed_offsets(admin, source, scope)
    await refuse_members(admin, [target])
    offsets = {partition: item.offset for partition, item in committed.items()}
    metadata = {partition: item.metadata for partition, item in committed.items()}
    return OffsetPlan({target: await _each(admin, target, offsets)}, metadata)


async def execute_plan(
    admin: "AdminClient", plan: OffsetPlan
) -> dict[str, dict[TopicPartition, KctlError | None]]:
    """Commit the new offsets of a plan; return the error of each partition, or None, by group."""
    return {
        name: {
            result.partition: result.error
            for result in await admin.offset_reset.execute(name, steps, plan.metadata)
        }
        for name, steps in plan.steps.items()
    }


async def _each(
    admin: "AdminClient", group_id: str, offsets: Mapping[TopicPartition, int]
) -> list[ResetStep]:
    target = ResetTarget(ResetKind.EACH, offsets=offsets)
    return await admin.offset_reset.plan(group_id, offsets, target)


async def refuse_members(admin: "AdminClient", group_ids: Iterable[str]) -> None:
    """Raise KctlError if one of the groups has members: they would overwrite its offsets."""
    for group in await admin.groups.describe(group_ids):
        reason = why_not_resettable(group)
        if reason:
            raise KctlError(
                reason, hint="stop its consumers first: they would overwrite the offsets"
            )


async def plan_deletion(
    admin: "AdminClient", group_id: str, scope: Scope | None = None
) -> dict[TopicPartition, int]:
    """Return the committed offsets, in `scope`, that `delete_committed` would delete.

    Raise KctlError if the group does not exist or has committed none, UsageError for a topic or
    partition of the scope without a committed offset.
    """
    committed = await _committed(admin, group_id)
    chosen = _chosen(sorted(committed), scope) if scope else sorted(committed)
    return {tp: committed[tp].offset for tp in chosen}


async def _committed(
    admin: "AdminClient", group_id: str
) -> "dict[TopicPartition, CommittedOffset]":
    committed = await admin.offsets.committed(group_id)
    if committed:
        return committed
    known = [group.group_id for group in (await admin.groups.list_groups()).groups]
    if group_id in known:
        raise KctlError(f"Group {group_id} has no committed offsets")
    raise not_found("group", group_id, known)


def _chosen(committed: Sequence[TopicPartition], scope: Scope) -> list[TopicPartition]:
    chosen: list[TopicPartition] = []
    for topic, numbers in scope.items():
        known = {it.partition: it for it in committed if it.topic == topic}
        if not known:
            hint = did_you_mean(topic, {it.topic for it in committed})
            raise NotFoundError(f"No committed offsets for topic {topic}", hint=hint)
        for number in known if numbers is None else numbers:
            if number not in known:
                raise NotFoundError(f"No committed offset for partition {number} of {topic}")
            chosen.append(known[number])
    return chosen


def _is_in(partition: TopicPartition, scope: Scope) -> bool:
    numbers = scope.get(partition.topic, ())
    return numbers is None or partition.partition in numbers
