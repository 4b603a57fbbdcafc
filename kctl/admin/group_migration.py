"""Writes the committed offsets of groups in ZooKeeper, or moves them to Kafka or back.

    plan       read both stores; refuse a group with live members on either side
    record     the caller keeps `undo_document`, what the target had, before anything is changed
    execute    check for members once more, write the offsets that differ, read them back, compare
    rollback   the same with the recorded offsets: what the target had is written or deleted

The source is never changed, so a migration that is killed can simply be run again. An offset that
has changed at the target since the migration is left alone by the rollback, and reported.

Offsets of Kafka 0.7 are positions in bytes, which have no meaning in Kafka. They are moved only
with a function that translates them, such as the map of a mirror that has copied the topics.
An import and a reset write offsets in ZooKeeper in the same way, without a record.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kctl.admin.json_file import parse_items, typed
from kctl.admin.offset_reset import why_not_resettable
from kctl.admin.selection import select_groups, select_partitions
from kctl.admin.zookeeper_groups import ZooKeeperGroup, ZooKeeperGroups
from kctl.client.offsets import CommittedOffset
from kctl.errors import KctlError, UsageError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.future import gather
from kctl.store.consumer_znodes import ConsumedPartition, Layout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from kctl.admin.admin_client import AdminClient
    from kctl.admin.committed_offsets import Scope
    from kctl.admin.offset_reset import ResetTarget

_HINT = "it is a file that kctl group migrate wrote"
# Groups whose coordinators are asked at the same time.
GROUPS_AT_ONCE = 50


class OffsetStore(StrEnum):
    """Where the offsets of groups are kept."""

    KAFKA = "kafka"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """Where an offset of Kafka 0.7 leads to, or why that is not known."""

    partition: ConsumedPartition | None
    offset: int | None
    reason: str = ""


# Takes a partition of Kafka 0.7 and a position in it.
Translate07 = Callable[[ConsumedPartition, int], TranslatedOffset]


@dataclass(slots=True)
class MigrationStep:
    """The offset of one partition at the source and at the target, None where there is none."""

    partition: ConsumedPartition
    # The offset that the target is to have; None: none, in a rollback.
    wanted: int | None
    at_target: int | None
    note: str = ""
    error: KctlError | None = None

    @property
    def is_change(self) -> bool:
        """Return whether the target has to be written."""
        return self.error is None and self.wanted != self.at_target


@dataclass(slots=True)
class MigrationPlan:
    """The steps of each group, and why some groups are left out."""

    to: OffsetStore
    steps: dict[str, list[MigrationStep]] = field(default_factory=dict)
    refused: dict[str, KctlError] = field(default_factory=dict)
    # The versions of the znodes of offsets that were read.
    versions: dict[str, dict[ConsumedPartition, int | None]] = field(default_factory=dict)

    @property
    def changes(self) -> int:
        """Return the number of offsets to write."""
        return sum(step.is_change for steps in self.steps.values() for step in steps)


class GroupMigration:
    """Migrations between one cluster and its ZooKeeper.

    With `has_brokers` false, only ZooKeeper is asked and written.
    """

    def __init__(
        self, admin: "AdminClient", groups: ZooKeeperGroups, *, has_brokers: bool = True
    ) -> None:
        self.admin = admin
        self._groups = groups
        self._has_brokers = has_brokers

    async def plan(
        self, names: "Sequence[str]", to: OffsetStore, translate: Translate07 | None = None
    ) -> MigrationPlan:
        """Return what a migration of the groups that names and globs select would write; positions
        of Kafka 0.7 by `translate`.

        Raise NotFoundError for a name without offsets at the source, ApiError.
        """
        group_ids = await self._select(names, to)
        in_zookeeper = await self._groups.read(group_ids)
        if to is OffsetStore.KAFKA:
            # Of a glob, groups that never committed an offset to ZooKeeper are not meant.
            group_ids = [
                name
                for name in group_ids
                if name in names or (name in in_zookeeper and in_zookeeper[name].partitions)
            ]
        in_kafka = await self._committed(group_ids)
        plan = MigrationPlan(to)
        for name in group_ids:
            kafka = _of_kafka(in_kafka[name])
            group = in_zookeeper.get(name)
            zookeeper = group.offsets if group is not None else {}
            is_to_kafka = to is OffsetStore.KAFKA
            source, target = (zookeeper, kafka) if is_to_kafka else (kafka, zookeeper)
            if not source and not (group and is_to_kafka and _unreadable(group)):
                raise await self._without_offsets(name, to)
            plan.steps[name] = _without_doubles(
                [
                    _step(it, source[it], target, translate)
                    for it in sorted(source, key=lambda it: it.sort_key)
                ]
            )
            if group is not None and is_to_kafka:
                plan.steps[name] += _unreadable(group)
        self._note_versions(plan, in_zookeeper)
        await self._check_partitions(plan)
        await self._refuse_members(plan, in_zookeeper)
        return plan

    async def plan_rollback(self, document: "UndoDocument") -> MigrationPlan:
        """Return what restores the offsets that the target had before a migration."""
        in_zookeeper = await self._groups.read(document.offsets)
        plan = MigrationPlan(document.to)
        is_kafka = document.to is OffsetStore.KAFKA
        in_kafka = await self._committed(document.offsets) if is_kafka else {}
        for name, offsets in document.offsets.items():
            if is_kafka:
                now: Mapping[ConsumedPartition, int] = _of_kafka(in_kafka[name])
            else:
                now = in_zookeeper[name].offsets if name in in_zookeeper else {}
            plan.steps[name] = [
                _rollback_step(it, before, after, now.get(it))
                for it, (before, after) in offsets.items()
            ]
        self._note_versions(plan, in_zookeeper)
        await self._refuse_members(plan, in_zookeeper)
        return plan

    async def plan_import(
        self, offsets: Mapping[str, Mapping[ConsumedPartition, int]]
    ) -> MigrationPlan:
        """Return what commits these offsets, by group, to ZooKeeper."""
        in_zookeeper = await self._groups.read(offsets)
        plan = MigrationPlan(OffsetStore.ZOOKEEPER)
        for name, wanted in offsets.items():
            now = in_zookeeper[name].offsets if name in in_zookeeper else {}
            plan.steps[name] = [
                _step_to(it, wanted[it], now.get(it))
                for it in sorted(wanted, key=lambda it: it.sort_key)
            ]
        self._note_versions(plan, in_zookeeper)
        await self._refuse_members(plan, in_zookeeper)
        return plan

    async def plan_reset(
        self, name: str, scope: "Scope | None", target: "ResetTarget"
    ) -> MigrationPlan:
        """Return what resets a group's offsets in ZooKeeper, in `scope` or where it has any.

        Raise NotFoundError if there is no such group, UsageError for one of Kafka 0.7, whose
        offsets are no numbers of records.
        """
        found = (await self._groups.read([name])).get(name)
        if found is None:
            raise not_found("group", name, await self._groups.all_ids())
        is_07 = found.layout is Layout.KAFKA_0_7
        if is_07 or any(it.topic_partition is None for it in found.offsets):
            raise UsageError(
                f"The offsets of group {name} are positions in bytes of Kafka 0.7",
                hint="kctl group import-offsets writes them from a file",
            )
        committed = {_in_kafka(it): CommittedOffset(n) for it, n in found.offsets.items()}
        if scope:
            described = await select_partitions(self.admin, scope)
            partitions = [TopicPartition(it.topic, it.partition) for it in described]
        else:
            partitions = list(target.offsets or committed)
        resets = await self.admin.offset_reset.plan(name, partitions, target, committed)
        plan = MigrationPlan(OffsetStore.ZOOKEEPER)
        plan.steps[name] = [
            MigrationStep(
                ConsumedPartition(*it.partition),
                it.current_offset if it.new_offset is None else it.new_offset,
                it.current_offset,
                it.note,
                it.error,
            )
            for it in resets
        ]
        self._note_versions(plan, {name: found})
        await self._refuse_members(plan, {name: found})
        return plan

    async def execute(
        self, plan: MigrationPlan, record: "Callable[[MigrationPlan], object] | None" = None
    ) -> MigrationPlan:
        """Write the offsets of a plan and read them back; return it with the errors of steps.

        Members that have joined since the plan was made are found first. If there is something to
        write, `record` is called before anything is changed.
        """
        await self._refuse_members(plan, await self._groups.read_members(plan.steps))
        if record is not None and plan.changes:
            record(plan)
        changed = [
            (name, step) for name, steps in plan.steps.items() for step in steps if step.is_change
        ]
        if plan.to is OffsetStore.KAFKA:
            await self._in_parts(
                plan.steps, lambda name: self._write_to_kafka(plan.steps[name], name)
            )
            found = {
                name: _of_kafka(it) for name, it in (await self._committed(plan.steps)).items()
            }
        else:
            await self._in_parts(plan.steps, lambda name: self._write_to_zookeeper(plan, name))
            read = await self._groups.read(plan.steps)
            found = {name: read[name].offsets if name in read else {} for name in plan.steps}
        for name, step in changed:
            _compare(step, found[name].get(step.partition))
        return plan

    async def _select(self, names: "Sequence[str]", to: OffsetStore) -> list[str]:
        if to is OffsetStore.ZOOKEEPER:
            return await select_groups(self.admin, names, must_be_complete=True)
        return await self._groups.select(names, must_match=True)

    async def _without_offsets(self, name: str, to: OffsetStore) -> KctlError:
        if to is OffsetStore.KAFKA:
            known = await self._groups.all_ids()
            place = "ZooKeeper"
        else:
            known = [it.group_id for it in (await self.admin.groups.list_groups()).groups]
            place = "Kafka"
        if name in known:
            return KctlError(f"Group {name} has no committed offsets in {place}")
        return not_found("group", name, known)

    def _note_versions(
        self, plan: MigrationPlan, in_zookeeper: Mapping[str, ZooKeeperGroup]
    ) -> None:
        for name in plan.steps:
            group = in_zookeeper.get(name)
            progress = group.partitions if group is not None else {}
            plan.versions[name] = {it: found.version for it, found in progress.items()}

    async def _check_partitions(self, plan: MigrationPlan) -> None:
        """Put an error on steps for partitions that the cluster does not have."""
        topics = sorted({it.partition.topic for steps in plan.steps.values() for it in steps})
        if not topics:
            return
        view = await self.admin.router.refresh(topics)
        exist = {topic: frozenset(view.partitions_of(topic)) for topic in topics}
        for steps in plan.steps.values():
            for step in steps:
                if (
                    step.error is None
                    and step.partition.partition not in exist[step.partition.topic]
                ):
                    step.error = KctlError("the cluster has no such partition")

    async def _refuse_members(
        self, plan: MigrationPlan, in_zookeeper: Mapping[str, ZooKeeperGroup]
    ) -> None:
        """Move groups with live members, on either side, from the steps to the refused ones."""
        names = list(plan.steps)
        if not self._has_brokers:
            for name, group in in_zookeeper.items():
                if name in plan.steps and (reason := group.why_not_at_rest):
                    self._refuse(plan, name, reason)
            return
        described = await self._in_parts(names, lambda name: self.admin.groups.describe([name]))
        for name, (group,) in zip(names, described, strict=True):
            here = in_zookeeper.get(name)
            reason = why_not_resettable(group)
            if reason is not None and group.members:
                ids = ", ".join(it.member_id for it in group.members)
                reason = f"Group {name} has live members in Kafka: {ids}"
            reason = (here.why_not_at_rest if here is not None else None) or reason
            if reason is not None:
                self._refuse(plan, name, reason)

    @staticmethod
    def _refuse(plan: MigrationPlan, name: str, reason: str) -> None:
        del plan.steps[name]
        plan.refused[name] = KctlError(reason, hint="stop its consumers first")

    async def _committed(
        self, names: "Iterable[str]"
    ) -> "dict[str, dict[TopicPartition, CommittedOffset]]":
        wanted = list(names)
        answers = await self._in_parts(wanted, self.admin.offsets.committed)
        return dict(zip(wanted, answers, strict=True))

    async def _write_to_kafka(self, steps: "Sequence[MigrationStep]", name: str) -> None:
        changed = {_in_kafka(it.partition): it for it in steps if it.is_change}
        commits = {it: step.wanted for it, step in changed.items() if step.wanted is not None}
        gone = [it for it, step in changed.items() if step.wanted is None]
        try:
            results = await self.admin.offsets.commit(name, commits) if commits else []
            results += await self.admin.offsets.delete_committed(name, gone) if gone else []
        except KctlError as error:
            for step in changed.values():
                step.error = error
            return
        for result in results:
            changed[result.partition].error = result.error

    async def _write_to_zookeeper(self, plan: MigrationPlan, name: str) -> None:
        changed = {it.partition: it for it in plan.steps[name] if it.is_change}
        offsets = {it: step.wanted for it, step in changed.items()}
        try:
            errors = await self._groups.write_offsets(name, offsets, plan.versions[name])
        except KctlError as error:
            errors = dict.fromkeys(offsets, error)
        for partition, step in changed.items():
            step.error = errors[partition]

    async def _in_parts(self, names: "Iterable[str]", ask: "Any") -> list[Any]:
        """Ask for each group, GROUPS_AT_ONCE of them at a time; return the answers in order."""
        wanted = list(names)
        answers: list[Any] = []
        for start in range(0, len(wanted), GROUPS_AT_ONCE):
            part: list[Awaitable[Any]] = [ask(it) for it in wanted[start : start + GROUPS_AT_ONCE]]
            answers += await gather(self.admin.router.runtime.scheduler, part)
        return answers


def _of_kafka(
    committed: "Mapping[TopicPartition, CommittedOffset]",
) -> dict[ConsumedPartition, int]:
    return {
        ConsumedPartition(*partition): it.offset
        for partition, it in committed.items()
        if it.error is None and it.offset >= 0
    }


def _in_kafka(partition: ConsumedPartition) -> TopicPartition:
    found = partition.topic_partition
    if found is None:
        raise ValueError(f"{partition} is a partition of Kafka 0.7")
    return found


def _unreadable(group: ZooKeeperGroup) -> list[MigrationStep]:
    return [
        MigrationStep(it, None, None, error=progress.error)
        for it, progress in group.partitions.items()
        if progress.error is not None
    ]


def _step(
    partition: ConsumedPartition,
    wanted: int,
    target: Mapping[ConsumedPartition, int],
    translate: Translate07 | None,
) -> MigrationStep:
    if partition.topic_partition is not None:
        return _step_to(partition, wanted, target.get(partition))
    if translate is None:
        error = KctlError("a position in bytes of Kafka 0.7: only the map of a --mirror moves it")
        return MigrationStep(partition, wanted, None, error=error)
    found = translate(partition, wanted)
    if found.partition is None or found.offset is None:
        return MigrationStep(partition, wanted, None, error=KctlError(found.reason))
    step = _step_to(found.partition, found.offset, target.get(found.partition))
    step.note = "; ".join(filter(None, [f"byte {wanted} of {partition}", step.note]))
    return step


def _without_doubles(steps: list[MigrationStep]) -> list[MigrationStep]:
    """Put an error on steps for a partition that an earlier step is for."""
    seen: dict[ConsumedPartition, None] = {}
    for step in steps:
        if step.error is None and step.partition in seen:
            step.error = KctlError(f"another position leads to {step.partition}, too")
        elif step.error is None:
            seen[step.partition] = None
    return steps


def _step_to(partition: ConsumedPartition, wanted: int, at_target: int | None) -> MigrationStep:
    step = MigrationStep(partition, wanted, at_target)
    if at_target is not None and at_target > wanted:
        step.note = f"goes back by {at_target - wanted}"
    elif at_target == wanted:
        step.note = "equal already"
    return step


def _rollback_step(
    partition: ConsumedPartition, before: int | None, after: int, now: int | None
) -> MigrationStep:
    step = MigrationStep(partition, before, now)
    if now == before:
        step.note = "not changed"
    elif now != after:
        step.error = KctlError(f"is {now} now, not {after}: it has changed since the migration")
    return step


def _compare(step: MigrationStep, found: int | None) -> None:
    """Settle a step by what the target has now: an error of a write that was made is none."""
    if found == step.wanted:
        step.error = None
    elif step.error is None:
        step.error = KctlError(f"reads back as {found}, not {step.wanted}")


# --- the way back


@dataclass(frozen=True, slots=True)
class UndoDocument:
    """What a migration replaced: by group and partition the offset before (None: none) and
    after."""

    to: OffsetStore
    offsets: Mapping[str, Mapping[ConsumedPartition, tuple[int | None, int]]]


def undo_document(plan: MigrationPlan) -> str:
    """Return the text of the file that `parse_undo_document` reads."""
    groups = [
        {
            "group": name,
            "offsets": [
                {
                    "topic": step.partition.topic,
                    "partition": step.partition.partition,
                    "before": step.at_target,
                    "after": step.wanted,
                }
                for step in steps
                if step.is_change
            ],
        }
        for name, steps in plan.steps.items()
        if any(step.is_change for step in steps)
    ]
    # One line for each group: Python's encoder is ten times as fast without indentation.
    lines = ",\n".join(map(json.dumps, groups))
    return f'{{"version": 1, "migrated_to": {json.dumps(plan.to)}, "groups": [\n{lines}\n]}}\n'


def parse_undo_document(text: str, source: str) -> UndoDocument:
    """Return the content of a file of `undo_document`; raise UsageError, naming `source`."""
    groups = parse_items(text, "groups", source, _HINT)
    to = json.loads(text).get("migrated_to")
    if to not in list(OffsetStore):
        raise UsageError(f"{source} is no file of a migration", hint=_HINT)
    offsets: dict[str, dict[ConsumedPartition, tuple[int | None, int]]] = {}
    for number, group in enumerate(groups):
        place = f"{source}, group {number + 1}"
        known = offsets.setdefault(typed(group, "group", str, place), {})
        for item in typed(group, "offsets", list, place):
            if not isinstance(item, dict):
                raise UsageError(f"{place}: an offset is not an object", hint=_HINT)
            partition = ConsumedPartition(
                typed(item, "topic", str, place), typed(item, "partition", int, place)
            )
            before = None if item.get("before") is None else typed(item, "before", int, place)
            known[partition] = (before, typed(item, "after", int, place))
    return UndoDocument(OffsetStore(to), offsets)
