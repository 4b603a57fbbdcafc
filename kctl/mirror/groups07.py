"""Translates the offsets of groups of Kafka 0.7, positions in bytes, by the maps of mirrors.

A group of 0.7 keeps its offsets in ZooKeeper, one for each partition of each server. A mirror of
one server has the server's own numbers: its partition N of a topic is partition N of the topic that
the mirror writes to. A mirror of all servers says in its positions whose partition each one is.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kctl.admin.group_migration import (
    GroupMigration,
    MigrationPlan,
    OffsetStore,
    TranslatedOffset,
)
from kctl.mirror.translation import Translator, read_translator
from kctl.model import TopicPartition
from kctl.store.consumer_znodes import BrokerPartition, ConsumedPartition


async def plan_migration07(
    migration: GroupMigration, names: Sequence[str], mirrors: Mapping[int | None, str]
) -> MigrationPlan:
    """Return the plan that moves groups to the cluster of `migration`, to which these mirrors
    copied, by broker id of 0.7; None: of every broker. Raise NotFoundError for an unknown mirror,
    and as `GroupMigration.plan` does."""
    target = migration.admin
    translators = {broker: await read_translator(target, name) for broker, name in mirrors.items()}
    copied = {broker: _CopiedBy.of(it) for broker, it in translators.items()}
    return await migration.plan(
        names,
        OffsetStore.KAFKA,
        lambda partition, position: _translated(copied, mirrors, partition, position),
    )


class _CopiedBy(NamedTuple):
    """A mirror, and the numbers that it has given to the partitions of servers, by topic; a mirror
    of one server gives none."""

    translator: Translator
    numbers: Mapping[str, Mapping[str, TopicPartition]]

    @classmethod
    def of(cls, translator: Translator) -> "_CopiedBy":
        """Return what the positions of a mirror say."""
        numbers: dict[str, dict[str, TopicPartition]] = {}
        for it in translator.positions.values():
            if it.server_partition:
                numbers.setdefault(it.source.topic, {})[it.server_partition] = it.source
        return cls(translator, numbers)

    def number(self, topic: str, partition: BrokerPartition) -> TopicPartition | None:
        """Return the mirror's number of a partition; None if it has given it none."""
        numbers = self.numbers.get(topic)
        if numbers is None:
            return TopicPartition(topic, partition.partition)
        return numbers.get(str(partition))


def _translated(
    copied: Mapping[int | None, _CopiedBy],
    names: Mapping[int | None, str],
    partition: ConsumedPartition,
    position: int,
) -> TranslatedOffset:
    """Return where `position` leads to: the record that a consumer of 0.7 there reads next."""
    number = partition.partition
    if not isinstance(number, BrokerPartition):
        raise ValueError(f"{partition} is no partition of Kafka 0.7")
    broker = number.broker_id if number.broker_id in copied else None
    mirror = copied.get(broker)
    if mirror is None:
        return TranslatedOffset(None, None, f"no --mirror is given for broker {number.broker_id}")
    at = mirror.number(partition.topic, number)
    if at is None:
        return TranslatedOffset(None, None, f"mirror {names[broker]} has not copied {number}")
    translator = mirror.translator
    found = translator.at_beginning(at, position) or translator.to_target(at, position)
    if found.to_partition is None or found.to_offset is None:
        return TranslatedOffset(None, None, f"mirror {names[broker]}: {found.reason}")
    return TranslatedOffset(ConsumedPartition(*found.to_partition), found.to_offset)
