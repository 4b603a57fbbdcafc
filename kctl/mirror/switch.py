"""Moves groups from one side of a mirror to the other: their offsets, translated exactly.

A switch is planned as a whole and refused as a whole: if the group has members, if the mirror is
behind its source in a partition of a topic that the group reads, whether or not it has committed
an offset there, or if an offset has no exact translation. Topics that the mirror does not copy are
left alone. The way back translates the offsets that the group has committed in the target since; it
is refused if the group read records there that the source does not have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.admin.committed_offsets import refuse_members
from kctl.admin.selection import select_groups
from kctl.client.offsets import NO_OFFSET
from kctl.counts import counted
from kctl.errors import KctlError, NotFoundError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.groups import ends_of_empty
from kctl.mirror.map_topic import check_source
from kctl.mirror.status import MirrorState, PartitionStatus, mirror_status
from kctl.mirror.translation import Translation, read_translator, translate_group
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

_METADATA = "kctl-mirror switch"


@dataclass(frozen=True, slots=True)
class SwitchStep:
    """The offset of a group in one partition, and what it becomes on the other side."""

    group: str
    translation: Translation
    # What the group has committed on the other side, or None.
    current_offset: int | None = None
    # Why the switch is refused; empty if this step is possible.
    obstacle: str = ""
    # Whether the mirror selects the topic, so far as it is known.
    is_selected: bool = False

    @property
    def is_mirrored(self) -> bool:
        """Return whether the mirror copies the partition."""
        return self.translation.to_partition is not None

    @property
    def is_done(self) -> bool:
        """Return whether this step commits something."""
        return self.is_mirrored and not self.obstacle


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """All steps of a switch."""

    steps: Sequence[SwitchStep]
    # Whether the mirror keeps which topics it selects; if not, a topic of which nothing was copied
    # is taken for one that is not mirrored.
    knows_topics: bool = True

    @property
    def is_refused(self) -> bool:
        """Return whether a step has an obstacle, so that nothing is done."""
        return any(step.obstacle for step in self.steps)


async def plan_switch(
    origin: "AdminClient",
    destination: "AdminClient",
    name: str,
    groups: Sequence[str],
    now_ms: int,
    *,
    back: bool = False,
) -> SwitchPlan:
    """Return the steps that move groups (names and globs) along mirror `name`, or `back`: then the
    origin is the mirror's target.

    KctlError if a group has members on either side; NotFoundError if there is no such group or
    mirror, or the mirror copies nothing that the groups read.
    """
    source, target = (destination, origin) if back else (origin, destination)
    names = await select_groups(origin, groups, must_be_complete=True)
    for side in (origin, destination):
        await refuse_members(side, names)
    translator = await read_translator(target, name)
    lags: dict[TopicPartition, PartitionStatus] = {}
    knows_topics = True
    if back:
        await check_source(source.router, name, translator.positions.values())
    else:
        found = await mirror_status(source, target, name, now_ms)
        lags = {status.source: status for status in found.partitions}
        knows_topics = found.knows_topics
    steps: list[SwitchStep] = []
    for group in names:
        there = await destination.offsets.committed(group)
        translations = await translate_group(translator, origin, group, to_source=back)
        translations = await _in_empty(destination, translations, lags)
        for each in [*translations, *_not_committed(translations, lags)]:
            held = None if each.to_partition is None else there.get(each.to_partition)
            current = None if held is None or held.offset < 0 else held.offset
            steps.append(
                SwitchStep(group, each, current, _obstacle(each, lags), each.partition in lags)
            )
    if not any(step.is_mirrored or step.obstacle for step in steps):
        raise NotFoundError(f"Mirror {name} copies nothing that {', '.join(names)} reads")
    return SwitchPlan(steps, knows_topics)


async def _in_empty(
    destination: "AdminClient",
    translations: Sequence[Translation],
    lags: Mapping[TopicPartition, PartitionStatus],
) -> list[Translation]:
    """Translate offsets at the ends of partitions of which nothing was copied: what comes next is
    the first record in the target."""
    wanted: dict[TopicPartition, TopicPartition] = {}
    for each in translations:
        lag = lags.get(each.partition)
        if each.to_partition is None and lag is not None and each.offset == lag.position == lag.end:
            wanted[each.partition] = lag.target
    ends = await ends_of_empty(destination, list(wanted.values()))
    return [
        replace(each, to_partition=there, to_offset=ends[there], reason="")
        if (there := wanted.get(each.partition)) in ends
        else each
        for each in translations
    ]


def _not_committed(
    translations: Sequence[Translation], lags: Mapping[TopicPartition, PartitionStatus]
) -> list[Translation]:
    """Return the mirrored partitions that are not caught up, in topics that a group reads, of
    which it has committed no offset: in the target it would begin beyond what is copied later."""
    topics = {each.partition.topic for each in translations}
    committed = {each.partition for each in translations}
    return [
        Translation(partition, NO_OFFSET, status.target)
        for partition, status in sorted(lags.items())
        if partition.topic in topics
        and partition not in committed
        and status.state is not MirrorState.CAUGHT_UP
    ]


def _obstacle(each: Translation, lags: Mapping[TopicPartition, PartitionStatus]) -> str:
    # The lag first: a partition of which nothing was copied has no translation, either.
    lag = lags.get(each.partition)
    if lag is not None and lag.state is MirrorState.BEHIND:
        return f"the mirror is {counted(lag.lag_records or 0, 'record')} behind"
    if lag is not None and lag.state is not MirrorState.CAUGHT_UP:
        return lag.detail
    if each.to_partition is None:
        return ""
    return each.reason if each.to_offset is None else ""


async def execute_switch(
    destination: "AdminClient", plan: SwitchPlan
) -> dict[tuple[str, TopicPartition], KctlError | None]:
    """Commit the offsets of a plan and read them back; return the error of each step, or None, by
    group and partition of the destination. A refused plan changes nothing."""
    if plan.is_refused:
        return {}
    results: dict[tuple[str, TopicPartition], KctlError | None] = {}
    for group in dict.fromkeys(step.group for step in plan.steps):
        wanted = {
            step.translation.to_partition: step.translation.to_offset
            for step in plan.steps
            if step.group == group and step.is_done
        }
        offsets = {it: at for it, at in wanted.items() if it is not None and at is not None}
        if not offsets:
            continue
        committed = await destination.offsets.commit(
            group, offsets, dict.fromkeys(offsets, _METADATA)
        )
        held = await destination.offsets.committed(group, offsets)
        for result in committed:
            error = result.error
            at = held[result.partition].offset if result.partition in held else None
            if error is None and at != offsets[result.partition]:
                error = KctlError(f"committed, but the group's offset is now {at}")
            results[group, result.partition] = error
    return results
