"""Cleanup: deletion of groups and of offsets, on request or because they expired. Pure.

Tombstones first; when they are in the log the offsets go, and a group that is Empty and has none
left goes with its own tombstone. Nothing is marked before: what joins or commits meanwhile is
later in the log, and counts.

Kafka 2.7: kafka.coordinator.group.GroupMetadataManager.cleanupGroupMetadata; KIP-211, KIP-229,
KIP-496.
"""

from collections.abc import Iterable, Sequence

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

# Offsets that one round of expiry deletes at most, in one shard; the next round takes more.
EXPIRED_OFFSETS_PER_ROUND = 10_000

_NONE = int(ErrorCode.NONE)


class Cleanup:
    """What of a shard's groups is no longer needed."""

    def __init__(
        self, groups: dict[str, Group], rebalance: Rebalance, settings: GroupSettings
    ) -> None:
        self._groups = groups
        self._rebalance = rebalance
        self._settings = settings

    def delete_group(self, group_id: str, reply: Reply) -> Outcome:
        """`reply` takes an error code, once the group is gone."""
        outcome = Outcome()
        group = self._groups.get(group_id)
        if group is None:
            return outcome.reply(reply, int(ErrorCode.GROUP_ID_NOT_FOUND))
        if group.state is not GroupState.EMPTY:
            return outcome.reply(reply, int(ErrorCode.NON_EMPTY_GROUP))
        return self._remove(group, list(group.offsets.committed), reply, outcome)

    def delete_offsets(
        self, group_id: str, topic_partitions: Sequence[TopicPartition], reply: Reply
    ) -> Outcome:
        """`reply` takes (the group's error code, one error code for each partition)."""
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

    def partitions_deleted(self, topic_partitions: Sequence[TopicPartition]) -> Outcome:
        """The topics are gone: so are their offsets, in every group."""
        outcome = Outcome()
        for group in list(self._groups.values()):
            for topic_partition in topic_partitions:
                group.offsets.forget(topic_partition)
            held = [tp for tp in topic_partitions if tp in group.offsets.committed]
            if held:
                self._remove(group, held, None, outcome)
        return outcome

    def expire(self, moment: Moment) -> Outcome:
        """Drop what has expired, and groups that are left with nothing."""
        outcome = Outcome()
        left = EXPIRED_OFFSETS_PER_ROUND
        for group in list(self._groups.values()):
            if left <= 0:
                break
            expired = self._expired(group, moment)[:left]
            left -= len(expired)
            if expired or _is_vacant(group):
                self._remove(group, expired, None, outcome)
        return outcome

    def _expired(self, group: Group, moment: Moment) -> list[TopicPartition]:
        retention_ms = self._settings.offsets_retention_ms
        expired = group.offsets.expired
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
    ) -> Outcome:
        held = [tp for tp in topic_partitions if tp in group.offsets.committed]
        records: list[OffsetRecord | GroupRecord] = [
            offset_record(group.group_id, tp, None) for tp in held
        ]
        is_last = (
            group.state is GroupState.EMPTY
            and not group.pending_members
            and len(held) == len(group.offsets.committed)
            and not group.offsets.in_flight
            and not group.offsets.pending_by_producer
        )
        # A group that never had a generation has no record of its own.
        if is_last and group.generation_id > 0:
            records.append(group_tombstone(group.group_id))

        def settled(code: int, moment: Moment) -> Outcome:
            result = Outcome()
            if code == _NONE:
                self._bury_if_vacant(group, moment, result)
            if reply is not None:
                result.reply(reply, offsets_error(code))
            return result

        outcome.writes.append(Write(records, settled))
        return outcome

    def _bury_if_vacant(self, group: Group, moment: Moment, outcome: Outcome) -> None:
        if self._groups.get(group.group_id) is group and _is_vacant(group):
            self._rebalance.bury(group, moment, outcome)
            del self._groups[group.group_id]
            outcome.event("group_deleted", group=group.group_id)


def _is_vacant(group: Group) -> bool:
    return group.state is GroupState.EMPTY and group.offsets.is_empty and not group.pending_members


def _is_subscribed(group: Group, topic: str) -> bool:
    if group.state is GroupState.EMPTY:
        return False
    return group.subscribed_topics is None or topic in group.subscribed_topics
