"""Cleanup: deletes groups and offsets, on request or on expiry. Pure.

Tombstones are written first. When they are in the log the offsets are removed, and a group that is
Empty and has no offsets left is removed with its own tombstone. Nothing is marked in advance: a
member that joins or an offset that is committed meanwhile comes later in the log and takes
precedence. A member id that has not joined yet keeps no group: it is UNKNOWN_MEMBER_ID afterwards.

Kafka 2.7: kafka.coordinator.group.GroupMetadataManager.cleanupGroupMetadata; KIP-211, KIP-229,
KIP-496.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial

from kctl.broker.coordinator.group.append_errors import offsets_error
from kctl.broker.coordinator.group.group import Group, GroupState
from kctl.broker.coordinator.group.rebalance import Rebalance
from kctl.broker.coordinator.group.records import (
    GroupRecord,
    OffsetRecord,
    group_tombstone,
    offset_record,
)
from kctl.broker.coordinator.group.settings import GroupSettings
from kctl.broker.coordinator.outcome import Moment, Outcome, Reply, Write
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.work import parts

# Maximum offsets that one round of expiry deletes in one shard; the next round continues.
EXPIRED_OFFSETS_PER_ROUND = 10_000
# Unlimited: offsets of a deleted partition must not remain.
OFFSETS_MAX = 2**63 - 1
# Offsets removed, or groups examined, per turn of the loop.
UNITS_PER_STEP = 500
# Examining an offset costs this many times less than removing it.
LOOKS_PER_UNIT = 20

# Yields Outcomes to be executed at once, with a turn of the loop after each; returns the last one.
Steps = Generator[Outcome, None, Outcome]

_NONE = int(ErrorCode.NONE)


class Cleanup:
    """Deletes the groups and offsets of a shard that are no longer needed."""

    def __init__(
        self, groups: dict[str, Group], rebalance: Rebalance, settings: GroupSettings
    ) -> None:
        self._groups = groups
        self._rebalance = rebalance
        self._settings = settings

    def delete_group(self, group_id: str, reply: Reply) -> Steps:
        """Delete the group and its offsets in steps; `reply` takes the error code.

        A member that joins between two steps ends the deletion with NON_EMPTY_GROUP.
        """
        group = self._groups.get(group_id)
        if group is None:
            return Outcome().reply(reply, int(ErrorCode.GROUP_ID_NOT_FOUND))
        doomed = dict.fromkeys(group.offsets.committed)
        *earlier, last = list(parts(list(doomed), UNITS_PER_STEP)) or [()]
        for part in earlier:
            if group.state is not GroupState.EMPTY:
                break
            yield self._remove(group, part, None, Outcome())
        if group.state is GroupState.DEAD:
            return Outcome().reply(reply, _NONE)
        if group.state is not GroupState.EMPTY:
            return Outcome().reply(reply, int(ErrorCode.NON_EMPTY_GROUP))
        return self._remove(group, last, reply, Outcome(), doomed)

    def delete_offsets(
        self, group_id: str, topic_partitions: Sequence[TopicPartition], reply: Reply
    ) -> Outcome:
        """Delete the group's offsets of these partitions.

        `reply` takes (the group's error code, one error code per partition).
        """
        outcome = Outcome()
        group = self._groups.get(group_id)
        if group is None:
            return outcome.reply(reply, (int(ErrorCode.GROUP_ID_NOT_FOUND), []))
        if group.state is not GroupState.EMPTY and not group.is_consumer_group:
            return outcome.reply(reply, (int(ErrorCode.NON_EMPTY_GROUP), []))
        codes = [
            int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if _is_subscribed(group, tp.topic) else _NONE
            for tp in topic_partitions
        ]
        free = [tp for tp, code in zip(topic_partitions, codes, strict=True) if not code]

        def settled(code: int) -> None:
            reply((_NONE, [own or code for own in codes]))

        return self._remove(group, free, settled, outcome)

    def partitions_deleted(self, topic_partitions: Sequence[TopicPartition]) -> Steps:
        """Remove the offsets of deleted partitions from every group, in steps."""
        deleted = dict.fromkeys(topic_partitions)

        def gone(group: Group) -> list[TopicPartition]:
            group.offsets.forget(deleted)
            committed = group.offsets.committed
            if len(committed) < len(deleted):
                return [tp for tp in committed if tp in deleted]
            return [tp for tp in deleted if tp in committed]

        return self._in_steps(gone, lambda _, part: part, OFFSETS_MAX)

    def expire(self, moment: Moment) -> Steps:
        """Remove expired offsets and the groups that have none left, in steps."""
        return self._in_steps(
            lambda group: list(group.offsets.committed),
            lambda group, part: self._expired(group, part, moment),
            EXPIRED_OFFSETS_PER_ROUND,
            deletes_vacant=True,
        )

    def _in_steps(
        self,
        candidates: Callable[[Group], list[TopicPartition]],
        chosen: Callable[[Group, Sequence[TopicPartition]], Sequence[TopicPartition]],
        count_max: int,
        *,
        deletes_vacant: bool = False,
    ) -> Steps:
        """Remove the offsets `chosen` among the `candidates` of each group, at most `count_max` in
        all.

        Every Outcome holds about UNITS_PER_STEP of work and reflects the state at the time it is
        requested: an offset that is committed between two steps is chosen, or not, as it is then.
        """
        outcome, units = Outcome(), 0
        for group in list(self._groups.values()):
            if count_max <= 0:
                break
            if self._groups.get(group.group_id) is not group:
                continue
            units += 1
            doomed: dict[TopicPartition, None] = {}
            if deletes_vacant and _is_vacant(group):
                self._remove(group, (), None, outcome)
            for part in parts(candidates(group), UNITS_PER_STEP):
                removed = chosen(group, part)[:count_max]
                count_max -= len(removed)
                doomed.update(dict.fromkeys(removed))
                if removed:
                    self._remove(group, removed, None, outcome, doomed)
                units += len(part) // LOOKS_PER_UNIT + len(removed)
                if units >= UNITS_PER_STEP:
                    yield outcome
                    outcome, units = Outcome(), 0
                    if self._groups.get(group.group_id) is not group:
                        break
            if units >= UNITS_PER_STEP:
                yield outcome
                outcome, units = Outcome(), 0
        return outcome

    def _expired(
        self, group: Group, among: Sequence[TopicPartition], moment: Moment
    ) -> list[TopicPartition]:
        retention_ms = self._settings.offsets_retention_ms
        expired = partial(group.offsets.expired, among=among)
        is_simple = group.protocol_type is None
        if group.state is GroupState.EMPTY and not is_simple:
            return expired(moment.wall_ms, retention_ms, empty_since_ms=group.state_since_ms)
        if is_simple:
            return expired(moment.wall_ms, retention_ms, empty_since_ms=None)
        if group.is_consumer_group and group.subscribed_topics is not None:
            return expired(
                moment.wall_ms,
                retention_ms,
                empty_since_ms=None,
                subscribed_topics=group.subscribed_topics,
            )
        return []

    def _remove(
        self,
        group: Group,
        topic_partitions: Iterable[TopicPartition],
        reply: Reply | None,
        outcome: Outcome,
        doomed: Collection[TopicPartition] = (),
    ) -> Outcome:
        """Write tombstones for `topic_partitions`; `doomed` are all partitions whose offsets are
        removed, including those of other steps."""
        held = [tp for tp in topic_partitions if tp in group.offsets.committed]
        records: list[OffsetRecord | GroupRecord] = [
            offset_record(group.group_id, tp, None) for tp in held
        ]
        is_last = (
            group.state is GroupState.EMPTY
            and (
                len(held) == len(group.offsets.committed)
                or all(tp in doomed for tp in group.offsets.committed)
            )
            and not group.offsets.in_flight
            and not group.offsets.has_pending
        )
        # A group that never completed a rebalance has no record of its own.
        if is_last and group.generation_id > 0:
            records.append(group_tombstone(group.group_id))

        def settled(code: int, moment: Moment) -> Outcome:
            result = Outcome()
            if code == _NONE:
                self._delete_if_vacant(group, moment, result)
            if reply is not None:
                result.reply(reply, offsets_error(code))
            return result

        outcome.writes.append(Write(records, settled))
        return outcome

    def _delete_if_vacant(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        if self._groups.get(group.group_id) is group and _is_vacant(group):
            self._rebalance.mark_dead(group, moment, outcome)
            del self._groups[group.group_id]
            outcome.event("group_deleted", group=group.group_id)


def _is_vacant(group: Group) -> bool:
    return group.state is GroupState.EMPTY and group.offsets.is_empty


def _is_subscribed(group: Group, topic: str) -> bool:
    if group.state is GroupState.EMPTY:
        return False
    return group.subscribed_topics is None or topic in group.subscribed_topics
