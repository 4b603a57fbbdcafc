"""Partitions as commands take them: `TOPIC` and `TOPIC:P,P`, checked against the cluster."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.cli.group_reset import partitions_named
from kctl.cli.items import did_you_mean
from kctl.errors import UsageError
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.topics import PartitionDescription


async def partitions_in(admin: "AdminClient", names: Sequence[str]) -> "list[PartitionDescription]":
    """The partitions that the names stand for, none: all; UsageError if one does not exist."""
    topics = await admin.topics.list_topics()
    known = {
        TopicPartition(topic.name, partition.partition): partition
        for topic in topics
        for partition in topic.partitions
    }
    if not names:
        return list(known.values())
    return [known[tp] for tp in chosen_among(known, partitions_named(names))]


def chosen_among(
    known: Iterable[TopicPartition], wanted: Mapping[str, Sequence[int] | None]
) -> list[TopicPartition]:
    """Those of the known partitions that are wanted; UsageError for one that is not there."""
    by_topic: dict[str, list[int]] = {}
    for tp in known:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    chosen = []
    for topic, numbers in wanted.items():
        if topic not in by_topic:
            raise UsageError(f"No topic {topic}", hint=did_you_mean(topic, by_topic))
        for number in by_topic[topic] if numbers is None else numbers:
            if number not in by_topic[topic]:
                raise UsageError(f"{topic} has no partition {number}, only {len(by_topic[topic])}")
            chosen.append(TopicPartition(topic, number))
    return chosen
